"""Approvals: a client allows one call of a tool, once.

The id of a request proves itself: it holds when it was made, and a code that only this server can make, over whose it
is and which call it allows. So nothing is kept until it is used, and then no more than the id.
"""

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Set
from os import urandom
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ferrule.store import Store

LIFE_S = 30 * 86_400
"""Seconds in which a request can be answered: as long as responses are kept by default."""
_NAME = "approvals"
_FORM = re.compile(r"mcpr_([0-9a-f]{8})([0-9a-f]{16})([0-9a-f]{32})")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits: whose it is, and what it does. `arguments` is the JSON as the client was shown it."""

    owner: str
    server: str
    tool: str
    arguments: str


class Approvals:
    """Makes ids of requests, and knows its own. The ids that were used are kept in `store`."""

    def __init__(self, store: "Store", *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._key: bytes | None = None

    async def new_id(self, wanted: Wanted) -> str:
        """Return the id of a new request."""
        made, nonce = f"{int(self._clock()):08x}", urandom(8).hex()
        return f"mcpr_{made}{nonce}{await self._code(made + nonce, wanted)}"

    async def is_ours(self, request_id: str, wanted: Wanted) -> bool:
        """Return whether this server asked exactly this, and not too long ago."""
        parts = _FORM.fullmatch(request_id)
        if parts is None or int(parts[1], 16) + LIFE_S < self._clock():
            return False
        return hmac.compare_digest(parts[3], await self._code(parts[1] + parts[2], wanted))

    async def use(self, owner: str, request_ids: Iterable[str], must: Set[str]) -> frozenset[str]:
        """Note that requests are answered. Returns those that were before; if one of `must` was, nothing is noted."""
        return await self._store.use_approvals(owner, tuple(request_ids), frozenset(must), int(self._clock()))

    async def _code(self, made: str, wanted: Wanted) -> str:
        if self._key is None:
            self._key = await self._store.secret(_NAME)
        said = msgspec.json.encode((made, wanted.owner, wanted.server, wanted.tool, wanted.arguments))
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()[:32]
