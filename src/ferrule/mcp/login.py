"""Log in at a remote server: the SDK's OAuth flow with the user's browser and our loopback page."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urljoin

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.utils import build_protected_resource_metadata_discovery_urls, union_scopes
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, PrivateAttr

from ferrule.mcp.login_page import CALLBACK, CallbackPage
from ferrule.mcp.logins import Login, LoginStore
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.mcp_settings import McpOAuthSettings

LOGIN_SECONDS = 300.0
"""Seconds for the user to log in."""
ANSWER_SECONDS = 30.0
"""Seconds for a server to answer one request of the login."""
LONGEST_REASON = 300
"""Characters of a reason in an error."""

Show = Callable[[str], None]


class LoginFailed(FerruleError):
    """The login failed. The text contains no secrets."""


async def log_in(
    url: str, home: str, show: Show, oauth: McpOAuthSettings | None = None, env: Mapping[str, str] | None = None
) -> Login | None:
    """Log in at `url` and store the login. `show` gets the address that the user must open.

    Asks for the scopes of the present login and those it lacked, besides those that the server names. Returns None if
    the server wants no login. Raises `LoginFailed`.
    """
    oauth = oauth or McpOAuthSettings()
    store = LoginStore(home, url)
    page = CallbackPage()
    async with _listening(page, oauth.callback_port or 0) as port:
        callback = f"http://127.0.0.1:{port}{CALLBACK}"
        provider = _provider(url, callback, show, page, oauth, env or {}, _needed(store.read(), oauth))
        response = await _knock(url, provider, page, oauth)
    login = _login_of(provider, url)
    if login is None:
        return None
    if response.status_code in (401, 403):
        raise LoginFailed(f"{url} refuses the new login (HTTP {response.status_code})")
    store.write(login)
    return login


@asynccontextmanager
async def _listening(page: CallbackPage, port: int) -> AsyncIterator[int]:
    """Serve the page on loopback; yield its port."""
    try:
        server = await asyncio.start_server(page.answer, "127.0.0.1", port)
    except OSError as error:
        text = f"the callback port {port} cannot be used ({error.strerror}): end what uses it, or set another one"
        raise LoginFailed(text) from error
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _knock(
    url: str, provider: OAuthClientProvider, page: CallbackPage, oauth: McpOAuthSettings
) -> httpx2.Response:
    """Send the server a request that makes it ask for the login. Raises `LoginFailed`."""
    door = _Door()
    try:
        async with asyncio.timeout(LOGIN_SECONDS), _client(auth=provider, transport=door) as client:
            response = await client.post(url, json=_PING, headers=_HEADERS)
            if response.is_redirect:
                to = response.headers.get("location", "")
                raise LoginFailed(f"{url} redirects to {to[:LONGEST_REASON]}: use that address if it is the server's")
            if provider.context.current_tokens is None and await _offers_login(url):
                door.closed = True  # it lets anybody ask this, and wants the login later
                response = await client.post(url, json=_PING, headers=_HEADERS)
    except TimeoutError as error:
        raise LoginFailed(f"nobody logged in within {LOGIN_SECONDS:g} seconds") from error
    except (OAuthFlowError, OAuthRegistrationError, OAuthTokenError) as error:
        raise LoginFailed(f"the login at {url} failed: {_reason(error, page, provider, oauth)}") from error
    except httpx2.HTTPError as error:
        raise LoginFailed(f"{url} cannot be reached: is the server running, and is the URL right?") from error
    return response


_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_HEADERS = {"Accept": "application/json, text/event-stream"}


def _client(**options: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=ANSWER_SECONDS, **options)


class _Door(httpx2.AsyncBaseTransport):
    """The transport of the login. While it is `closed`, the next request is answered as if it needed a login."""

    def __init__(self) -> None:
        self.closed = False
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.closed:
            self.closed = False
            return httpx2.Response(401, headers={"WWW-Authenticate": "Bearer"}, request=request)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _offers_login(url: str) -> bool:
    """Return whether the server names its login servers."""
    async with _client() as client:
        for place in build_protected_resource_metadata_discovery_urls(None, url):
            response = await client.get(place)
            if response.status_code == 200 and b'"authorization_servers"' in response.content:
                return True
    return False


def _reason(error: Exception, page: CallbackPage, provider: OAuthClientProvider, oauth: McpOAuthSettings) -> str:
    """Explain the failure and the next step, without the server's own text, which may contain anything."""
    if page.refusal:
        return f"the login server refused it ({page.refusal})"
    if isinstance(error, OAuthRegistrationError):
        (callback,) = provider.context.client_metadata.redirect_uris or ("",)
        fixed = "" if oauth.callback_port else ", and callback_port, so that this address stays the same"
        return (
            "the login server registers no client by itself. Register one there with the redirect address "
            f"{callback}, and set client_id in the server's oauth table (docs/mcp.md){fixed}"
        )
    if isinstance(error, OAuthTokenError):
        code = re.search(r'"error"\s*:\s*"([a-z_]{1,60})"', str(error))
        told = code[1] if code else "no token came"
        check = ": check client_id, the client's secret and token_endpoint_auth_method" if oauth.client_id else ""
        return f"the login server gave no token ({told}){check}"
    return " ".join(str(error).split())[:LONGEST_REASON]


