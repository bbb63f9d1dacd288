"""The loopback page to which a login sends the user's browser."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hmac import compare_digest
from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import AuthorizationCodeResult

REQUEST_SECONDS = 5.0
"""Seconds for a connection to send its request: browsers open some that they never use, and the end of the page
waits for all of them."""
CALLBACK = "/callback"
LONGEST_REFUSAL = 200
"""Characters quoted of a login server's reason for refusing."""
_HEAD = "HTTP/1.1 {}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n{}\n"
_DONE = _HEAD.format("200 OK", "Done: you can close this window.").encode()
_NOT_FOUND = _HEAD.format("404 Not Found", "There is nothing here.").encode()


class CallbackPage:
    """The page to which the login sends the user's browser: this path, with the secret that only the login knows.

    Any other page of the web can send the browser here, too: that changes nothing. `refusal` is why the login server
    gave no code.
    """

    def __init__(self) -> None:
        self.answered: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self.refusal = ""
        self._state = ""

    def expect(self, address: str) -> None:
        """Note that the user is sent to `address`, whose state must come back."""
        self._state = _one(parse_qs(urlsplit(address).query), "state") or ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a browser."""
        with suppress(TimeoutError, ValueError, ConnectionError):  # ValueError: longer than any line of a browser
            async with asyncio.timeout(REQUEST_SECONDS):
                result = self._read(await reader.readline())
                writer.write(_DONE if result is not None else _NOT_FOUND)
                await writer.drain()
                if result is not None and not self.answered.done():
                    self.answered.set_result(result)
        writer.close()

    def _read(self, line: bytes) -> AuthorizationCodeResult | None:
        """Read the first line of a request; None if it is not about our login."""
        method, _, rest = line.decode("latin-1").partition(" ")
        place = urlsplit(rest.partition(" ")[0])
        query = parse_qs(place.query)
        state = _one(query, "state") or ""
        ours = method == "GET" and place.path == CALLBACK and ("code" in query or "error" in query)
        if not ours or not self._state or not compare_digest(state.encode(), self._state.encode()):
            return None
        words = [word for name in ("error", "error_description") if (word := _one(query, name))]
        self.refusal = " ".join(": ".join(words).split())[:LONGEST_REFUSAL]
        return AuthorizationCodeResult(code=_one(query, "code") or "", state=state, iss=_one(query, "iss"))


def _one(query: Mapping[str, Sequence[str]], name: str) -> str | None:
    return query[name][0] if name in query else None
