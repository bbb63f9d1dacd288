"""The login at a remote server: the SDK's OAuth flow, with the user's browser and a page of ours on loopback."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hmac import compare_digest
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from ferrule.mcp.logins import Login, LoginStore
from ferrule.protocol.errors import FerruleError

LOGIN_SECONDS = 300.0
"""How long the user has to log in."""
REQUEST_SECONDS = 5.0
"""How long a connection may take to say what it wants: browsers open some that they never use, and the end waits for
all of them."""
CALLBACK = "/callback"
_HEAD = "HTTP/1.1 {}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n{}\n"
_DONE = _HEAD.format("200 OK", "Done: you can close this window.").encode()
_NOT_FOUND = _HEAD.format("404 Not Found", "There is nothing here.").encode()


class LoginFailed(FerruleError):
    """The login did not succeed. The text has no secrets."""


async def log_in(url: str, home: str, show: Callable[[str], None]) -> bool:
    """Log in at `url` and store what it gives. `show` is handed the address that the user must open.

    Returns False where the server wants no login. Raises `LoginFailed`.
    """
    page = CallbackPage()
    server = await asyncio.start_server(page.answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        provider = _provider(url, f"http://127.0.0.1:{port}{CALLBACK}", show, page)
        try:
            async with asyncio.timeout(LOGIN_SECONDS), httpx2.AsyncClient(auth=provider) as client:
                response = await client.post(url, json=_PING, headers={"Accept": "application/json, text/event-stream"})
        except TimeoutError as error:
            raise LoginFailed(f"nobody logged in within {LOGIN_SECONDS:g} seconds") from error
        except (OAuthFlowError, OAuthRegistrationError, OAuthTokenError) as error:
            raise LoginFailed(f"the login at {url} failed ({type(error).__name__})") from error
        except httpx2.HTTPError as error:
            raise LoginFailed(f"{url} cannot be reached: is the server running, and is the URL right?") from error
    login = _login_of(provider, url)
    if login is None:
        return False
    if response.status_code in (401, 403):
        raise LoginFailed(f"{url} refuses the new login (HTTP {response.status_code})")
    LoginStore(home, url).write(login)
    return True


_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class _Memory:
    """The flow's storage; what it gave is stored at its end."""

    def __init__(self) -> None:
        self._tokens: OAuthToken | None = None
        self._client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class CallbackPage:
    """The page to which the login sends the user's browser: this path, with the secret that only the login knows.

    Any other page of the web can send the browser here, too: that changes nothing.
    """

    def __init__(self) -> None:
        self.answered: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()
        self._state = ""

    def expect(self, address: str) -> None:
        """The user is sent to `address`: its state must come back."""
        self._state = _one(parse_qs(urlsplit(address).query), "state") or ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of a browser."""
        with suppress(TimeoutError, ValueError, ConnectionError):  # ValueError: longer than any line of a browser
            async with asyncio.timeout(REQUEST_SECONDS):
                result = self._read(await reader.readline())
                writer.write(_DONE if result is not None else _NOT_FOUND)
                await writer.drain()
                if result is not None and not self.answered.done():
                    self.answered.set_result(result)
        writer.close()

    def _read(self, line: bytes) -> AuthorizationCodeResult | None:
        """What the first line of a request says about our login; None if it is not about it."""
        method, _, rest = line.decode("latin-1").partition(" ")
        place = urlsplit(rest.partition(" ")[0])
        query = parse_qs(place.query)
        state = _one(query, "state") or ""
        ours = method == "GET" and place.path == CALLBACK and ("code" in query or "error" in query)
        if not ours or not self._state or not compare_digest(state.encode(), self._state.encode()):
            return None
        return AuthorizationCodeResult(code=_one(query, "code") or "", state=state, iss=_one(query, "iss"))


def _one(query: Mapping[str, Sequence[str]], name: str) -> str | None:
    return query[name][0] if name in query else None


def _provider(url: str, callback: str, show: Callable[[str], None], page: CallbackPage) -> OAuthClientProvider:
    async def redirect(address: str) -> None:
        page.expect(address)
        show(address)

    async def wait() -> AuthorizationCodeResult:
        return await page.answered

    metadata = OAuthClientMetadata(
        client_name="Ferrule", redirect_uris=[AnyUrl(callback)], grant_types=["authorization_code", "refresh_token"]
    )
    return OAuthClientProvider(url, metadata, _Memory(), redirect, wait)


def _login_of(provider: OAuthClientProvider, url: str) -> Login | None:
    context = provider.context
    tokens, client = context.current_tokens, context.client_info
    if tokens is None or client is None:
        return None
    known = context.oauth_metadata
    return Login(
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token,
        expires_at=context.token_expiry_time or 0.0,
        token_endpoint=str(known.token_endpoint) if known else urljoin(url, "/token"),
        client_id=client.client_id,
        client_secret=client.client_secret,
        auth_method=client.token_endpoint_auth_method,
        resource=context.get_resource_url() if context.protected_resource_metadata else None,
        scope=tokens.scope,
    )
