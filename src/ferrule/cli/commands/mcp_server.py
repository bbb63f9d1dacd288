"""`ferrule mcp-server`: the tools, or an agent, for any MCP client."""

import argparse
import asyncio
import sys
from functools import partial

from ferrule.cli.exit_codes import DONE
from ferrule.cli.options import (
    Parser,
    add_config_flag,
    add_model_flags,
    add_profile_flag,
    add_rights_flags,
    configuration,
)
from ferrule.cli.running import run_interruptibly, run_until_signal
from ferrule.cli.tokens import client_token
from ferrule.mcp.extra import sdk_needed
from ferrule.protocol.errors import UsageError
from ferrule.sandbox.environment import refuse_nesting
from ferrule.serving import Bind

DESCRIPTION = """\
Serve the tools to any MCP client, over standard input and output or, with --http, over streamable HTTP on this machine.
They are those of the model's profile, of --profile, or the --tools that you name, in the sandbox and under the rules
that hold for `ferrule exec`. What needs approval is asked in the client. Needs the extra `mcp`.

With --agent there are two tools: `ferrule` does a whole task with your model, `ferrule-reply` goes on with it."""

DEFAULT_BIND = "127.0.0.1:8788"
BY_HAND = "ferrule: an MCP client starts this command; it waits for its messages on standard input (Ctrl-D ends it)"


def main(arguments: list[str]) -> int:
    """Serve until the client is gone, or a signal comes."""
    options = _parser().parse_args(arguments)
    if options.agent and options.tools is not None:
        raise UsageError("--tools names tools for the client; with --agent the agent has those of its profile")
    settings = configuration(options).settings
    refuse_nesting(settings)
    token, bind = _token(options), Bind.read(options.bind or DEFAULT_BIND)
    if token is None and sys.stdin.isatty():
        print(BY_HAND, file=sys.stderr)
    with sdk_needed():
        from ferrule.doors.mcp_server import run
    run.check_profile(settings)
    opener = run.agent_opener() if options.agent else run.tools_opener(_names(options.tools))
    about = run.instructions(settings, agent=options.agent)
    if token is None:
        run_interruptibly(run.serve_pipes(settings, opener, about))
    else:
        asyncio.run(run_until_signal(partial(run.serve_network, settings, opener, about, bind, token, _tell)))
    return DONE


def _parser() -> Parser:
    parser = Parser("mcp-server", DESCRIPTION)
    add_model_flags(parser)
    add_profile_flag(parser)
    parser.add_argument("--tools", metavar="NAME,NAME", help="these tools alone; a name may be a pattern (read_*)")
    parser.add_argument("--agent", action="store_true", help="the tools `ferrule` and `ferrule-reply`: an agent")
    add_rights_flags(parser, "on-request is the default; the client's user is asked")
    parser.add_argument("--http", action="store_true", help="serve streamable HTTP")
    parser.add_argument(
        "--bind", metavar="HOST:PORT", help=f"where to listen ({DEFAULT_BIND}); port 0 takes a free one"
    )
    parser.add_argument("--token-env", metavar="NAME", help="the environment variable that holds the clients' token")
    add_config_flag(parser)
    return parser


def _names(given: str | None) -> list[str] | None:
    if given is None:
        return None
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise UsageError("--tools: name the tools, as in --tools exec_command,write_stdin")
    return names


def _token(options: argparse.Namespace) -> str | None:
    """Return the token of clients over HTTP; None without --http."""
    if not options.http:
        if options.bind or options.token_env:
            raise UsageError("--bind and --token-env belong to --http")
        return None
    return client_token("--http", options.token_env)


def _tell(url: str) -> None:
    print(url, flush=True)
