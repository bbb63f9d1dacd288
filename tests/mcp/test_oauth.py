"""Logins as servers want them: scopes that grow, clients that are registered beforehand, documents about clients."""

import asyncio
import base64
import hashlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from ferrule.config.mcp_json import mcp_servers_of
from ferrule.mcp.client import MCPClient
from ferrule.mcp.errors import McpFailure
from ferrule.mcp.login import LoginFailed, log_in
from ferrule.mcp.logins import Login, LoginStore
from ferrule.protocol.errors import UsageError
from ferrule.protocol.mcp_settings import McpOAuthSettings, McpServerSettings
from tests.mcp.oauth import Authority, browse, guarded, told
from tests.mcp.web import Asked, Reply, mcp_result, stub


class User:
    """Opens what is shown, and keeps it."""

    def __init__(self, browse: Callable[[str], Any] = browse) -> None:
        self.shown: list[str] = []
        self.tasks: list[asyncio.Future[Any]] = []
        self._browse = browse

    def __call__(self, address: str) -> None:
        self.shown.append(address)
        self.tasks.append(asyncio.ensure_future(self._browse(address)))

    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.shown[-1]).query).items()}


def client(url: str, home: Path, **more: Any) -> MCPClient:
    return MCPClient("web", McpServerSettings(url=url, **more), home=str(home))


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as place:
        return int(place.getsockname()[1])


async def test_m049_a_scope_that_is_lacking_is_named_and_the_next_login_asks_for_both(tmp_path: Path) -> None:
    authority, user = Authority(), User()
    async with guarded(authority, registers=True) as url:
        assert await log_in(url, str(tmp_path), user)
        assert authority.asked == [["files:read"]]
        async with client(url, tmp_path) as web:
            assert text_of(await web.call_tool("read", {})) == "read"
            why = (
                r"needs the scope files:write, which its login does not have \(HTTP 403\): run `ferrule mcp login web`"
            )
            for _ in range(2):
                with pytest.raises(McpFailure, match=why) as failed:
                    await web.call_tool("write", {})
            assert failed.value.kind == "login"
            login = await log_in(url, str(tmp_path), user)
            assert login is not None
            assert authority.asked[1:] == [["files:read", "files:write"]]
            assert (login.scope, login.wanted) == ("files:read files:write", None)
            assert text_of(await web.call_tool("write", {})) == "written"  # the same session
            assert text_of(await web.call_tool("read", {})) == "read"


async def test_m049_without_the_name_of_a_scope_the_servers_words_are_told() -> None:
    refusal = {"www-authenticate": 'Bearer error="insufficient_scope", error_description="Required scope: a"'}
    with stub(lambda asked: (403, refusal, b"")) as url:
        with pytest.raises(McpFailure, match=r"needs more rights than its login has \(Required scope: a\)"):
            await MCPClient("web", McpServerSettings(url=url)).connect()
        configured = McpServerSettings(url=url, headers={"Authorization": "Bearer x"})
        with pytest.raises(McpFailure, match=r"check the token in its settings"):
            await MCPClient("web", configured).connect()
    with (
        stub(lambda asked: (401, {}, b"")) as url,
        pytest.raises(McpFailure, match=r"set the variable TOKEN, which is to hold its token"),
    ):
        await MCPClient("web", McpServerSettings(url=url, bearer_token_env_var="TOKEN"), env={}).connect()


async def test_m051_without_registration_the_advice_names_the_address_to_register(tmp_path: Path) -> None:
    async with guarded(Authority(), registers=False) as url:
        why = (
            r"registers no client by itself. Register one there with the redirect address http://127.0.0.1:\d+/callback"
        )
        with pytest.raises(LoginFailed, match=why):
            await log_in(url, str(tmp_path), User())


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic", "none"])
async def test_m051_a_client_that_is_registered_already_logs_in_and_renews(method: str, tmp_path: Path) -> None:
    authority, user, port = Authority(), User(), free_port()
    secret = None if method == "none" else "s3/%2Fcret"
    authority.clients["us"] = OAuthClientInformationFull(
        client_id="us",
        client_secret=secret,
        redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}/callback")],
        token_endpoint_auth_method=method,
        scope="files:read files:write",
    )
    if method == "client_secret_post":
        oauth = McpOAuthSettings(
            client_id="us",
            client_secret_env_var="SECRET",
            callback_port=port,
            token_endpoint_auth_method="client_secret_post",
        )
    else:
        oauth = McpOAuthSettings(client_id="us", client_secret=secret, callback_port=port, scopes=("files:write",))
    async with guarded(authority, registers=False) as url:
        assert await log_in(url, str(tmp_path), user, oauth, {"SECRET": "s3/%2Fcret"})
        assert user.query()["client_id"] == "us"
        if method != "client_secret_post":
            assert authority.asked == [["files:write", "files:read"]]
        async with client(url, tmp_path) as web:
            assert text_of(await web.call_tool("read", {})) == "read"
            authority.tokens.clear()
            assert text_of(await web.call_tool("read", {})) == "read"  # renewed with the client's secret


