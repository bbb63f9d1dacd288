"""`ferrule tools`: the tools that `ferrule exec` sends with the same flags. No connection is opened."""

import asyncio
import shutil
import sys

import msgspec

from ferrule.cli.options import (
    NOBODY_TO_ASK,
    Parser,
    add_config_flag,
    add_model_flags,
    add_profile_flag,
    add_rights_flags,
    configuration,
)
from ferrule.model.adapt import WireTool
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.settings import Settings
from ferrule.rendering.safe import safe
from ferrule.session.offline import open_offline

NATIVE = "Known to the model by its kind"


def main(arguments: list[str]) -> int:
    """Print the tools; with --json, the request's array byte for byte."""
    parser = Parser("tools", "Print the tools that a model is sent. No connection is opened.")
    add_model_flags(parser)
    add_profile_flag(parser)
    add_rights_flags(parser)
    parser.add_argument("--json", action="store_true", help="the request's `tools` array, byte for byte")
    add_config_flag(parser)
    options = parser.parse_args(arguments)
    tools = asyncio.run(sent_tools(configuration(options, NOBODY_TO_ASK).settings))
    if options.json:
        sys.stdout.buffer.write(b"[" + b",".join(tool.json for tool in tools) + b"]\n")
    else:
        width = max((len(tool.name or tool.kind) for tool in tools), default=0)
        print("\n".join(safe(_line(tool, width)) for tool in tools))
    return 0


async def sent_tools(settings: Settings) -> tuple[WireTool, ...]:
    """Return the tools of the first request of a session with these settings."""
    session, model = await open_offline(settings)
    async with session:
        return model.tools(tuple(entry.spec for entry in session.toolset.current()[0])).tools


def _line(tool: WireTool, width: int) -> str:
    """Return the name, kind and first sentence of the description, cut to the terminal's width."""
    spec: JsonValue = msgspec.json.decode(tool.json)
    spec = spec.get("function") or spec.get("custom") or spec
    sentence = str(spec.get("description") or "").strip().split("\n")[0].split(". ")[0].rstrip(".")
    line = f"{tool.name or tool.kind:<{width}}  {tool.kind:<11}  {sentence or NATIVE}"
    columns = shutil.get_terminal_size().columns
    return line if len(line) <= columns or not sys.stdout.isatty() else f"{line[: columns - 1]}…"
