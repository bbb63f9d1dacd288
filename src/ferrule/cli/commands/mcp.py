"""`ferrule mcp`: list and change MCP servers, and log in to those that require it."""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ferrule.cli.exit_codes import DONE, FAILED
from ferrule.cli.options import Parser, add_config_flag, add_directory_flag, configuration, split_command
from ferrule.cli.running import run_interruptibly
from ferrule.config import CONFIG_FILE, ferrule_home
from ferrule.lookup import Places, safe_search
from ferrule.protocol.errors import UsageError
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.settings import Settings
from ferrule.rendering.safe import safe
from ferrule.sandbox.policy import command_places

if TYPE_CHECKING:
    from ferrule.mcp.state import ServerState

USAGE = """ferrule mcp add NAME [OPTIONS] -- COMMAND [ARGUMENT]...
       ferrule mcp add NAME --url URL [OPTIONS]
       ferrule mcp list [--configured] [--json]
       ferrule mcp get NAME [--configured] [--json]
       ferrule mcp remove NAME
       ferrule mcp login NAME [--no-browser]
       ferrule mcp logout NAME"""

_BROWSE = "import sys, webbrowser; webbrowser.open(sys.argv[1])"


def main(arguments: list[str]) -> int:
    """Change or show the configured servers. Return the exit code."""
    commands = {"add": _add, "list": _list, "get": _get, "remove": _remove, "login": _login, "logout": _logout}
    parser = Parser("mcp", "Use MCP servers: their tools become the model's.")
    parser.usage = USAGE
    if not arguments or arguments[0] not in commands:
        if arguments[:1] in (["-h"], ["--help"]):
            parser.parse_args(["--help"])
        raise UsageError(f"`ferrule mcp` knows {', '.join(commands)} (see ferrule mcp --help)")
    return commands[arguments[0]](arguments[1:])


def _add(arguments: list[str]) -> int:
    parser = Parser("mcp add", "Add a server to your configuration.")
    parser.usage = "\n       ".join(USAGE.splitlines()[:2]).replace("       ferrule", "ferrule")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--url", metavar="URL", help="a remote server (streamable HTTP)")
    parser.add_argument("--bearer-token-env-var", metavar="VAR", help="the variable that holds its bearer token")
    parser.add_argument("--client-id", metavar="ID", help="a client that is registered at its login server")
    parser.add_argument("--client-secret-env-var", metavar="VAR", help="the variable that holds the client's secret")
    parser.add_argument("--client-metadata-url", metavar="URL", help="the client's metadata document")
    parser.add_argument("--callback-port", metavar="PORT", type=int, help="as in http://127.0.0.1:PORT/callback")
    parser.add_argument("--scope", metavar="SCOPE", action="append", default=[], help="a scope to request at login")
    parser.add_argument("--header", metavar="NAME=VALUE", action="append", default=[], help="a header for it")
    parser.add_argument("--env", metavar="NAME=VALUE", action="append", default=[], help="a variable for the command")
    parser.add_argument("--env-var", metavar="NAME", action="append", default=[], help="a variable to pass on")
    parser.add_argument("--cwd", metavar="DIR", help="where the command runs")
    parser.add_argument("--approval", choices=("auto", "prompt", "allow"), help="which of its tools need approval")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="the command and its arguments, after --")
    own, command = split_command(arguments)
    options = parser.parse_args(own)
    command = [*options.command, *command]
    table = {
        "command": command[0] if command else None,
        "args": command[1:],
        "url": options.url,
        "env": _pairs(options.env, "--env"),
        "env_vars": options.env_var,
        "cwd": options.cwd,
        "headers": _pairs(options.header, "--header"),
        "bearer_token_env_var": options.bearer_token_env_var,
        "oauth": _given(
            client_id=options.client_id,
            client_secret_env_var=options.client_secret_env_var,
            client_metadata_url=options.client_metadata_url,
            callback_port=options.callback_port,
            scopes=options.scope,
        ),
        "approval": options.approval,
    }
    given = _given(**table)
    problem = msgspec.convert(given, McpServerSettings).problem
    if problem is not None:
        raise UsageError(f"the server {options.name} {problem}")
    from ferrule.config.edit import put_server

    path = Path(ferrule_home(), CONFIG_FILE)
    put_server(path, options.name, given)
    print(f"added {options.name} to {path}")
    return DONE


def _given(**values: object) -> dict[str, object]:
    return {key: value for key, value in values.items() if value}


