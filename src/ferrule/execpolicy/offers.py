"""Choose the rule to offer when the user allows a command for good.

An allow-list: a prefix is offered if further words cannot turn it into another command, and anything else only as the
exact command. Code in the command, or read from standard input, is never offered.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence

from ferrule.execpolicy.commands import bare
from ferrule.execpolicy.options import words
from ferrule.execpolicy.programs import base_name, trusted_name
from ferrule.execpolicy.script import SimpleCommand
from ferrule.execpolicy.wrappers import find_wrapper, hides_a_verb, is_wrapper, unwrap
from ferrule.protocol.approvals import ExecPolicyAmendment

# Tools whose work is fixed, whatever words follow.
_WHOLE_TOOLS = words("black ctest flake8 isort jest mypy prettier pytest ruff tsc unittest vitest")
# Of these the subcommand says what is done; it must be the first word, so that no option comes before it.
_SUBCOMMANDS: Mapping[str, frozenset[str]] = {
    "git": words(
        """
        add apply blame branch checkout cherry-pick commit describe diff fetch log ls-files merge mv pull push reset
        restore revert rm show stash status switch tag
        """
    ),
    "cargo": words("b bench build c check clean clippy d doc fmt metadata t test tree update"),
    "go": words("build fmt list test vet"),
    "npm": words("ci ls outdated t test"),
    "pnpm": words("ls outdated t test"),
    "yarn": words("test"),
    "bun": words("test"),
    "deno": words("check fmt lint test"),
    "pip": words("check freeze list show"),
    "pip3": words("check freeze list show"),
    "uv": words("lock sync tree"),
    "docker": words("images logs ps version"),
    "podman": words("images logs ps version"),
    "kubectl": words("describe get logs version"),
    "dotnet": words("build format restore test"),
    "swift": words("build test"),
    "mix": words("compile format test"),
    "mvn": words("compile package test verify"),
    "gradle": words("assemble build check test"),
    "terraform": words("fmt plan validate"),
}
# Of these the second word, a plain name, says what is done.
_NAMED: Mapping[tuple[str, str], re.Pattern[str]] = {
    **{(tool, verb): re.compile(r"[A-Za-z0-9][\w:.-]*") for tool in ("npm", "pnpm") for verb in ("run", "run-script")},
    **{("gh", noun): re.compile(r"[a-z][a-z-]*") for noun in ("issue", "label", "pr", "release", "run", "workflow")},
    ("go", "mod"): re.compile(r"download|graph|tidy|verify"),
    ("git", "worktree"): re.compile(r"add|list|prune"),
}
_TARGET_TOOLS = words("gmake make ninja")
_TARGET = re.compile(r"[A-Za-z0-9][\w./-]*")

_SHELL = re.compile(r"[a-z]*sh[0-9.-]*|nu|elvish|cmd|powershell")
# They run a file that is their first word; their options may hold code.
_SCRIPTED = re.compile(
    r"(ba|da|k|z|a|fi)?sh|python[0-9.]*|pypy[0-9.]*|node|nodejs|perl[0-9.]*|ruby[0-9.]*|php[0-9.]*|lua[0-9.]*|luajit"
    r"|Rscript|julia|pwsh|osascript|tsx|ts-node"
)
_PYTHON = re.compile(r"python[0-9.]*|pypy[0-9.]*")
_PYTHON_SWITCHES = re.compile(r"-[BEIOPSbsuv]+")
_INPUT = re.compile(r"(/+|.*\.\./)(dev|proc)/.*", re.DOTALL)
# They read code from their words or their input, in a language of their own.
_OTHER_INTERPRETERS = re.compile(
    r"pythonw|pyw?|ipython[0-9]*|R|[gmn]?awk|g?sed|m4|bc|dc|ed|ex|vim?|nvim|emacs|tclsh[0-9.]*|wish|expect|guile|racket"
    r"|sbcl|clisp|octave|ocaml|swipl|scala|groovy|kotlin|java|jshell|iex|elixir|erl|escript|ghci|run(ghc|haskell)"
    r"|gdb|lldb|psql|mysql|mariadb|sqlite3?|mongosh|redis-cli|nc|ncat|socat|telnet|at|batch|crontab|eval|source|\."
)
# They start what their words or their input name, with other rights or in another place.
_LAUNCHERS = re.compile(
    r"su|runuser|setpriv|unshare|nsenter|systemd-run|machinectl|capsh|firejail|bwrap|proot|fakeroot|setarch|linux(32|64)"
    r"|strace|ltrace|perf|script|tmux|screen|parallel|entr|npx|bunx|pnpx|uvx|pipx|nix(-[a-z]+)?|dbus-run-session"
    r"|start-stop-daemon|chrt|taskset|numactl|prlimit|unbuffer|rlwrap|tini|dumb-init|trap|ld(-linux.*)?\.so.*"
)
_STARTING_SUBCOMMANDS = words(
    """
    bisect compose create daemon debug difftool dlx exec explore filter-branch init mergetool repl run shell start tool
    x
    """
)
# A command behind these does what it does without them; xargs, watch and others add words or repeat it.
_PASSING = words("doas ionice nohup setsid stdbuf sudo")


def offer(prefix: Sequence[str], *, is_whole: bool) -> ExecPolicyAmendment | None:
    """Return the rule to offer for a prefix; None if it would allow more than it shows.

    `is_whole`: the prefix is the whole command, so a rule for exactly this may be offered too. Behind a wrapper that
    does not change the command, the rule is about the command inside.
    """
    command = bare(SimpleCommand(tuple(prefix)))
    if not command.argv or not all(command.argv):
        return None
    if is_narrow(command.argv):
        return ExecPolicyAmendment(command.argv)
    if is_whole and _is_definite(command.argv):
        return ExecPolicyAmendment(command.argv, exact=True)
    return None


def is_narrow(prefix: Sequence[str]) -> bool:
    """Return True if everything that begins with these words is the same kind of work."""
    name, rest = trusted_name(prefix[0]), prefix[1:]
    if name is None:
        return False
    if _SCRIPTED.fullmatch(name):
        return _runs_a_file(name, rest)
    if name in _WHOLE_TOOLS:
        return True
    if name in _TARGET_TOOLS:
        return bool(rest) and _TARGET.fullmatch(rest[0]) is not None
    if not rest:
        return False
    named = _NAMED.get((name, rest[0]))
    if named is not None:
        return len(rest) > 1 and named.fullmatch(rest[1]) is not None
    return rest[0] in _SUBCOMMANDS.get(name, ())


def _runs_a_file(name: str, rest: Sequence[str]) -> bool:
    """Return True if what runs is a named file: `python3 -u manage.py`, `bash run.sh`, `python3 -m pytest`."""
    if _PYTHON.fullmatch(name):
        while rest and _PYTHON_SWITCHES.fullmatch(rest[0]):
            rest = rest[1:]
        if rest[:1] in (("-m",), ["-m"]):
            return len(rest) > 1 and not _runs_code(rest[1]) and is_narrow(rest[1:])
    return bool(rest) and _is_script_file(rest[0])


def _is_script_file(word: str) -> bool:
    """Return True for a word that looks like a file, and not like one that stands for an open input."""
    _, slash, name = word.rpartition("/")
    stem, _, suffix = name.rpartition(".")
    looks_so = bool(name.strip(".")) and bool(slash or (stem and suffix.isalnum()))
    return looks_so and not word.startswith("-") and _INPUT.fullmatch(posixpath.normpath(word)) is None


def _is_definite(argv: Sequence[str]) -> bool:
    """Return True if the whole command says what is done: no code in it or from its input, no launcher."""
    name, rest = base_name(argv[0]), argv[1:]
    if not rest:
        return False
    if hides_a_verb(argv):
        return False
    if find_wrapper(argv) is not None:
        wrapped = unwrap(argv)
        if name not in _PASSING or wrapped is None or wrapped.env or argv[0] != name:
            return False
        inner = bare(SimpleCommand(wrapped.argv))
        return not inner.env and (is_narrow(inner.argv) or _is_definite(inner.argv))
    if _runs_code(name) or any(_runs_code(base_name(word)) for word in rest):
        return False
    if _is_known(name):
        return not rest[0].startswith("-") and rest[0] not in _STARTING_SUBCOMMANDS
    return any(not word.startswith("-") for word in rest)


def _is_known(name: str) -> bool:
    return name in _SUBCOMMANDS or name in _TARGET_TOOLS or name == "gh"


def _runs_code(name: str) -> bool:
    kinds = (_SHELL, _SCRIPTED, _OTHER_INTERPRETERS, _LAUNCHERS)
    return is_wrapper(name) or any(kind.fullmatch(name) for kind in kinds)
