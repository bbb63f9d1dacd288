"""Who a request goes to, and what that means for what other servers made."""

import hashlib
import re

import msgspec

from ferrule.model.profiles import ProviderProfile
from ferrule.protocol.items import Origin, ResponseItem
from ferrule.protocol.specs import Wire

LONGEST_CALL_ID = 64
"""Characters of a call id that the Responses API takes."""

_FAMILY = re.compile(r"[a-z]+(?:-?[0-9]+)?")
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_PORTABLE = re.compile(r"[A-Za-z0-9_-]+")
_HOLDS_SIGNATURE = re.compile(r"__(?:thought|thinking|signature|sig)s?__[A-Za-z0-9+/=_-]+$")
"""How gateways hide a signature in an id, for clients that keep nothing else."""


class Recipient(msgspec.Struct, frozen=True):
    """A server as `accepts` describes it, and the family of the model that is asked there."""

    accepts: ProviderProfile
    provider: str
    family: str
    wire: Wire

    @property
    def origin(self) -> Origin:
        """How the items are marked that this one makes."""
        return Origin(self.provider, self.family)

    def made(self, item: ResponseItem) -> bool:
        """Whether what only its maker can read may go back: the item is from here, or nobody knows from where."""
        return item.origin is None or item.origin.is_alike(self.origin)

    def sent_id(self, call_id: str, origin: Origin | None = None) -> str:
        """A call id in the form that the server takes; the same for the same id at any time."""
        own = origin is None or origin.provider == self.provider
        if self.accepts.call_ids == "nine":
            return call_id if _NINE.fullmatch(call_id) else _nine_of(call_id)
        if own and (self.accepts.opaque_call_ids or _HOLDS_SIGNATURE.search(call_id)):
            return call_id
        longest = self.accepts.chat_call_id_length if self.wire == "chat" else LONGEST_CALL_ID
        if len(call_id) <= longest and (own or _PORTABLE.fullmatch(call_id)):
            return call_id
        return f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:32]}"


def family_of(model: str) -> str:
    """The models that read each other's reasoning: the name up to its generation (`gpt-5`, `claude`, `qwen3`)."""
    bare = model.strip().lower().rpartition("/")[2]
    found = _FAMILY.match(bare)
    return found[0] if found else bare


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _nine_of(call_id: str) -> str:
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest()[:8])
    return "".join(_DIGITS[number // 62**place % 62] for place in range(9))
