"""`ferrule` alone on a terminal: the terminal interface."""

import asyncio
from importlib.util import find_spec

from ferrule.cli.exit_codes import DONE, INTERRUPTED
from ferrule.cli.options import (
    Parser,
    add_config_flag,
    add_model_flags,
    add_profile_flag,
    add_rights_flags,
    sources_of,
)
from ferrule.config import load
from ferrule.protocol.errors import UsageError
from ferrule.sandbox.environment import refuse_nesting

MISSING = (
    "the terminal interface needs the extra `tui`: pip install 'ferrule[tui]'; meanwhile `ferrule exec PROMPT` does "
    "one task, and `ferrule --help` lists the other commands"
)


def main(arguments: list[str]) -> int:
    """Open the terminal interface."""
    options = _parser().parse_args(arguments)
    if find_spec("textual") is None:
        raise UsageError(MISSING)
    sources = sources_of(options)
    loaded = load(sources)
    if not loaded.settings.accept_no_sandbox:
        refuse_nesting(loaded.settings.sandbox_policy)
    from ferrule.doors.terminal.run import run_terminal
    from ferrule.doors.terminal.talk import Opening

    asked = sources if loaded.unconfirmed else None
    opening = Opening(
        settings=loaded.settings,
        sources=asked,
        warnings=loaded.warnings,
        settings_in=lambda cwd: load(sources_of(options, cwd=cwd)).settings,
    )
    return DONE if asyncio.run(run_terminal(opening)) else INTERRUPTED


def _parser() -> Parser:
    parser = Parser("", "Open the terminal interface.")
    parser.usage = "ferrule [OPTION]..."
    add_model_flags(parser)
    add_profile_flag(parser)
    add_rights_flags(parser)
    add_config_flag(parser)
    return parser
