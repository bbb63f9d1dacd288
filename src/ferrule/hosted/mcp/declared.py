"""A remote MCP server as a client declares it, and what its filters say of a tool. Pure."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from ferrule.hosted.tool import ToolRefused
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.redaction import HIDDEN, any_of, hidden, secrets_in_headers, secrets_in_url

PORTS = {"http": 80, "https": 443}
NO_CONNECTORS = (
    "connectors are services of OpenAI's own, which are not reached from here; name an MCP server by its server_url"
)
NO_TUNNELS = "tunnels lead through OpenAI's own network, which is not reached from here; name the server_url"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]*")
_GAP = re.compile(r"[\x00-\x20\x7f]")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_OURS = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "accept", "accept-encoding",
     "mcp-session-id", "mcp-protocol-version", "te", "upgrade", "trailer", "expect"}
)  # fmt: skip
"""Headers that belong to the connection and to the protocol."""


class ToolFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tools by their names, and by whether their server calls them read-only."""

    tool_names: tuple[str, ...] | None = None
    read_only: bool | None = None

    def takes(self, name: str, *, read_only: bool) -> bool:
        """Return whether a tool passes. A filter that says nothing takes all."""
        named = self.tool_names is None or name in self.tool_names
        return named and self.read_only in (None, read_only)


class Approval(msgspec.Struct, frozen=True):
    """Tools whose calls the client allows one by one, and tools whose calls just run."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None


class Bearer(msgspec.Struct, frozen=True, tag="bearer"):
    """A token for the server."""

    token: str


class RemoteServer(msgspec.Struct, frozen=True):
    """The tool `mcp` of the Responses API."""

    server_label: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    server_url: str | None = None
    connector_id: str | None = None
    tunnel_id: str | None = None
    server_description: str | None = None
    headers: dict[str, str] | None = None
    authorization: str | Bearer | None = None
    allowed_tools: tuple[str, ...] | ToolFilter | None = None
    require_approval: Literal["always", "never"] | Approval | None = None
    defer_loading: bool | None = None

    def allows(self, name: str, *, read_only: bool) -> bool:
        """Return whether the model may know a tool."""
        allowed = self.allowed_tools
        if isinstance(allowed, ToolFilter):
            return allowed.takes(name, read_only=read_only)
        return allowed is None or name in allowed

    def asks_for(self, name: str, *, read_only: bool) -> bool:
        """Return whether the client wants to allow each call of a tool: yes, unless it says that it does not."""
        wanted = self.require_approval
        if not isinstance(wanted, Approval):
            return wanted != "never"
        if wanted.always is not None and wanted.always.takes(name, read_only=read_only):
            return True
        free = wanted.never
        return free is None or free == ToolFilter() or not free.takes(name, read_only=read_only)

    @property
    def sent_headers(self) -> dict[str, str]:
        """The headers of each request, with the token."""
        given = self.authorization
        token = given.token if isinstance(given, Bearer) else given
        return (self.headers or {}) | ({} if token is None else {"Authorization": f"Bearer {_bare(token)}"})

    @property
    def secrets(self) -> tuple[str, ...]:
        """What nobody may read of it but the server."""
        return (*secrets_in_headers(self.sent_headers.values()), *secrets_in_url(self.server_url or ""))

    def cleared(self, sent: JsonObject, kept: str = "") -> JsonObject:
        """Return what the server sent without the client's secrets. Headers and queries also choose tools by their
        names: in keys, and in the field `kept`, which have to stay what they are, only the token is a secret."""
        token = [value for name, value in self.sent_headers.items() if name.lower() == "authorization"]
        without_token = hidden(msgspec.json.encode(sent).decode(), secrets_in_headers(token))
        fields: JsonObject = msgspec.json.decode(without_token)
        pattern = any_of(self.secrets)
        if pattern is None:
            return sent
        return {key: value if key == kept else _without(value, pattern) for key, value in fields.items()}


def _without(value: JsonValue, pattern: re.Pattern[str]) -> JsonValue:
    match value:
        case str():
            return pattern.sub(HIDDEN, value)
        case list():
            return [_without(entry, pattern) for entry in value]
        case dict():
            return {key: _without(entry, pattern) for key, entry in value.items()}
    return value


def read_server(tool: JsonObject) -> RemoteServer:
    """Read a declared tool, whose fields have been checked."""
    return msgspec.convert(tool, RemoteServer)


def checked_place(server: RemoteServer) -> tuple[str, int]:
    """Return the host and the port of a server. Raises `ToolRefused` for one that cannot be reached, or not so."""
    if server.connector_id is not None:
        raise ToolRefused(NO_CONNECTORS, "connector_id", status=422)
    if server.tunnel_id is not None:
        raise ToolRefused(NO_TUNNELS, "tunnel_id", status=422)
    if server.server_url is None:
        raise ToolRefused("name the MCP server by its server_url", "server_url")
    for param, problem in _problems(server):
        raise ToolRefused(problem, param)
    return _place(server.server_url)


def _place(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme)
    except ValueError as error:
        raise ToolRefused(f"it is not a URL: {error}", "server_url") from error
    if problem := _fault(url, parts):
        raise ToolRefused(problem, "server_url")
    assert parts.hostname is not None and port is not None
    return parts.hostname, port


def _fault(url: str, parts: SplitResult) -> str | None:
    if parts.scheme not in PORTS or not parts.hostname:
        return "a URL begins with https:// or http:// and the name of a host"
    if parts.username is not None or parts.password is not None:
        return "a user name or a password in a URL is not sent; give it in authorization or headers"
    if parts.fragment or _GAP.search(url):
        return "it has a fragment, spaces or control characters"
    return None


def _problems(server: RemoteServer) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the headers and the token, without saying what they hold."""
    for name, value in (server.headers or {}).items():
        if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value):
            yield "headers", "the name or the value of a header has characters that it cannot have"
        elif name.lower() in _OURS:
            yield "headers", f"{name.lower()} belongs to the connection, and cannot be set"
    given = server.authorization
    if given is None:
        return
    if any(name.lower() == "authorization" for name in server.headers or {}):
        yield "authorization", "give authorization or the header of this name, not both"
    if not _TOKEN.fullmatch(_bare(given.token if isinstance(given, Bearer) else given)):
        yield "authorization", "a token is printable ASCII without spaces"


def _bare(token: str) -> str:
    """Return a token without the word `Bearer`, with which some write it."""
    return token[len("bearer ") :].strip() if token.lower().startswith("bearer ") else token
