"""`ferrule mcp`: which MCP servers there are, and the login at those that want one."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from ferrule.cli.exit_codes import DONE, FAILED
from ferrule.cli.options import Parser, add_config_flag, add_directory_flag, configuration, split_command
from ferrule.cli.running import run_interruptibly
from ferrule.cli.terminal import safe
from ferrule.config import CONFIG_FILE, ferrule_home
from ferrule.lookup import Places, safe_search
from ferrule.protocol.errors import UsageError
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.settings import Settings
from ferrule.sandbox.policy import command_places

USAGE = """ferrule mcp add NAME [OPTIONS] -- COMMAND [ARGUMENT]...
       ferrule mcp add NAME --url URL [OPTIONS]
       ferrule mcp list [--json]
       ferrule mcp get NAME [--json]
       ferrule mcp remove NAME
       ferrule mcp login NAME [--no-browser]"""

_BROWSE = "import sys, webbrowser; webbrowser.open(sys.argv[1])"


def main(arguments: list[str]) -> int:
    """Change or show the configured servers. Returns the exit code."""
    commands = {"add": _add, "list": _list, "get": _get, "remove": _remove, "login": _login}
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
        "approval": options.approval,
    }
    given = {key: value for key, value in table.items() if value}
    problem = msgspec.convert(given, McpServerSettings).problem
    if problem is not None:
        raise UsageError(f"the server {options.name} {problem}")
    from ferrule.config.edit import put_server

    path = Path(ferrule_home(), CONFIG_FILE)
    put_server(path, options.name, given)
    print(f"added {options.name} to {path}")
    return DONE


def _pairs(given: list[str], flag: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    wrong = next((text for text, (name, sign, _) in zip(given, pairs, strict=True) if not (name and sign)), None)
    if wrong is not None:
        raise UsageError(f"{flag}: {wrong!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _list(arguments: list[str]) -> int:
    parser = Parser("mcp list", "Show the servers that a session here would use.")
    settings, options = _configured(parser, arguments)
    if options.json:
        _print_json([_shown(name, server) for name, server in settings.mcp_servers.items()])
        return DONE
    if not settings.mcp_servers:
        print("no MCP servers are configured; `ferrule mcp add` adds one")
    width = max(map(len, settings.mcp_servers), default=0)
    for name, server in settings.mcp_servers.items():
        print(safe(f"{name:<{width}}  {_where(server)}{'' if server.enabled else '  (disabled)'}"))
    return DONE


def _get(arguments: list[str]) -> int:
    parser = Parser("mcp get", "Show one server.")
    parser.add_argument("name", metavar="NAME")
    settings, options = _configured(parser, arguments)
    server = _server(settings, options.name)
    shown = _shown(options.name, server)
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
        from ferrule.mcp.logins import LoginStore

        LoginStore(ferrule_home(), url).remove()
    print(f"removed {options.name} from {path}")
    return DONE


def _url_of(name: str) -> str | None:
    settings, _ = _configured(Parser("mcp remove", ""), [])
    server = settings.mcp_servers.get(name)
    return None if server is None else server.url


def _login(arguments: list[str]) -> int:
    parser = Parser("mcp login", "Log in at a remote server.")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--no-browser", action="store_true", help="only print the address to open")
    settings, options = _configured(parser, arguments)
    server = _server(settings, options.name)
    if server.url is None:
        raise UsageError(f"{options.name} is a local server: there is nobody to log in at")
    from ferrule.mcp.extra import sdk_needed

    with sdk_needed():
        from ferrule.mcp.login import log_in

    def show(address: str) -> None:
        print(f"Open this address to log in:\n{safe(address)}", flush=True)
        if not options.no_browser:
            open_browser(address, command_places(settings.sandbox_policy, settings.cwd, settings.home))

    if not run_interruptibly(log_in(server.url, settings.home, show)):
        print(f"{options.name} wants no login", file=sys.stderr)
        return FAILED
    print(f"logged in at {options.name}")
    return DONE


def open_browser(address: str, places: Places) -> None:
    """In a process of its own: what opens browsers is looked for in PATH, and nowhere that commands can write."""
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


def _shown(name: str, server: McpServerSettings) -> dict[str, object]:
    """The settings that were given; values that may be secrets are not shown."""
    values: dict[str, object] = msgspec.to_builtins(server)
    for key in ("env", "headers", "http_headers"):
        secret = values.get(key)
        if isinstance(secret, dict):
            values[key] = dict.fromkeys(secret, "*****")
    return {"name": name, **values}


def _where(server: McpServerSettings) -> str:
    return server.url or " ".join([server.command or "", *server.args])


def _print_json(value: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + os.linesep.encode())
