"""`ferrule` alone on a terminal: the terminal interface."""

import argparse
import asyncio
import os
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ferrule.cli.exit_codes import DONE, INTERRUPTED
from ferrule.cli.options import (
    Parser,
    add_config_flag,
    add_model_flags,
    add_profile_flag,
    add_rights_flags,
    sources_of,
)
from ferrule.cli.running import run_interruptibly
from ferrule.protocol.errors import UsageError
from ferrule.sandbox.environment import refuse_nesting

if TYPE_CHECKING:
    from ferrule.doors.terminal.talk import Opening

MISSING = (
    "the terminal interface needs the extra `tui`: pip install 'ferrule[tui]'; meanwhile `ferrule exec PROMPT` does "
    "one task, and `ferrule --help` lists the other commands"
)


def main(arguments: list[str]) -> int:
    """Open the terminal interface."""
    options = _parser().parse_args(arguments)
    if find_spec("textual") is None:
        raise UsageError(MISSING)
    if options.plain or os.environ.get("TERM", "") in ("", "dumb"):
        return _lines(options)
    from ferrule.doors.terminal.run import run_terminal

    return DONE if asyncio.run(run_terminal(partial(_opening, options))) else INTERRUPTED


def _lines(options: argparse.Namespace) -> int:
    from ferrule.doors.terminal.plain import run_plain

    run_interruptibly(run_plain(_opening(options)))
    return DONE


def _opening(options: argparse.Namespace) -> "Opening":
    from ferrule.config import load
    from ferrule.doors.terminal.talk import Opening

    sources = sources_of(options)
    loaded = load(sources)
    if not loaded.settings.accept_no_sandbox:
        refuse_nesting(loaded.settings.sandbox_policy)
    return Opening(
        settings=loaded.settings,
        sources=sources if loaded.unconfirmed else None,
        warnings=loaded.warnings,
        settings_in=lambda cwd: load(sources_of(options, cwd=cwd)).settings,
    )


def _parser() -> Parser:
    parser = Parser("", "Open the terminal interface.")
    parser.usage = "ferrule [OPTION]..."
    add_model_flags(parser)
    add_profile_flag(parser)
    add_rights_flags(parser)
    add_config_flag(parser)
    parser.add_argument(
        "--no-alt-screen", dest="plain", action="store_true", help="lines only, nothing moves: for screen readers"
    )
    return parser
