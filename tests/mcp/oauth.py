"""A remote server with a login, made of the SDK's own authorization server: with or without registration of clients."""

import json
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

from tests.mcp.web import run_app

SCOPES = ["files:read", "files:write"]


class Authority(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Everybody is logged in and says yes; what was asked for is kept for tests."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refreshes: dict[str, RefreshToken] = {}
        self.asked: list[list[str] | None] = []

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.asked.append(params.scopes)
        code = AuthorizationCode(
            code=secrets.token_hex(20),
            client_id=client.client_id,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            **params.model_dump(include={"code_challenge", "redirect_uri", "redirect_uri_provided_explicitly"}),
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.grant(client.client_id, authorization_code.scopes)

    def grant(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access, refresh = secrets.token_hex(20), secrets.token_hex(20)
        self.tokens[access] = AccessToken(token=access, client_id=client_id, scopes=scopes)
        self.refreshes[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=3600, scope=" ".join(scopes))

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refreshes.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refreshes[refresh_token.token]
        return self.grant(client.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        raise NotImplementedError


class StepUp:
    """In front of the server: a call of the tool `write` needs the scope `files:write`."""

    def __init__(self, app: Any, authority: Authority) -> None:
        self.app = app
        self.authority = authority

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != "/mcp":
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part["body"], part.get("more_body", False)
        if b'"tools/call"' in body and b'"write"' in body and not self.may_write(dict(scope["headers"])):
            challenge = b'Bearer error="insufficient_scope", scope="files:write"'
            await send({"type": "http.response.start", "status": 403, "headers": [(b"www-authenticate", challenge)]})
            await send({"type": "http.response.body", "body": b""})
            return

        async def again() -> Any:
            nonlocal body
            given, body = body, b""
            return {"type": "http.request", "body": given} if given else await receive()

        await self.app(scope, again, send)

    def may_write(self, headers: dict[bytes, bytes]) -> bool:
        token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
        known = self.authority.tokens.get(token)
        return known is None or "files:write" in known.scopes


@asynccontextmanager
async def guarded(authority: Authority, *, registers: bool) -> AsyncIterator[str]:
    """A server with the tools `read` and `write` behind a login; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        origin = f"http://127.0.0.1:{place.getsockname()[1]}"
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(origin),
            resource_server_url=AnyHttpUrl(f"{origin}/mcp"),
            client_registration_options=ClientRegistrationOptions(enabled=registers, valid_scopes=SCOPES),
            required_scopes=["files:read"],
            validate_token_resource=False,
        )
        server = MCPServer("guarded", log_level="ERROR", auth=settings, auth_server_provider=authority)

        @server.tool()
        def read() -> str:
            return "read"

        @server.tool()
        def write() -> str:
            return "written"

        async with run_app(StepUp(server.streamable_http_app(), authority), place):
            yield f"{origin}/mcp"


async def browse(address: str) -> str:
    """The user's browser: from the login's address to the page that says that it is done."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        return (await browser.get(address)).text


def told(reply: dict[str, Any]) -> bytes:
    """A body of JSON."""
    return json.dumps(reply).encode()
