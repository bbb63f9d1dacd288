"""The recipient of a request, and how it affects items that other servers made."""

import hashlib
import re
from collections.abc import Mapping

import msgspec

from ferrule.model.profiles import ProviderProfile
from ferrule.protocol.content import ContentPart, InputAudio, InputFile, InputImage, InputText
from ferrule.protocol.items import Origin, OutputBody, ResponseItem
from ferrule.protocol.specs import Wire

ANYWHERE = ":"
"""Ends the name of an otherwise unknown provider."""

LONGEST_CALL_ID = 64
"""Longest call id that the Responses API accepts."""

_FAMILY = re.compile(r"[a-z]+(?:-?[0-9]+)?")
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_PORTABLE = re.compile(r"[A-Za-z0-9_-]+")
_HOLDS_SIGNATURE = re.compile(r"__(?:thought|thinking|signature|sig)s?__[A-Za-z0-9+/=_-]+$")
"""The form in which gateways hide a signature in an id, for clients that keep nothing else."""


PARTS: Mapping[str, type[ContentPart]] = {"image": InputImage, "file": InputFile, "audio": InputAudio}
"""Kinds of content beside text."""
_A = {"image": "an image", "file": "a file", "audio": "a sound"}


MAX_HEALS = 16
"""Repairs of one request; each leaves out something more, so that most servers need one or two."""


class Omissions(msgspec.Struct, frozen=True):
    """Parts of requests that a server refused in this session, and that are left out from then on.

    `fields` are paths of the body (`reasoning.summary`); `item_fields`, `tool_fields` names of fields in items and in
    tools; `kinds` types of items and of tools; `tools` names of tools; `parts` kinds of content (`image`);
    `unreadable` marks of what the server could not read, and of ids of items that it does not want. `ids`: items are
    sent without theirs.
    """

    fields: frozenset[str] = frozenset()
    item_fields: frozenset[str] = frozenset()
    tool_fields: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()
    unreadable: frozenset[str] = frozenset()
    ids: bool = False
    signatures: bool = False
    """The server requires a signature on each call, even if there is none."""


class Healed(msgspec.Struct, frozen=True):
    """The treatment of a server from now on. `what` is left out, or expressed in another way."""

    accepts: ProviderProfile
    omitted: Omissions
    what: str


NOTHING_OMITTED = Omissions()


class Recipient(msgspec.Struct, frozen=True):
    """A server as `accepts` describes it, and the family of the model there. `provider` is its name, `ANYWHERE`, its
    profile and its host. `images`: the model accepts them."""

    accepts: ProviderProfile
    provider: str
    family: str
    wire: Wire
    images: bool = True
    omitted: Omissions = NOTHING_OMITTED

    def made(self, item: ResponseItem) -> bool:
        """Return whether maker-only content may be sent back: the item is from here, or its origin is unknown."""
        return item.origin is None or (self.is_own(item) and item.origin.family == self.family)

    def is_own(self, item: ResponseItem) -> bool:
        """Return whether the item came from this server, by whichever model."""
        return item.origin is None or self._is(item.origin.provider)

    def _is(self, provider: str) -> bool:
        known = provider == self.provider
        return known or (provider.endswith(ANYWHERE) and self.provider.startswith(provider))

    def reads(self, secret: bytes) -> bool:
        """Return whether the server has not refused this before."""
        return not self.omitted.unreadable or mark_of(secret) not in self.omitted.unreadable

    def shown(self, content: OutputBody, *, tool: bool = True) -> OutputBody:
        """Replace each part that the model cannot be shown by a note; return the same object if there is none.

        The user's own images are left out only once the server has refused some: whoever attaches them knows the model
        better than its profile.
        """
        if isinstance(content, str):
            return content
        parts = tuple(self._shown(part, tool) for part in content)
        return content if all(one is other for one, other in zip(parts, content, strict=True)) else parts

    def _shown(self, part: ContentPart, tool: bool) -> ContentPart:
        kind = next((name for name, known in PARTS.items() if isinstance(part, known)), "")
        if kind in self.omitted.parts:
            return InputText(f"[{_A[kind]} was here; it was left out because the server refused it]")
        if kind == "image" and tool and not self.images:
            return InputText("[an image was here; it was left out because this model cannot see images]")
        return part

    def sent_id(self, call_id: str, origin: Origin | None = None) -> str:
        """Return a call id in the form that the server accepts; always the same for the same id."""
        if self.wire == "messages":
            return call_id if _PORTABLE.fullmatch(call_id) else _hashed(call_id)
        own = origin is None or self._is(origin.provider)
        if self.accepts.call_ids == "nine":
            return call_id if _NINE.fullmatch(call_id) else _nine_of(call_id)
        if own and (self.accepts.opaque_call_ids or _HOLDS_SIGNATURE.search(call_id)):
            return call_id
        longest = self.accepts.chat_call_id_length if self.wire == "chat" else LONGEST_CALL_ID
        if len(call_id) <= longest and (own or _PORTABLE.fullmatch(call_id)):
            return call_id
        return _hashed(call_id)


def _hashed(call_id: str) -> str:
    return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"


def mark_of(secret: bytes) -> str:
    """Return a short text that stands for a long secret."""
    return hashlib.sha256(secret).hexdigest()[:32]


def family_of(model: str) -> str:
    """Return the models that read each other's reasoning: the name up to its generation (`gpt-5`, `claude`,
    `qwen3`)."""
    bare = model.strip().lower().rpartition("/")[2]
    found = _FAMILY.match(bare)
    return found[0] if found else bare


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _nine_of(call_id: str) -> str:
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8])
    return "".join(_DIGITS[number // 62**place % 62] for place in range(9))
