"""What a server refused, as a session keeps it: who goes on with the session does not ask for the same again."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ferrule.model.profiles import ProviderProfile
from ferrule.model.recipient import NOTHING_OMITTED, Omissions
from ferrule.protocol.specs import Wire


class Lesson(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server is to be taken for when it is asked for one model: the fields of its profile that differ from the
    written ones, and what is left out. `provider` is as in `Recipient`."""

    provider: str
    wire: Wire
    model: str
    profile: dict[str, Any] = {}
    omitted: Omissions = NOTHING_OMITTED

    @property
    def about(self) -> tuple[str, str, str]:
        """Who is asked for what. A later lesson about the same stands for all earlier ones."""
        return self.provider, self.wire, self.model


def changed_fields(written: ProviderProfile, learned: ProviderProfile) -> dict[str, Any]:
    """The fields in which a profile differs from the written one."""
    before, after = msgspec.structs.asdict(written), msgspec.structs.asdict(learned)
    return {name: value for name, value in after.items() if value != before[name]}


def taken_for(written: ProviderProfile, lesson: Lesson) -> ProviderProfile:
    """The profile with the lesson's fields; as it is written where they fit no profile of this version."""
    try:
        return msgspec.convert(msgspec.structs.asdict(written) | lesson.profile, ProviderProfile)
    except msgspec.ValidationError:
        return written


def latest(lessons: Iterable[Lesson]) -> tuple[Lesson, ...]:
    """The last lesson about each server and model."""
    return tuple({lesson.about: lesson for lesson in lessons}.values())


def about(lessons: Sequence[Lesson], provider: str, wire: Wire, model: str) -> Lesson | None:
    """The last lesson about this server and model."""
    return next((lesson for lesson in reversed(lessons) if lesson.about == (provider, wire, model)), None)
