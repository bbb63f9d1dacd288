"""The transport to a remote server: the SDK's streamable HTTP over a bounded client that names failures."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from ferrule.mcp.lines import MAX_MESSAGE_BYTES, TOO_LONG
from ferrule.mcp.logins import LoginAuth, LoginStore
from ferrule.mcp.route import Route
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.redaction import hide_in_logs, secrets_in_headers, secrets_in_url

SESSION_EXPIRED = -32018
"""Our own code: the server no longer knows the session, so it did not look at the request."""
LOGIN_NEEDED = -32019
"""Our own code: the server wants a login."""

CONNECT_SECONDS = 30.0
"""Seconds in which a server must accept the connection."""
READ_SECONDS = 3600.0
"""Seconds of silence allowed: a call's own timeout is shorter, and a listening stream may be quiet."""

CLOSE_SECONDS = 2.0
"""Seconds to tell a server that its session is over: as long as a local one has to end by itself."""


_STATUS = "ferrule.http_status"
"""Names the HTTP status in the data of an error that we make of it."""


def http_status(error: MCPError) -> int | None:
    """Return the HTTP status of which an error was made; None if the server sent the error itself."""
    status = error.data.get(_STATUS) if isinstance(error.data, dict) else None
    return status if isinstance(status, int) else None


def status_error(code: int, message: str, status: int) -> bytes:
    """Return the body of an HTTP answer of this status: a JSON-RPC error that keeps the status."""
    error = {"code": code, "message": message, "data": {_STATUS: status}}
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()


class HttpTransport:
    """Talks to `settings.url`, with the login stored in `home` unless the headers authenticate."""

    exit_code: int | None = None

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        env: Mapping[str, str],
        home: str | None = None,
        route: Route | None = None,
    ) -> None:
        assert settings.url is not None
        if route is None:
            route = Route(httpx2.AsyncHTTPTransport(), _advice(name, settings, request_headers(settings, env)))
        self._url = settings.url
        headers = request_headers(settings, env)
        knows_who = home is None or any(header.lower() == "authorization" for header in headers)
        store = None if knows_who or home is None else LoginStore(home, settings.url)
        self._client = httpx2.AsyncClient(
            headers=headers,
            auth=None if store is None else LoginAuth(store),
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS),
            transport=_Careful(route, store),
        )
        self._stack = AsyncExitStack()
        self._headers = headers
        hide_in_logs(self)

    def secrets(self) -> list[str]:
        """Return the keys that are sent to the server."""
        return [*secrets_in_url(self._url), *secrets_in_headers(self._headers.values())]

    async def __aenter__(self) -> tuple[Any, Any]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._client)
            streams = await stack.enter_async_context(
                streamable_http_client(self._url, http_client=self._client, max_sse_event_size=MAX_MESSAGE_BYTES)
            )
            self._stack = stack.pop_all()
        return streams

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    def said(self) -> str:
        """Return nothing: the output of a remote server is not seen here."""
        return ""


def request_headers(settings: McpServerSettings, env: Mapping[str, str]) -> dict[str, str]:
    """Return the configured headers, without those whose variables are not set."""
    named = {header: env[name] for header, name in settings.env_http_headers.items() if env.get(name)}
    headers = {**settings.http_headers, **settings.headers, **named}
    token = env.get(settings.bearer_token_env_var or "")
    return headers | ({"Authorization": f"Bearer {token}"} if token else {})


def _advice(name: str, settings: McpServerSettings, headers: Mapping[str, str]) -> str:
    """Return the user's next step if the server rejects the credentials."""
    if any(header.lower() == "authorization" for header in headers):
        return "check the token in its settings (headers, bearer_token_env_var)"
    if settings.bearer_token_env_var is not None:
        return f"set the variable {settings.bearer_token_env_var}, which is to hold its token"
    return f"run `ferrule mcp login {name}`"


class _Careful(httpx2.AsyncBaseTransport):
    """Reads answers up to a limit and turns an error status into a JSON-RPC error that names it, with advice if the
    server rejects the credentials. Scopes that the stored login lacks are noted for the next login."""

    def __init__(self, route: Route, store: LoginStore | None) -> None:
        self._advice = route.advice
        self._store = store
        self._inner = route.transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            request.extensions = {**request.extensions, "timeout": httpx2.Timeout(CLOSE_SECONDS).as_dict()}
        response = await self._inner.handle_async_request(request)
        if response.status_code < 400 or request.method != "POST":
            if response.headers.get("content-type", "").lower().startswith("application/json"):
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                response.stream = _Bounded(response.stream)
            return response
        failed = self._error(response, "mcp-session-id" in request.headers)
        if failed is None and response.status_code != 404:
            response = await _whole(response, request)
            if b'"jsonrpc"' not in response.content:
                failed = _named_status(response)
        if failed is None:
            return response
        code, message = failed
        lacked = _lacked_scope(response)
        if lacked and self._store is not None:
            await self._store.want(lacked)
        await response.aclose()
        headers = [(k, v) for k, v in response.headers.raw if k.lower() not in _BODY_HEADERS]
        return httpx2.Response(
            response.status_code,
            headers=[*headers, (b"content-type", b"application/json")],
            content=status_error(code, message, response.status_code),
            request=request,
        )

    def _error(self, response: httpx2.Response, in_session: bool) -> tuple[int, str] | None:
        status = response.status_code
        if status == 404 and in_session:
            return SESSION_EXPIRED, "the server ended the session"
        lacked = _lacked_scope(response)
        if lacked is not None:
            return LOGIN_NEEDED, f"needs {_rights(response, lacked)} (HTTP 403): {self._advice}"
        if status == 401:
            return LOGIN_NEEDED, f"needs a login (HTTP 401): {self._advice}"
        if status == 403:
            return LOGIN_NEEDED, f"refuses who asks (HTTP 403): {self._advice}"
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            return None  # the body says more than the status
        if status == 404:
            return None  # an unknown method, to the SDK
        return _named_status(response)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _named_status(response: httpx2.Response) -> tuple[int, str]:
    return -32603, f"HTTP {response.status_code} {response.reason_phrase}".rstrip()


async def _whole(response: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
    """Return an answer with its body; without, if that is too long or damaged."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    headers = [(k, v) for k, v in response.headers.raw if k.lower() not in (b"content-length", b"transfer-encoding")]
    try:
        body = b"".join([chunk async for chunk in _Bounded(response.stream)])
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)
    except (httpx2.StreamError, httpx2.DecodingError):
        return httpx2.Response(response.status_code, request=request)
    finally:
        await response.aclose()


def _lacked_scope(response: httpx2.Response) -> str | None:
    """Return the scopes that a refusal asks for; None if it is not about scopes. RFC 6750, section 3.1."""
    if response.status_code != 403:
        return None
    from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth

    if extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return None
    return extract_scope_from_www_auth(response) or ""


def _rights(response: httpx2.Response, scope: str) -> str:
    """Describe the rights that the login lacks, in the server's words if it has any."""
    if scope:
        return f"the scope {_word(scope)}, which its login does not have"
    from mcp.client.auth.utils import extract_field_from_www_auth

    description = extract_field_from_www_auth(response, "error_description")
    return f"more rights than its login has{f' ({_word(description)})' if description else ''}"


def _word(text: str) -> str:
    return " ".join(text.split())[:_SHOWN]


_SHOWN = 200
"""Characters of the scopes in an error."""
_BODY_HEADERS = frozenset({b"content-type", b"content-length", b"content-encoding", b"transfer-encoding"})


class _Bounded(httpx2.AsyncByteStream):
    """A body that fails above the limit."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.StreamError(TOO_LONG)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