class _Memory:
    """Storage for the flow, whose result is stored at its end. A client that has an id is not registered again."""

    def __init__(self, client: OAuthClientInformationFull | None) -> None:
        self._tokens: OAuthToken | None = None
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class _Metadata(OAuthClientMetadata):
    """The client's metadata. Whatever scope the flow chooses, the needed ones are requested too."""

    _needed: str | None = PrivateAttr(default=None)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, union_scopes(self._needed, value) if name == "scope" else value)


def _needed(login: Login | None, oauth: McpOAuthSettings) -> str | None:
    """Return the configured scopes, those of the present login, and those that it lacked."""
    held = None if login is None else union_scopes(login.scope, login.wanted)
    return union_scopes(" ".join(oauth.scopes) or None, held)


def _provider(
    url: str,
    callback: str,
    show: Show,
    page: CallbackPage,
    oauth: McpOAuthSettings,
    env: Mapping[str, str],
    needed: str | None,
) -> OAuthClientProvider:
    async def redirect(address: str) -> None:
        if oauth.token_endpoint_auth_method is None:
            _choose_auth_method(provider)
        page.expect(address)
        show(address)

    async def wait() -> AuthorizationCodeResult:
        return await page.answered

    metadata = _Metadata(
        client_name="Ferrule", redirect_uris=[AnyUrl(callback)], grant_types=["authorization_code", "refresh_token"]
    )
    metadata._needed = needed
    provider = OAuthClientProvider(
        url, metadata, _Memory(_registered(oauth, env, callback)), redirect, wait, oauth.client_metadata_url
    )
    return provider


def _registered(oauth: McpOAuthSettings, env: Mapping[str, str], callback: str) -> OAuthClientInformationFull | None:
    """Return the configured client. Raises `LoginFailed` if the variable with its secret is not set."""
    if oauth.client_id is None:
        return None
    secret = oauth.client_secret
    if oauth.client_secret_env_var is not None:
        secret = env.get(oauth.client_secret_env_var)
        if not secret:
            raise LoginFailed(f"the variable {oauth.client_secret_env_var} with the client's secret is not set")
    return OAuthClientInformationFull(
        client_id=oauth.client_id,
        client_secret=secret,
        redirect_uris=[AnyUrl(callback)],
        token_endpoint_auth_method=(oauth.token_endpoint_auth_method or "client_secret_basic") if secret else "none",
    )


def _choose_auth_method(provider: OAuthClientProvider) -> None:
    """Choose how a registered client sends its secret: `client_secret_basic` unless the server only takes others."""
    client, server = provider.context.client_info, provider.context.oauth_metadata
    taken = (server and server.token_endpoint_auth_methods_supported) or ["client_secret_basic"]
    if (
        client is not None
        and client.token_endpoint_auth_method == "client_secret_basic"
        and ("client_secret_basic" not in taken and "client_secret_post" in taken)
    ):
        client.token_endpoint_auth_method = "client_secret_post"


def _login_of(provider: OAuthClientProvider, url: str) -> Login | None:
    context = provider.context
    tokens, client = context.current_tokens, context.client_info
    if tokens is None or client is None:
        return None
    known = context.oauth_metadata
    granted = (tokens.scope or "").split()
    missing = [scope for scope in (context.client_metadata.scope or "").split() if scope not in granted]
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
        wanted=" ".join(missing) or None,
    )
