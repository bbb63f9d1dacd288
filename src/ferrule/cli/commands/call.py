"""`ferrule call`: one tool call on the usual path, without a model."""

import sys

import msgspec

from ferrule.cli.exit_codes import DONE, FAILED
from ferrule.cli.main import one_line
from ferrule.cli.options import (
    NOBODY_TO_ASK,
    Parser,
    add_config_flag,
    add_model_flags,
    add_profile_flag,
    add_rights_flags,
    configuration,
    print_warnings,
)
from ferrule.cli.running import run_interruptibly
from ferrule.protocol.content import InputImage
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import Event, McpServerStatus, NetworkRefused, WarningEvent
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.settings import Settings
from ferrule.rendering.safe import safe
from ferrule.session.offline import open_offline
from ferrule.tools.events import ToolEvent

DEFAULTS = NOBODY_TO_ASK | {"profile": "all"}
"""Nobody can be asked, and every tool can be called."""

CALL_ID = "call_1"
LONGEST_URL = 60
"""Characters shown of a picture's URL: the type of a `data:` URL, and its first bytes."""


def main(arguments: list[str]) -> int:
    """Dispatch one call. Return 0 if the tool reports success, else 1."""
    parser = Parser("call", "Run one tool call and print the text that the model would read.")
    parser.add_argument("tool", metavar="TOOL", help="the tool's name")
    parser.add_argument(
        "input", metavar="JSON|TEXT|-", nargs="?", default="{}",
        help="its arguments, or the text of a freeform tool; `-` reads it from standard input",
    )  # fmt: skip
    add_rights_flags(parser)
    add_profile_flag(parser)
    add_model_flags(parser)
    parser.add_argument("--json", action="store_true", help='print {"output": string or parts, "success": bool}')
    add_config_flag(parser)
    options = parser.parse_intermixed_args(arguments)
    text = _standard_input() if options.input == "-" else options.input
    output = run_interruptibly(_dispatch(configuration(options, DEFAULTS).settings, options.tool, text))
    success = output.success is not False
    if options.json:
        sys.stdout.buffer.write(msgspec.json.encode({"output": output.body, "success": success}) + b"\n")
    else:
        print(safe(_shown(output)))
    return DONE if success else FAILED


class _Notices:
    """A front end that prints what the user has to know, and nothing else."""

    can_answer = False

    def on_event(self, event: Event | ToolEvent) -> None:
        """Print warnings, and what is waited for."""
        match event:
            case WarningEvent(message=message) | NetworkRefused(reason=message):
                print_warnings([message])
            case McpServerStatus(status="waiting", message=message):
                print(f"ferrule: {one_line(message)}", file=sys.stderr)
            case _:
                pass


def _shown(output: ToolOutput) -> str:
    """Return the text to print; a picture, the whole answer of `view_image`, is at least named."""
    body = output.body if isinstance(output.body, tuple) else ()
    pictures = [part for part in body if isinstance(part, InputImage)]
    named = (f"[image: {(part.image_url or part.file_id or '')[:LONGEST_URL]}; --json prints it]" for part in pictures)
    return "\n".join([*([output.text] if output.text or not pictures else []), *named])


async def _dispatch(settings: Settings, tool: str, text: str) -> ToolOutput:
    session, _ = await open_offline(settings, _Notices())
    async with session:
        print_warnings(session.toolset.warnings)
        return await session.toolset.call(tool, text, CALL_ID)


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise UsageError("the input on standard input is not UTF-8 text") from error
