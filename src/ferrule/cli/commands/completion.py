"""`ferrule completion`: a script that completes commands and flags in a shell."""

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from importlib import import_module
from typing import cast

from ferrule.cli.main import COMMANDS, Command
from ferrule.cli.options import Parser

_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def main(arguments: list[str]) -> int:
    """Print the script."""
    parser = Parser("completion", "Print a script that completes commands and flags.")
    parser.epilog = (
        "bash: source <(ferrule completion bash), in ~/.bashrc\n"
        "zsh: ferrule completion zsh > a folder of $fpath, as _ferrule\n"
        "fish: ferrule completion fish > ~/.config/fish/completions/ferrule.fish"
    )
    parser.add_argument("shell", choices=sorted(_SCRIPTS), help="the shell")
    options = parser.parse_args(arguments)
    print(_SCRIPTS[options.shell]({name: _flags(name) for name in COMMANDS}))
    return 0


def _flags(name: str) -> Sequence[str]:
    """Return the long flags that a command's help names."""
    module = cast("Command", import_module(f"ferrule.cli.commands.{name.replace('-', '_')}"))
    shown = io.StringIO()
    with redirect_stdout(shown), suppress(SystemExit):
        module.main(["--help"])
    return sorted(set(_FLAG.findall(shown.getvalue())))


def _bash(flags: Mapping[str, Sequence[str]]) -> str:
    cases = "\n".join(f"    {name}) words='{' '.join(known)}' ;;" for name, known in flags.items())
    return f"""\
_ferrule() {{
  local words=''
  if [ "$COMP_CWORD" -eq 1 ]; then words='{" ".join(flags)}'; else
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _ferrule ferrule"""


def _zsh(flags: Mapping[str, Sequence[str]]) -> str:
    cases = "\n".join(f"    {name}) compadd -- {' '.join(known)} ;;" for name, known in flags.items())
    return f"""\
#compdef ferrule
_ferrule() {{
  if (( CURRENT == 2 )); then compadd -- {" ".join(flags)}; return; fi
  case "${{words[2]}}" in
{cases}
  esac
  _files
}}
compdef _ferrule ferrule"""


def _fish(flags: Mapping[str, Sequence[str]]) -> str:
    commands = [f"complete -c ferrule -n __fish_use_subcommand -f -a {name}" for name in flags]
    lines = [
        f"complete -c ferrule -n '__fish_seen_subcommand_from {name}' -l {flag[2:]}"
        for name, known in flags.items()
        for flag in known
    ]
    return "\n".join([*commands, *lines])


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