class DocumentReader:
    """A login server that knows a client by the address of a document about it; what it was sent is kept."""

    def __init__(
        self, *, reads: bool = True, closed_to: tuple[str, ...] = ("ping",), below: str = "", challenge: str = "Bearer"
    ) -> None:
        self.below = below
        self.challenge = challenge
        self.reads = reads
        self.closed_to = closed_to
        self.tokens: list[dict[str, str]] = []
        self.granted: str | None = None
        self.url = ""

    def answer(self, asked: Asked) -> Reply:
        origin = self.url.removesuffix("/mcp") + self.below
        if asked.method == "GET" and asked.path.startswith("/.well-known/oauth-protected-resource"):
            return 200, {}, told({"resource": self.url, "authorization_servers": [origin], "scopes_supported": ["a"]})
        if asked.method == "GET" and asked.path not in _places_of_metadata(self.below):
            return 404, {}, b""
        if asked.method == "GET":
            metadata = {
                "issuer": origin,
                "authorization_endpoint": f"{origin}/authorize",
                "token_endpoint": f"{origin}/token",
                "code_challenge_methods_supported": ["S256"],
                "client_id_metadata_document_supported": self.reads,
            }
            return 200, {}, told(metadata)
        if asked.path == f"{self.below}/token":
            self.tokens.append(asked.form | {"authorization": asked.headers.get("authorization", "")})
            scope = {} if self.granted is None else {"scope": self.granted}
            return 200, {}, told({"access_token": "good", "token_type": "bearer", "expires_in": 60, **scope})
        if asked.path == "/register":
            return 404, {}, b""
        if asked.json["method"] in self.closed_to and asked.headers.get("authorization") != "Bearer good":
            return 401, {"www-authenticate": self.challenge}, b""
        return mcp_result(asked)


def _places_of_metadata(below: str) -> set[str]:
    """Where an issuer with a path keeps its metadata (RFC 8414, OpenID Connect)."""
    names = ("oauth-authorization-server", "openid-configuration")
    return {f"/.well-known/{name}{below}" for name in names} | {f"{below}/.well-known/openid-configuration"}