def _pairs(given: list[str], flag: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    wrong = next((text for text, (name, sign, _) in zip(given, pairs, strict=True) if not (name and sign)), None)
    if wrong is not None:
        raise UsageError(f"{flag}: {wrong!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _list(arguments: list[str]) -> int:
    parser = Parser("mcp list", "Show the servers that a session here would use, and how each is doing.")
    _add_configured_flag(parser)
    settings, options = _configured(parser, arguments)
    servers = settings.mcp_servers
    if not servers and not options.json:
        print("no MCP servers are configured; `ferrule mcp add` adds one")
    states = {} if options.configured else run_interruptibly(_states(servers, settings))
    if options.json:
        _print_json([_shown(name, server, states.get(name)) for name, server in servers.items()])
        return DONE
    width = max(map(len, servers), default=0)
    for name, server in servers.items():
        state = "disabled" if not server.enabled else states[name].text if name in states else ""
        print(safe(f"{name:<{width}}  {_where(server)}{f': {state}' if state else ''}"))
    return DONE


def _add_configured_flag(parser: Parser) -> None:
    parser.add_argument("--configured", action="store_true", help="only the configuration: start and contact no server")


async def _states(servers: Mapping[str, McpServerSettings], settings: Settings) -> dict[str, "ServerState"]:
    """Return the states of the enabled servers, checked concurrently."""
    from ferrule.mcp.client import MCPClient
    from ferrule.mcp.state import state_of

    enabled = {name: server for name, server in servers.items() if server.enabled}
    cwd, home = settings.cwd, settings.home
    places = command_places(settings.sandbox_policy, cwd, home)
    clients = [MCPClient(name, server, cwd=cwd, home=home, places=places) for name, server in enabled.items()]
    return dict(zip(enabled, await asyncio.gather(*map(state_of, clients)), strict=True))


def _get(arguments: list[str]) -> int:
    parser = Parser("mcp get", "Show one server.")
    parser.add_argument("name", metavar="NAME")
    _add_configured_flag(parser)
    settings, options = _configured(parser, arguments)
    server = _server(settings, options.name)
    asked = {} if options.configured else {options.name: server}
    shown = _shown(options.name, server, run_interruptibly(_states(asked, settings)).get(options.name))
    if options.json:
        _print_json(shown)
        return DONE
    for key, value in shown.items():
        print(safe(f"{key}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"))
    return DONE


def _remove(arguments: list[str]) -> int:
    parser = Parser("mcp remove", "Take a server out of your configuration, with its login.")
    parser.add_argument("name", metavar="NAME")
    options = parser.parse_args(arguments)
    from ferrule.config.edit import remove_server

    path = Path(ferrule_home(), CONFIG_FILE)
    url = _url_of(options.name)
    if not remove_server(path, options.name):
        raise UsageError(f"{path} has no server named {options.name!r}")
    if url is not None:
        _forget_login(url)
    print(f"removed {options.name} from {path}")
    return DONE


def _url_of(name: str) -> str | None:
    settings, _ = _configured(Parser("mcp remove", ""), [])
    server = settings.mcp_servers.get(name)
    return None if server is None else server.url


def _forget_login(url: str) -> bool:
    from ferrule.mcp.logins import LoginStore

    return LoginStore(ferrule_home(), url).remove()


def _logout(arguments: list[str]) -> int:
    parser = Parser("mcp logout", "Forget the login at a remote server, with the scopes that it asked for.")
    parser.add_argument("name", metavar="NAME")
    settings, options = _configured(parser, arguments)
    server = _server(settings, options.name)
    if server.url is None or not _forget_login(server.url):
        print(f"there is no login at {options.name}", file=sys.stderr)
        return FAILED
    print(f"forgot the login at {options.name}")
    return DONE


def _login(arguments: list[str]) -> int:
    parser = Parser("mcp login", "Log in at a remote server.")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--no-browser", action="store_true", help="only print the address to open")
    settings, options = _configured(parser, arguments)
    server = _server(settings, options.name)
    if server.url is None:
        raise UsageError(f"{options.name} is a local server: it needs no login")
    from ferrule.mcp.extra import sdk_needed

    with sdk_needed():
        from ferrule.mcp.login import log_in

    def show(address: str) -> None:
        print(f"Open this address to log in:\n{safe(address)}", flush=True)
        if not options.no_browser:
            open_browser(address, command_places(settings.sandbox_policy, settings.cwd, settings.home))

    login = run_interruptibly(log_in(server.url, settings.home, show, server.oauth, os.environ))
    if login is None:
        print(f"{options.name} wants no login", file=sys.stderr)
        return FAILED
    without = f", but not granted: {login.wanted}" if login.wanted else ""
    print(safe(f"logged in at {options.name}{without}"))
    return DONE


def open_browser(address: str, places: Places) -> None:
    """Open the browser in a separate process, looked up in PATH but never where commands can write."""
    env = {**os.environ, "PATH": safe_search(os.environ.get("PATH"), places)}
    subprocess.run([sys.executable, "-I", "-c", _BROWSE, address], env=env, check=False)


def _configured(parser: Parser, arguments: list[str]) -> tuple[Settings, argparse.Namespace]:
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_directory_flag(parser)
    add_config_flag(parser)
    options = parser.parse_args(arguments)
    return configuration(options).settings, options


def _server(settings: Settings, name: str) -> McpServerSettings:
    server = settings.mcp_servers.get(name)
    if server is None:
        known = ", ".join(settings.mcp_servers)
        advice = f"there are: {known}" if known else "none is configured, and `ferrule mcp add` adds one"
        raise UsageError(f"there is no MCP server named {name!r}; {advice}")
    return server


def _shown(name: str, server: McpServerSettings, state: "ServerState | None") -> dict[str, object]:
    """Return a server's settings and state, without values that may be secrets."""
    values: dict[str, object] = msgspec.to_builtins(server)
    for key in ("env", "headers", "http_headers"):
        secret = values.get(key)
        if isinstance(secret, dict):
            values[key] = dict.fromkeys(secret, "*****")
    oauth = values.get("oauth")
    if isinstance(oauth, dict) and "client_secret" in oauth:
        oauth["client_secret"] = "*****"
    found = _given(status=state.status, state=state.text, tools=state.tools, left_out=state.left_out) if state else {}
    return {"name": name, **values, **found}


def _where(server: McpServerSettings) -> str:
    return server.url or " ".join([server.command or "", *server.args])


def _print_json(value: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + os.linesep.encode())
