"""`ferrule serve check`: check any server of the Responses API."""

import sys
from collections import Counter
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import msgspec

from ferrule.cli.exit_codes import DONE, FAILED
from ferrule.cli.options import Parser
from ferrule.protocol.errors import UsageError

if TYPE_CHECKING:
    from ferrule.conformance.run import Result

DESCRIPTION = """\
Check a server of the Responses API, any one: ids, order and completeness of what it sends, state, background,
WebSocket, compaction, tools, errors. Each check takes a request or a few; a real model answers about a hundred, all
short.

For a server that has no model yet, `--scripted PORT` starts a scripted model on this port: start the server with
http://127.0.0.1:PORT/v1 as its upstream. WebSocket checks need the extra `check`."""


def main(arguments: list[str]) -> int:
    """Run the checks; return 1 if one failed."""
    from ferrule.conformance.run import chosen, results
    from ferrule.conformance.scripted import scripted_model
    from ferrule.conformance.server import WAIT_S, Server

    parser = Parser("serve check", DESCRIPTION)
    parser.add_argument("--base-url", required=True, metavar="URL", help="the server, with /v1")
    parser.add_argument("--api-key", default="unused", metavar="KEY", help="the key that it needs, if it needs one")
    parser.add_argument("-m", "--model", default="m", metavar="NAME", help="the model to ask for")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="checks to run: a group, or a name with * and ?")
    parser.add_argument("--scripted", type=int, metavar="PORT", help="be the server's upstream on this port")
    parser.add_argument("--mcp-url", metavar="URL", help="an MCP server that it reaches, with a tool echo {text}")
    parser.add_argument("--timeout", type=float, default=WAIT_S, metavar="S", help="seconds for one answer (120)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    checks = chosen(options.only)
    if not checks:
        raise UsageError(f"no check is called {options.only!r}; `--only '*'` runs all")
    found: list[Result] = []
    with ExitStack() as stack:
        if options.scripted is not None:
            stack.enter_context(scripted_model(options.scripted))
        server = Server(
            options.base_url,
            key=options.api_key,
            model=options.model,
            wait_s=options.timeout,
            mcp_url=options.mcp_url,
        )
        stack.enter_context(closing(server))
        for result in results(server, checks):
            found.append(result)
            if not options.json:
                _tell(result)
    counts = _counted(found)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.encode({**counts, "checks": found}) + b"\n")
    else:
        print(", ".join(f"{count} {status}" for status, count in counts.items()))
    return FAILED if counts["failed"] else DONE


def _tell(result: "Result") -> None:
    why = f": {result.why}" if result.why else ""
    print(f"{result.status:8}{result.check}{why}", flush=True)


def _counted(found: "list[Result]") -> dict[str, int]:
    counts = Counter(str(result.status) for result in found)
    return {status: counts[status] for status in ("passed", "failed", "skipped")}