async def answer_page(address: str, **result: str) -> str:
    """What a login server sends the browser to."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    async with httpx2.AsyncClient() as browser:
        said = result or {"code": "c"}
        return (await browser.get(query["redirect_uri"], params={**said, "state": query["state"]})).text


@pytest.mark.parametrize("below", ["", "/tenant/one"])
@pytest.mark.parametrize(("challenge", "scope"), [("Bearer", "a"), ('Bearer scope="b"', "b")])
async def test_m050_what_the_servers_metadata_says(tmp_path: Path, below: str, challenge: str, scope: str) -> None:
    server, user = DocumentReader(below=below, challenge=challenge), User(answer_page)
    with stub(server.answer, gets=True) as server.url:
        assert await log_in(server.url, str(tmp_path), user, McpOAuthSettings(client_id="us"))
        assert urlsplit(user.shown[0]).path == f"{below}/authorize"
        asked, paid = user.query(), server.tokens[0]
        assert (asked["scope"], asked["resource"], asked["code_challenge_method"]) == (scope, server.url, "S256")
        digest = hashlib.sha256(paid["code_verifier"].encode()).digest()
        assert asked["code_challenge"] == base64.urlsafe_b64encode(digest).decode().rstrip("=")
        assert paid["resource"] == server.url
        async with client(server.url, tmp_path) as web:
            assert text_of(await web.call_tool("echo", {"text": "in"})) == "ECHO: in"


async def test_m051_a_client_is_known_by_its_document_where_the_server_reads_such(tmp_path: Path) -> None:
    document = "https://client.example/ferrule.json"
    server, user = DocumentReader(), User(answer_page)
    with stub(server.answer, gets=True) as server.url:
        oauth = McpOAuthSettings(client_metadata_url=document)
        assert await log_in(server.url, str(tmp_path), user, oauth)
        assert user.query()["client_id"] == document
        assert server.tokens[0]["client_id"] == document
        server.reads = False
        with pytest.raises(LoginFailed, match="registers no client by itself"):
            await log_in(server.url, str(tmp_path), user, oauth)


async def test_m049_a_server_that_lets_anybody_in_first_has_its_login(tmp_path: Path) -> None:
    server, user = DocumentReader(closed_to=("tools/call",)), User(answer_page)
    oauth = McpOAuthSettings(client_id="us")
    with stub(server.answer, gets=True) as server.url:
        async with client(server.url, tmp_path) as web:
            with pytest.raises(McpFailure, match=r"needs a login \(HTTP 401\)"):
                await web.call_tool("echo", {})
            assert await log_in(server.url, str(tmp_path), user, oauth)
            assert text_of(await web.call_tool("echo", {"text": "in"})) == "ECHO: in"


async def test_m049_scopes_that_are_not_granted_are_asked_for_again(tmp_path: Path) -> None:
    server, user = DocumentReader(), User(answer_page)
    oauth = McpOAuthSettings(client_id="us", scopes=("b", "c"))
    server.granted = "a b"
    with stub(server.answer, gets=True) as server.url:
        login = await log_in(server.url, str(tmp_path), user, oauth)
        assert login is not None
        assert (login.scope, login.wanted) == ("a b", "c")
        await log_in(server.url, str(tmp_path), user, McpOAuthSettings(client_id="us"))
        assert user.query()["scope"] == "a b c"


async def test_m049_noting_a_scope_twice_or_without_a_login_changes_nothing(tmp_path: Path) -> None:
    store = LoginStore(str(tmp_path), "http://x/mcp")
    await store.want("a")
    assert store.read() is None
    store.write(Login("token", "http://x/token", "us", scope="a"))
    for scope in ("a b", "b", "a"):
        await store.want(scope)
    login = store.read()
    assert login is not None and login.wanted == "b"


async def test_m051_what_goes_wrong_says_what_to_do(tmp_path: Path) -> None:
    server, home = DocumentReader(), str(tmp_path)
    with stub(server.answer, gets=True) as server.url, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LoginFailed, match=f"the callback port {port} cannot be used .*end what uses it, or set"):
            await log_in(server.url, home, User(), McpOAuthSettings(client_id="us", callback_port=port))
        with pytest.raises(LoginFailed, match="the variable SECRET with the client's secret is not set"):
            await log_in(server.url, home, User(), McpOAuthSettings(client_id="u", client_secret_env_var="SECRET"), {})

        async def refuse(address: str) -> str:
            return await answer_page(address, error="invalid_scope", error_description="not\nyours")

        with pytest.raises(LoginFailed, match=r"the login server refused it \(invalid_scope: not yours\)"):
            await log_in(server.url, home, User(refuse), McpOAuthSettings(client_id="us"))
    moved = {"location": "https://other.example/mcp"}
    with (
        stub(lambda asked: (307, moved, b"")) as url,
        pytest.raises(LoginFailed, match=r"redirects to https://other.example/mcp: use that address"),
    ):
        await log_in(url, home, User())


def test_m051_the_settings_are_read_and_checked() -> None:
    written = {"clientId": "us", "clientSecret": "s", "callbackPort": 8765, "scopes": ["a"]}
    servers = mcp_servers_of({"mcpServers": {"s": {"url": "https://x/mcp", "oauth": written}}})
    assert servers["s"].oauth == McpOAuthSettings(client_id="us", client_secret="s", callback_port=8765, scopes=("a",))
    for wrong, why in (
        ({"client_secret": "s"}, "a secret needs a client_id"),
        ({"client_id": "a", "client_secret": "s", "client_secret_env_var": "S"}, "a secret needs a client_id"),
        ({"callback_port": 70000}, "must be a port"),
        ({"client_metadata_url": "http://x/y"}, "must be an https:// address"),
        ({"client_metadata_url": "https://x"}, "must be an https:// address"),
        ({"clientid": "a"}, "unknown key mcp_servers.s.oauth.clientid; did you mean client_id"),
    ):
        with pytest.raises(UsageError, match=why):
            mcp_servers_of({"mcpServers": {"s": {"url": "https://x/mcp", "oauth": wrong}}})


async def test_the_secret_of_a_client_is_shown_in_the_way_that_the_server_takes(tmp_path: Path) -> None:
    server, user = DocumentReader(), User(answer_page)
    with stub(server.answer, gets=True) as server.url:
        await log_in(server.url, str(tmp_path), user, McpOAuthSettings(client_id="us", client_secret="s"))
    basic = f"Basic {base64.b64encode(b'us:s').decode()}"
    assert (server.tokens[0]["authorization"], server.tokens[0].get("client_secret")) == (basic, None)
