"""`ferrule acp`: an agent for editors that speak the Agent Client Protocol."""

import argparse
import logging
import sys

import msgspec

from ferrule.cli.exit_codes import DONE
from ferrule.cli.options import (
    Parser,
    add_config_flag,
    add_model_flags,
    add_profile_flag,
    add_rights_flags,
    sources_of,
    working_directory,
)
from ferrule.cli.resuming import given_by
from ferrule.cli.running import run_interruptibly
from ferrule.config import Layer, Sources, ferrule_home, load
from ferrule.protocol.errors import UsageError

DESCRIPTION = """\
Serve an agent to an editor that speaks the Agent Client Protocol (Zed, JetBrains, Neovim, Emacs, VS Code), over
standard input and output. The editor starts this command, and says where each session works. Needs the extra `acp`."""

MISSING = "`ferrule acp` needs the extra `acp`: pip install 'ferrule[acp]'"
BY_HAND = "ferrule: an editor starts this command; it waits for its messages on standard input (Ctrl-D ends it)"


def main(arguments: list[str]) -> int:
    """Serve until the editor is gone, or a signal comes."""
    options = _parser().parse_args(arguments)
    load(
        sources_of(options, cwd=working_directory(options.directory))
    )  # what is wrong is told before there is a client
    try:
        from ferrule.doors.acp.agent import Programs
        from ferrule.doors.acp.run import serve_pipes
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "acp":
            raise
        raise UsageError(MISSING) from error
    if sys.stdin.isatty():
        print(BY_HAND, file=sys.stderr)
    logging.getLogger().addHandler(logging.NullHandler())  # the SDK's logs are no matter of an editor's user
    given = msgspec.structs.replace(given_by(options), cwd=True)

    def sources(cwd: str, directories: tuple[str, ...], mode: str | None) -> Sources:
        return _in_mode(sources_of(options, cwd=cwd), directories, mode)

    run_interruptibly(serve_pipes(Programs(sources=sources, load=load, given=given, home=ferrule_home())))
    return DONE


def _in_mode(sources: Sources, directories: tuple[str, ...], mode: str | None) -> Sources:
    """Return the sources with directories that an editor adds, and the mode that its user has chosen."""
    flags = sources.flags
    if mode is not None:
        flags = (
            *(flag for flag in flags if "sandbox_mode" not in flag.values),
            Layer("the mode", {"sandbox_mode": mode}),
        )
    return msgspec.structs.replace(sources, flags=flags, add_dirs=(*sources.add_dirs, *directories))


def _parser() -> argparse.ArgumentParser:
    parser = Parser("acp", DESCRIPTION)
    add_model_flags(parser)
    add_profile_flag(parser)
    add_rights_flags(parser, "on-request is the default; the editor's user is asked")
    add_config_flag(parser)
    return parser
