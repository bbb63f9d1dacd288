"""`ferrule app-server`: threads and turns over JSON-RPC, for clients of the Codex app-server."""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from ferrule.cli.exit_codes import DONE
from ferrule.cli.gateway_state import needs_extra
from ferrule.cli.options import (
    Parser,
    add_config_flag,
    add_model_flags,
    add_profile_flag,
    add_rights_flags,
    configuration,
    sources_of,
)
from ferrule.cli.running import allow_open_files, run_interruptibly, run_until_signal
from ferrule.cli.tokens import client_token
from ferrule.config import Configuration, Layer, load
from ferrule.protocol.errors import UsageError
from ferrule.sandbox.environment import refuse_nesting
from ferrule.serving import Bind

DESCRIPTION = """\
Serve threads and turns over JSON-RPC to a client that was written for `codex app-server`: on standard input and output
or, with --websocket, over WebSockets on this machine (extra `gateway`). The flags and config.toml say what a thread
works with where its client does not. What needs approval is asked in the client."""
DEFAULT_BIND = "127.0.0.1:8789"
BY_HAND = "ferrule: a client starts this command; it waits for its messages on standard input (Ctrl-D ends it)"


def main(arguments: list[str]) -> int:
    """Serve until the client is gone, or a signal comes; or write the schema."""
    options = _parser().parse_args(arguments)
    if options.schema is not None:
        return _write_schema(options.schema)
    settings = configuration(options).settings
    refuse_nesting(settings)
    token, bind = _token(options), Bind.read(options.bind or DEFAULT_BIND)
    configure = partial(_configure, options)
    allow_open_files()
    if token is None:
        if sys.stdin.isatty():
            print(BY_HAND, file=sys.stderr)
        from ferrule.doors.app_server.run import serve_pipes

        run_interruptibly(serve_pipes(configure))
        return DONE
    with needs_extra("app-server --websocket"):
        from ferrule.doors.app_server.network import serve_network
    asyncio.run(run_until_signal(partial(serve_network, configure, bind, token, _tell)))
    return DONE


def _parser() -> Parser:
    parser = Parser("app-server", DESCRIPTION)
    add_model_flags(parser)
    add_profile_flag(parser)
    add_rights_flags(parser, "on-request is the default; the client's user is asked")
    parser.add_argument("--websocket", action="store_true", help="serve WebSockets")
    parser.add_argument(
        "--bind", metavar="HOST:PORT", help=f"where to listen ({DEFAULT_BIND}); port 0 takes a free one"
    )
    parser.add_argument("--token-env", metavar="NAME", help="the environment variable that holds the clients' token")
    parser.add_argument(
        "--schema",
        metavar="FILE",
        help="write the JSON Schema of all messages to FILE (-: standard output), and exit",
    )
    add_config_flag(parser)
    return parser


def _configure(options: argparse.Namespace, cwd: str | None, keys: Mapping[str, object]) -> Configuration:
    """Load the configuration in a directory; what the client gives is above the flags."""
    sources = sources_of(options, cwd=cwd)
    return load(msgspec.structs.replace(sources, flags=(*sources.flags, Layer("the client", dict(keys)))))


def _token(options: argparse.Namespace) -> str | None:
    """Return the token of clients over WebSockets; None without --websocket."""
    if not options.websocket:
        if options.bind or options.token_env:
            raise UsageError("--bind and --token-env belong to --websocket")
        return None
    return client_token("--websocket", options.token_env)


def _write_schema(path: str) -> int:
    from ferrule.doors.app_server.schema import schema

    text = msgspec.json.format(msgspec.json.encode(schema())) + b"\n"
    if path == "-":
        sys.stdout.write(text.decode())
        return DONE
    try:
        Path(path).write_bytes(text)
    except OSError as error:
        raise UsageError(f"--schema: {path} cannot be written: {error.strerror}") from error
    return DONE


def _tell(url: str) -> None:
    print(url, flush=True)
