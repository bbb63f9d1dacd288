"""How to reach an MCP server and what its tools may do: `[mcp_servers.NAME]`, `.mcp.json`, `mcp_config`."""

from typing import Literal
from urllib.parse import urlsplit

import msgspec

STARTUP_TIMEOUT = 60.0
"""Seconds a server has to start: on first start `npx` and `uvx` download; nobody waits for it."""
TOOL_TIMEOUT = 120.0
"""Seconds until a call must end or report progress again."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")

McpApproval = Literal["auto", "prompt", "allow"]


class McpOAuthSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of `ferrule mcp login` for servers whose login needs them."""

    client_id: str | None = None
    """A client registered at the login server, for servers without dynamic registration."""
    client_secret: str | None = None
    client_secret_env_var: str | None = None
    """The variable that holds the client's secret."""
    token_endpoint_auth_method: Literal["client_secret_basic", "client_secret_post"] | None = None
    """How the client authenticates. None: the basic method, unless the login server accepts only the other."""
    client_metadata_url: str | None = None
    """The URL of the client's metadata document, which is its id for login servers that read such documents."""
    callback_port: int | None = None
    """The port of `http://127.0.0.1:PORT/callback`, for clients registered with that address."""
    scopes: tuple[str, ...] = ()
    """Scopes to request beside those that the server names."""

    @property
    def problem(self) -> str | None:
        """The problem, if any, worded like `McpServerSettings.problem`."""
        secrets = (self.client_secret, self.client_secret_env_var)
        if (any(secrets) and self.client_id is None) or all(secrets):
            return "oauth: a secret needs a client_id, and stands in client_secret or client_secret_env_var"
        if self.callback_port is not None and not 0 < self.callback_port < 65536:
            return "oauth.callback_port must be a port, from 1 to 65535"
        place = urlsplit(self.client_metadata_url or "https://none/x")
        if place.scheme != "https" or place.path in ("", "/"):
            return "oauth.client_metadata_url must be an https:// address with a path"
        return None


class McpServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One server: a `command` that speaks over its standard streams, or the `url` of a streamable HTTP one.

    Timeouts are in seconds. `enabled_tools` None means all; both lists use the server's tool names.
    """

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Variables of the server, beside the few that every server gets."""
    env_vars: tuple[str, ...] = ()
    """Names of the agent's own variables to pass on."""
    cwd: str | None = None
    """Its working directory: absolute, `~`, or relative to the session's directory, which is the default."""
    url: str | None = None
    headers: dict[str, str] = {}
    http_headers: dict[str, str] = {}
    """Same as `headers`."""
    env_http_headers: dict[str, str] = {}
    """Maps a header to the variable that holds its value."""
    bearer_token_env_var: str | None = None
    """The variable that holds the bearer token."""
    oauth: McpOAuthSettings | None = None
    startup_timeout: float = STARTUP_TIMEOUT
    tool_timeout: float = TOOL_TIMEOUT
    enabled: bool = True
    enabled_tools: tuple[str, ...] | None = None
    disabled_tools: tuple[str, ...] = ()
    required: bool = False
    """The session does not start without this server."""
    supports_parallel_tool_calls: bool = False
    approval: McpApproval = "auto"
    """Which calls need approval: those not annotated as read-only (`auto`), all (`prompt`), none (`allow`)."""
    roots: tuple[str, ...] | None = None
    """Folders reported to the server: absolute, `~`, or relative to the session's directory. None: that directory for
    a local server, nothing for a remote one."""

    def wants(self, tool: str) -> bool:
        """Return whether the tool with this raw name is used."""
        return (self.enabled_tools is None or tool in self.enabled_tools) and tool not in self.disabled_tools

    @property
    def is_local(self) -> bool:
        """Whether the server runs on this machine."""
        return self.url is None or urlsplit(self.url).hostname in LOOPBACK

    @property
    def problem(self) -> str | None:
        """A sentence that says what is wrong with the settings as a whole and what would be right; None if nothing
        is."""
        if (self.command is None) == (self.url is None):
            return "needs either a command (a local server) or a url (a remote one)"
        if self.url is not None and not self.url.lower().startswith(("http://", "https://")):
            return f"url must begin with http:// or https://, not {self.url!r}"
        if self.command is not None and not self.command.strip():
            return "command must not be empty"
        if self.startup_timeout <= 0 or self.tool_timeout <= 0:
            return "startup_timeout and tool_timeout must be seconds above zero"
        return None if self.oauth is None else self.oauth.problem
