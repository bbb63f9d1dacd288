"""Lessons about servers, stored with the session: a resumed session does not repeat a request that was refused."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ferrule.model.profiles import ProviderProfile
from ferrule.model.recipient import NOTHING_OMITTED, Omissions
from ferrule.protocol.specs import Wire


class Lesson(msgspec.Struct, frozen=True, omit_defaults=True):
    """The treatment of a server and model: the fields of its profile that differ from the original, and what
    is left out. `provider` is as in `Recipient`."""

    provider: str
    wire: Wire
    model: str
    profile: dict[str, Any] = {}
    omitted: Omissions = NOTHING_OMITTED

    @property
    def about(self) -> tuple[str, str, str]:
        """The key of the lesson: server and model. A later lesson with the same key replaces all earlier ones."""
        return self.provider, self.wire, self.model


def changed_fields(written: ProviderProfile, learned: ProviderProfile) -> dict[str, Any]:
    """Return the fields in which a profile differs from the original."""
    before, after = msgspec.structs.asdict(written), msgspec.structs.asdict(learned)
    return {name: value for name, value in after.items() if value != before[name]}


def taken_for(written: ProviderProfile, lesson: Lesson) -> ProviderProfile:
    """Apply the lesson's fields to the profile; return the original if they fit no profile of this version."""
    try:
        return msgspec.convert(msgspec.structs.asdict(written) | lesson.profile, ProviderProfile)
    except msgspec.ValidationError:
        return written


def latest(lessons: Iterable[Lesson]) -> tuple[Lesson, ...]:
    """Return the last lesson about each server and model."""
    return tuple({lesson.about: lesson for lesson in lessons}.values())


def about(lessons: Sequence[Lesson], provider: str, wire: Wire, model: str) -> Lesson | None:
    """Return the last lesson about this server and model."""
    return next((lesson for lesson in reversed(lessons) if lesson.about == (provider, wire, model)), None)
