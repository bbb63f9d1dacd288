"""Convert `{"mcpServers": {...}}`, as written by `.mcp.json` files and other clients, into Ferrule's tables.

Keys beyond Ferrule's that clients share are FastMCP's: https://gofastmcp.com/clients/client#configuration-format.
"""

import re
from collections.abc import Mapping

import msgspec

from ferrule.config.check import check
from ferrule.config.layers import Layer
from ferrule.protocol.errors import UsageError
from ferrule.protocol.mcp_settings import McpServerSettings

_TRANSPORTS = frozenset({"stdio", "http", "streamable-http", "streamable_http"})
_UNUSED = frozenset({"type", "transport", "description", "icon", "keep_alive"})
"""Keys that are redundant, only for human readers, or always true."""
_OAUTH_KEYS = {
    "clientId": "client_id", "clientSecret": "client_secret", "callbackPort": "callback_port",
    "clientMetadataUrl": "client_metadata_url",
}  # fmt: skip
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def mcp_servers_of(config: Mapping[str, object], source: str = "mcp_config") -> dict[str, McpServerSettings]:
    """Return the servers of `{"mcpServers": {NAME: {...}}}`. Raises `UsageError` that names the key and what is
    right."""
    servers = check(source, {"mcp_servers": server_tables(config, source)}).mcp_servers
    complain(source, servers)
    return servers


def complain(source: str, servers: Mapping[str, McpServerSettings]) -> None:
    """Raise `UsageError` for the first server whose settings are inconsistent."""
    for name, settings in servers.items():
        if settings.problem is not None:
            raise UsageError(f"{source}: mcp_servers.{name} {settings.problem}")


def mcp_json_layer(source: str, data: bytes, env: Mapping[str, str] | None) -> Layer:
    """Read the layer of a `.mcp.json`, with `${NAME}` and `${NAME:-default}` filled in from `env`. Raises
    `UsageError`."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{source} is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f'{source} must hold an object: {{"mcpServers": {{...}}}}')
    tables = server_tables(document, source)
    return Layer(source, {"mcp_servers": tables if env is None else _filled(tables, env)})


def server_tables(config: Mapping[str, object], source: str) -> dict[str, object]:
    """Return the servers' tables under Ferrule's names."""
    servers = config.get("mcpServers")
    if not isinstance(servers, Mapping):
        raise UsageError(f'{source}: mcpServers must be an object: {{"mcpServers": {{NAME: {{"command": ...}}}}}}')
    return {str(name): _table(server, f"{source}: mcpServers.{name}") for name, server in servers.items()}


def _table(server: object, where: str) -> object:
    if not isinstance(server, Mapping):
        return server
    for key in ("type", "transport"):
        kind = server.get(key, "stdio")
        if kind not in _TRANSPORTS:
            raise UsageError(f"{where}.{key} must be stdio or http (streamable HTTP), not {kind!r}")
    table = {key: value for key, value in server.items() if key not in _UNUSED}
    oauth = table.get("oauth")
    if isinstance(oauth, Mapping):
        table["oauth"] = {_OAUTH_KEYS.get(key, key): value for key, value in oauth.items()}
    timeout, auth = table.pop("timeout", None), table.pop("auth", None)
    if timeout is not None:
        if not isinstance(timeout, int | float):
            raise UsageError(f"{where}.timeout must be a number of milliseconds, not {timeout!r}")
        table.setdefault("tool_timeout", timeout / 1000)
    headers = table.get("headers", {})
    if auth is not None and not isinstance(auth, str):
        raise UsageError(f'{where}.auth must be "oauth" or a bearer token')
    if auth is not None and auth != "oauth" and isinstance(headers, Mapping):  # servers say themselves: log in
        table["headers"] = {"Authorization": f"Bearer {auth}", **headers}
    return table


def _filled(value: object, env: Mapping[str, str]) -> object:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: env.get(found[1]) or found[2] or "", value)
    if isinstance(value, Mapping):
        return {key: _filled(entry, env) for key, entry in value.items()}
    return [_filled(entry, env) for entry in value] if isinstance(value, list) else value
