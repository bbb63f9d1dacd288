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
    from ferrule.protocol.settings import Settings
    from ferrule.session.talk import Opening

MISSING = (
    "the terminal interface needs the extra `tui`: pip install 'ferrule[tui]'; meanwhile `ferrule exec PROMPT` does "
    "one task, and `ferrule --help` lists the other commands"
)


def main(arguments: list[str]) -> int:
    """Open the terminal interface."""
    return _open(_parser().parse_args(arguments))


def resume(arguments: list[str]) -> int | None:
    """Open it with a stored session; None where these are the arguments of `exec resume`: they have a prompt, or flags
    of its own."""
    parser = _parser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--last", action="store_true")
    parser.add_argument("--all", action="store_true")
    try:
        options = parser.parse_intermixed_args(arguments)
    except UsageError:
        return None
    if len(options.words) != (0 if options.last else 1) or find_spec("textual") is None:
        return None
    return _open(options)


def _open(options: argparse.Namespace) -> int:
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
    from ferrule.session.talk import Opening

    def settings_in(cwd: str) -> "Settings":
        return load(sources_of(options, cwd=cwd)).settings

    if hasattr(options, "words"):
        from ferrule.cli.resuming import resumed

        word = options.words[0] if options.words else None
        settings, stored = resumed(options, word, settings_in)
        opening = Opening(settings=settings, stored=stored, settings_in=settings_in)
    else:
        sources = sources_of(options)
        loaded = load(sources)
        asked = sources if loaded.unconfirmed else None
        opening = Opening(settings=loaded.settings, sources=asked, warnings=loaded.warnings, settings_in=settings_in)
    refuse_nesting(opening.settings)
    return opening


def _parser() -> Parser:
    parser = Parser("", "Open the terminal interface.")
    parser.usage = "ferrule [OPTION]..."
    add_model_flags(parser)
    add_profile_flag(parser)
    add_rights_flags(parser, "on-request is the default")
    add_config_flag(parser)
    parser.add_argument(
        "--no-alt-screen", dest="plain", action="store_true", help="lines only, nothing moves: for screen readers"
    )
    return parser
