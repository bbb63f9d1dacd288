"""The entry point: finds the command, imports it, and turns its errors into one line and an exit code.

Imports nothing heavy: `ferrule --help` costs an interpreter start.
"""

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from ferrule._version import __version__
from ferrule.cli.exit_codes import DONE, FAILED, INTERRUPTED, WRONG_USAGE
from ferrule.protocol.errors import FerruleError, UsageError

COMMANDS = {
    "exec": "do one task without asking, and exit; `exec resume` goes on with an earlier session",
    "batch": "do the tasks of a file, many at a time, and write one result for each",
    "resume": "go on with an earlier session: `ferrule resume ID|--last [PROMPT]`",
    "sessions": "list, show, export, fork, rename, archive and remove stored sessions, undo their last turn",
    "tools": "print the tools that a model is sent",
    "call": "run one tool call and print what the model would read",
    "files": "list, add and remove the folders that file_search searches; search in them",
    "serve": "serve the Responses API over any model; make keys for it",
    "stores": "list, search and remove the vector stores of `ferrule serve`",
    "sandbox": "run your own command in the model's sandbox",
    "container": "run your own command in a container without Docker; list and remove containers",
    "apply-patch": "apply a patch given as argument or on standard input",
    "policy": "say whether a command may run, and why",
    "memory": "list, add and remove what is remembered from earlier work",
    "prompts": "list your custom prompts",
    "skills": "list the skills that the model is told of",
    "trust": "show what a project's own files would do, and trust them",
    "mcp": "add, list, show and remove MCP servers; log in to one",
    "mcp-server": "serve the tools to any MCP client, over pipes or HTTP",
    "acp": "serve an agent to an editor, over the Agent Client Protocol",
    "app-server": "serve threads and turns to a client of the Codex app-server, over pipes or WebSockets",
    "runtime": "import images for containers, list and remove them",
    "demo": "watch a scripted model fix a bug in a scratch repository; needs no key",
    "doctor": "show what this machine offers and which paths are written",
    "completion": "print a script that completes commands and flags in bash, zsh or fish",
}
"""Every command and what it does. NAME is the module `ferrule.cli.commands.NAME`, with `_` for `-`."""

_HELP, _VERSION = ("-h", "--help", "help"), ("-V", "--version")
_ABOUT = (*_HELP, *_VERSION)
_PROMPT_FLAGS = ("-p", "--print")


NEW_OBJECTS = 20_000
"""Objects, more than have gone, after which the garbage collector looks for those that refer to each other. At Python's
700 it looks hundreds of times at what imports make, all of which stays."""


class Command(Protocol):
    """A module of `ferrule.cli.commands`."""

    def main(self, arguments: list[str]) -> int:
        """Run with the arguments after the command's name. Return the exit code. Raises `FerruleError`."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ferrule`. Return the exit code. Without `arguments` it is what its process is there for.

    A third of a command's processor time would be the garbage collector's: in imports, and at the interpreter's end.
    """
    if arguments is not None:
        return _told(list(arguments))
    _open_streams()
    gc.set_threshold(NEW_OBJECTS)
    code = _told(sys.argv[1:])
    gc.freeze()
    return code


def _open_streams() -> None:
    """Let standard streams lead nowhere that whoever started us has closed. The next file to be opened would be one of
    them, and get what is printed."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, os.fdopen(nowhere if nowhere == number else os.dup2(nowhere, number), mode))


def _told(given: list[str]) -> int:
    """Run a command, and say in a line why it failed."""
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except FerruleError as error:
        print(f"ferrule: {one_line(str(error))}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, UsageError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; without this the interpreter complains again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _run(given: list[str]) -> int:
    first = given[0] if given else ""
    if _opens_terminal(first):
        return _command("terminal").main(given)
    if first in ("", *_HELP):
        print(usage())
        return DONE
    if first in _VERSION:
        print(f"ferrule {__version__}")
        return DONE
    if first not in COMMANDS:
        raise UsageError(_unknown(given))
    return _command(first).main(given[1:])


def _command(name: str) -> Command:
    if sys.platform == "win32":
        raise UsageError("Ferrule does not run on Windows itself: use it in WSL2")
    return cast("Command", import_module(f"ferrule.cli.commands.{name.replace('-', '_')}"))


def _opens_terminal(first: str) -> bool:
    """Return whether there is no command, at most flags, and a terminal to show the interface on."""
    no_command = not first or (first.startswith("-") and first not in (*_ABOUT, *_PROMPT_FLAGS))
    return no_command and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def usage() -> str:
    """Return the text of `ferrule --help`."""
    commands = "\n".join(f"  {name:<12} {what}" for name, what in COMMANDS.items())
    return (
        f"usage: ferrule COMMAND ...\n       ferrule [OPTION]...   the terminal interface\n\n{commands}\n\n"
        "`ferrule COMMAND --help` says more; `ferrule --version` prints the version.\n"
        "Settings: ~/.ferrule/config.toml, -c KEY=VALUE, flags."
    )


def one_line(text: str) -> str:
    """Return the text in one line, without control characters."""
    return "".join(char if char.isprintable() else "�" for char in " ".join(text.split()))


def _unknown(given: list[str]) -> str:
    word = given[0]
    if word in _PROMPT_FLAGS:
        return "a prompt needs no flag, as in `ferrule exec PROMPT`"
    if word.startswith("-"):
        return f"flags come after the command, as in `ferrule exec {word} ...`; `ferrule --help` lists the commands"
    if " " in word:
        import shlex

        return f"a task needs its command: `ferrule exec {shlex.quote(word)}`"
    import difflib

    near = difflib.get_close_matches(word, COMMANDS, n=1)
    advice = f"did you mean `ferrule {near[0]}`?" if near else "`ferrule --help` lists those there are"
    return f"there is no command {word!r}; {advice}"


if __name__ == "__main__":
    sys.exit(main())
