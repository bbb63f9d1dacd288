"""Find what a command starts, as far as its words and literal input say: other commands, and texts for a shell."""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from ferrule.execpolicy.expansions import Glob, Splitting, Vague, may_be_option
from ferrule.execpolicy.options import words
from ferrule.execpolicy.programs import base_name
from ferrule.execpolicy.script import SimpleCommand
from ferrule.execpolicy.shells import ShellCall, ShellText, fed, is_input, is_shell, shell_call
from ferrule.execpolicy.wrapper_table import GIT, SSH, SU, WRAPPERS, Wrapper
from ferrule.execpolicy.wrappers import Cut, Wrapped, cut, find_wrapper, hides_a_verb, wrapped

_FIND_ACTIONS = words("-exec -execdir -ok -okdir")
_FD_ACTIONS = words("-x -X --exec --exec-batch")
_START_BY_OPTION = words("fd fdfind find git gmake make")
_REPLACE = words("-I -i -J --replace")
MAX_ACTIONS = 50  # of one `find`; each is read up to its end
_ADDED = Splitting("{}")  # words that are not in the script
_PLACEHOLDER = re.compile(r"\{[^{}\s]*\}")
_FIXED_NAME = re.compile(r"/[\w.+-]+\Z")
_ENV_VALUED = words("-u -C -P -a --unset --chdir --argv0")
_SPLIT = re.compile(r"-[0iv]*S(.*)|--split-string(?:=(.*))?", re.DOTALL)
# Variables whose value a program runs as a command.
_COMMAND_VARIABLES = re.compile(
    r"(GIT_|MAN|SYSTEMD_|GH_)?(PAGER|EDITOR)|VISUAL|BROWSER|GIT_(SEQUENCE_EDITOR|SSH(_COMMAND)?|EXTERNAL_DIFF|ASKPASS"
    r"|PROXY_COMMAND)|SSH_ASKPASS|SUDO_ASKPASS|LESS(OPEN|CLOSE)|FCEDIT|RSYNC_RSH|MAKESHELL"
)
# Variables by which a shell runs more than its script.
_SHELL_VARIABLES = re.compile(r"BASH_ENV|ENV|BASH_FUNC_.*|PS[04]|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|ZDOTDIR")
_SSH_COMMAND = re.compile(r"(?:Proxy|Local|KnownHosts|Remote)Command[ =](.*)", re.IGNORECASE | re.DOTALL)
_GIT_COMMAND_KEY = re.compile(
    r"alias\..*|pager\..*|core\.(sshcommand|pager|editor|askpass|fsmonitor)|sequence\.editor|diff\.external"
    r"|.*\.(helper|textconv|command|cmd|program|driver|clean|smudge|process|sshcommand)",
    re.IGNORECASE,
)

_GIT_COMMAND_OPTIONS = {
    "archive": words("--exec"),
    "clone": words("-u --upload-pack"),
    "difftool": words("-x --extcmd"),
    "fetch": words("--upload-pack"),
    "filter-branch": words(
        "--commit-filter --env-filter --index-filter --msg-filter --parent-filter --subdirectory-filter"
        " --tag-name-filter --tree-filter"
    ),
    "grep": words("--open-files-in-pager"),
    "ls-remote": words("--exec --upload-pack"),
    "pull": words("--upload-pack"),
    "push": words("--exec --receive-pack"),
    "rebase": words("-x --exec"),
    "send-email": words("--cc-cmd --header-cmd --sendmail-cmd --to-cmd"),
}
"""Options of git's commands whose value is run."""


class Started(msgspec.Struct, frozen=True):
    """What a command starts. `files` are scripts that it runs. `sure` is False if it may start something else."""

    commands: tuple[Wrapped, ...] = ()
    texts: tuple[ShellText, ...] = ()
    sure: bool = True
    files: tuple[str, ...] = ()

    def __add__(self, other: "Started") -> "Started":
        return Started(
            self.commands + other.commands,
            self.texts + other.texts,
            self.sure and other.sure,
            self.files + other.files,
        )


_NONE = Started()
_UNKNOWN = Started(sure=False)


def started(command: SimpleCommand) -> Started:
    """Return everything that `command` starts, one layer deep."""
    argv = command.argv
    if not argv:
        return _NONE
    if isinstance(argv[0], Vague) and not _has_known_name(argv[0]):
        rest = (Wrapped(tuple(argv[1:])),) if isinstance(argv[0], Splitting) and len(argv) > 1 else ()
        return Started(rest, sure=False)
    name = base_name(argv[0])
    found = _by_name(name, command)
    if command.env:
        found += _by_variables(name, command)
    return found


def _has_known_name(program: str) -> bool:
    """Return True for a path with a known last part, such as `"$(pwd)/bin/eslint"`."""
    return not isinstance(program, Splitting) and _FIXED_NAME.search(program) is not None


def starts_no_more(command: SimpleCommand, count: int) -> bool:
    """Return True if the command's first `count` words start all that it starts.

    Only programs whose own work starts nothing (`find`, `git`) are looked at: their first words say nothing of a
    program that an option names.
    """
    if base_name(command.argv[0]) not in _START_BY_OPTION:
        return True
    return _number_started(command) <= _number_started(msgspec.structs.replace(command, argv=command.argv[:count]))


def _number_started(command: SimpleCommand) -> int:
    found = started(command)
    same = [inner for inner in found.commands if inner.argv[:1] == command.argv[:1]]
    further = sum(_number_started(msgspec.structs.replace(command, argv=inner.argv)) for inner in same)
    return len(found.commands) - len(same) + len(found.texts) + (not found.sure) + further


def is_understood(argv: Sequence[str]) -> bool:
    """Return True if it is known what the program starts: a shell, a wrapper, or one that is read here."""
    name, wrapper = base_name(argv[0]), find_wrapper(argv)
    return name in _SPECIAL or is_shell(name) or (wrapper is not None and not wrapper.quoted)


def _by_name(name: str, command: SimpleCommand) -> Started:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(command)
    if is_shell(name):
        return _from(shell_call(command))
    wrapper = find_wrapper(command.argv)
    if wrapper is not None:
        return _behind(command, wrapper)
    if name != command.argv[0]:
        return Started(files=(command.argv[0],))
    return _UNKNOWN if hides_a_verb(command.argv) else _NONE


def _from(call: ShellCall) -> Started:
    return Started((), call.texts, call.sure, (call.file,) if call.file else ())


def _text(*parts: str) -> Started:
    """Return a text for the shell that runs the command itself, or for one like it."""
    text = " ".join(parts)
    return Started((), (ShellText(text),), not any(isinstance(part, Vague | Glob) for part in parts))


def _for_sh(text: str) -> ShellText:
    """Return a text for the shell of the user's settings, or the system's."""
    return ShellText(text, portable=True)


def _by_variables(name: str, command: SimpleCommand) -> Started:
    found = _NONE
    for variable, value in command.env:
        if _COMMAND_VARIABLES.fullmatch(variable):
            read = ShellText(value, portable=True, of_variable=True)
            found += Started((), (read,), not isinstance(value, Vague))
        elif _SHELL_VARIABLES.fullmatch(variable) and (value or is_shell(name)):
            found += _UNKNOWN
    return found


def _behind(command: SimpleCommand, wrapper: Wrapper) -> Started:
    """Return what a wrapper of the table starts."""
    argv = command.argv
    if wrapper.quoted:
        return Started((), tuple(_for_sh(word) for word in argv[1:] if " " in word))
    found = cut(argv, wrapper)
    texts = [_for_sh(text) for text in found.values(wrapper.script)]
    texts += [_for_sh(text[1:]) for text in found.values(wrapper.piped) if text[:1] in ("|", "!")]
    sure = found.sure and not any(isinstance(text.text, Vague) for text in texts)
    if wrapper.joined and found.inner:
        texts.append(_for_sh(" ".join(found.inner)))
        sure = sure and not any(isinstance(word, Vague) for word in found.inner)
        return Started((), tuple(texts), sure)
    inert = found.has(wrapper.inert)
    commands = (wrapped(argv, wrapper, found),) if found.inner and not inert else ()
    result = Started(commands, tuple(texts), sure)
    if wrapper.shell and not commands and not texts and not inert:
        result += _from(fed(command))
    return result


# Programs with words of their own kind.


def _env(command: SimpleCommand) -> Started:
    """Read `env -S 'A=1 git push' x` as env with the words of that text and x."""
    argv = command.argv
    for place, word in enumerate(argv[1:], start=1):
        match = _SPLIT.fullmatch(word)
        if match is not None:
            text, behind = (match[1] or match[2] or ""), place + 1
            if not text:
                text, behind = "".join(argv[behind : behind + 1]), behind + 1
            return _split(argv, text, behind)
        if not word.startswith("-") and argv[place - 1] not in _ENV_VALUED:
            break
    return _behind(command, WRAPPERS["env"])


def _split(argv: Sequence[str], text: str, behind: int) -> Started:
    try:
        parts = shlex.split(text)
    except ValueError:
        parts = text.split()
    # Backslashes and variables mean something else to env than to a shell.
    sure = not ({"\\", "$", "#"} & set(text)) and not any(isinstance(word, Vague) for word in argv[:behind])
    return Started((Wrapped((argv[0], *parts, *argv[behind:])),), sure=sure)


def _su(command: SimpleCommand) -> Started:
    """Return the user's shell, with the words after the user's name."""
    found = cut(command.argv, SU)
    return _as_user(command, found)


def _as_user(command: SimpleCommand, found: Cut) -> Started:
    shells = found.values(words("-s --shell"))
    text = found.values(SU.script)[-1:]
    argv = (*(shells[-1:] or ["sh"]), *(["-c"] if text else []), *text, *found.inner)
    return Started((Wrapped(tuple(argv)),), sure=found.sure)


def _runuser(command: SimpleCommand) -> Started:
    found = cut(command.argv, WRAPPERS["runuser"])
    if found.has(words("-u --user")):
        return _behind(command, WRAPPERS["runuser"])
    return _su(command)


def _sg(command: SimpleCommand) -> Started:
    argv = tuple(word for word in command.argv if word not in ("-", "-c"))
    if len(argv) <= 2:
        return _from(fed(command))
    return Started((), (_for_sh(" ".join(argv[2:])),), not any(isinstance(word, Vague) for word in argv))


def _find(command: SimpleCommand) -> Started:
    """Return each action, even one that may be a test's value."""
    argv = command.argv
    actions = [place for place, word in enumerate(argv, start=1) if word in _FIND_ACTIONS]
    if len(actions) > MAX_ACTIONS or any(isinstance(word, Splitting) for word in argv):
        return _UNKNOWN
    commands = tuple(Wrapped(tuple(_until_end(argv[place:]))) for place in actions)
    vague = any(isinstance(word, Vague) for word in argv)
    return Started(commands, sure=not vague or sum(word == ";" for word in argv) <= len(actions))


def _until_end(arguments: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in arguments:
        if word == ";" or (word == "+" and before == "{}"):
            return
        yield Vague(word) if "{}" in word else word
        before = word


def _fd(command: SimpleCommand) -> Started:
    argv = command.argv
    for place, word in enumerate(argv):
        if word in _FD_ACTIONS:
            inner = [Vague(part) if _PLACEHOLDER.search(part) else part for part in argv[place + 1 :]]
            return Started((Wrapped((*inner, _ADDED)),))
    return _NONE if not any(isinstance(word, Splitting) for word in argv) else _UNKNOWN


def _xargs(command: SimpleCommand) -> Started:
    found = cut(command.argv, WRAPPERS["xargs"])
    inner = found.inner
    replaced = [value or "{}" for value in found.values(_REPLACE)]
    if replaced:
        inner = tuple(Vague(word) if any(mark in word for mark in replaced) else word for word in inner)
    elif inner:
        inner = (*inner, _ADDED)
    return Started((Wrapped(inner),) if inner else (), sure=found.sure)


def _parallel(command: SimpleCommand) -> Started:
    """Read GNU parallel: the words up to `:::` are a script; if there are none, those after it are scripts."""
    found = cut(command.argv, WRAPPERS["parallel"])
    inner = list(found.inner)
    marks = [place for place, word in enumerate(inner) if word in (":::", ":::+", "::::", "::::+")]
    first = marks[0] if marks else len(inner)
    own, given = inner[:first], inner[first + 1 :]
    if not own:
        result = _UNKNOWN if not given or inner[first] != ":::" else _NONE
        for word in given:
            result += _text(word)
        return msgspec.structs.replace(result, sure=result.sure and found.sure)
    text = _PLACEHOLDER.sub('"$@"', " ".join(own))
    vague = any(isinstance(word, Vague) for word in own)
    return Started((), (_for_sh(text if '"$@"' in text else text + ' "$@"'),), found.sure and not vague)


def _git(command: SimpleCommand) -> Started:
    """Read git: after its own options comes the command that rules are about, and some commands start others."""
    found = cut(command.argv, GIT)
    result = Started(sure=found.sure and not found.has(frozenset(["--config-env"])))
    for value in found.values(frozenset(["-c"])):
        key, _, text = value.partition("=")
        result += _git_setting(key, Vague(text) if isinstance(value, Vague) else text)
    if found.options and found.inner:
        return result + Started((Wrapped((command.argv[0], *found.inner)),))
    return result + _git_command(found.inner)


def _git_setting(key: str, value: str) -> Started:
    """Return what git runs for a setting. An alias without an exclamation mark is one of git's own commands."""
    if not _GIT_COMMAND_KEY.fullmatch(key):
        return _NONE
    vague = isinstance(value, Vague)
    text = value.removeprefix("!") if value.startswith("!") or not key.startswith("alias.") else f"git {value}"
    return _text(Vague(text) if vague else text)


def _git_command(inner: Sequence[str]) -> Started:
    verb, rest = (inner[0], inner[1:]) if inner else ("", ())
    options = _GIT_COMMAND_OPTIONS.get(verb, frozenset())
    if verb == "bisect" and rest[:1] == ("run",):
        return Started((Wrapped(tuple(rest[1:])),))
    if verb == "for-each-repo":
        return Started((Wrapped(("git", *(word for word in rest if not word.startswith("--config")))),))
    if verb == "submodule" and "foreach" in rest:
        words_of = [word for word in rest[rest.index("foreach") + 1 :] if not word.startswith("-")]
        return _text(*words_of)
    result = _NONE
    if verb == "config":
        for key, value in pairwise(rest):
            result += _git_setting(key, value)
    if verb == "clone":
        for place, word in enumerate(rest[:-1]):
            if word in ("-c", "--config"):
                key, _, value = rest[place + 1].partition("=")
                result += _git_setting(key, value)
    for place, word in enumerate(rest):
        option, equals, value = word.partition("=")
        if option in options:
            result += _text(value if equals else " ".join(rest[place + 1 : place + 2]))
        elif verb == "grep" and word.startswith("-O"):
            result += _text(word[2:])
    return result


def _ssh(command: SimpleCommand) -> Started:
    """Return what runs there, and what `-o ProxyCommand=...` runs here."""
    found = cut(command.argv, SSH)
    result = _behind(command, SSH)
    for value in found.values(frozenset(["-o"])):
        setting = _SSH_COMMAND.fullmatch(value)
        if setting is not None:
            result += _text(setting[1])
    return result


def _later(command: SimpleCommand) -> Started:
    """Read `at` and `batch`: a script from a file or from their input."""
    found = cut(command.argv, WRAPPERS["at"])
    if found.has(WRAPPERS["at"].inert):
        return _NONE
    files = found.values(frozenset(["-f"]))
    return Started(files=tuple(files)) if files else _from(fed(command, portable=True))


def _make(command: SimpleCommand) -> Started:
    """Read make: its recipes are in files, but the shell that runs them, and a makefile, may be in the words."""
    argv = command.argv
    result = _NONE
    for place, word in enumerate(argv[1:], start=1):
        name, equals, value = word.partition("=")
        if equals and name.rstrip(":+?!") in ("MAKE", "SHELL"):
            result += _text(Vague(value) if isinstance(word, Vague) else value)
        elif name in ("--eval", "-E"):
            result += _UNKNOWN
        elif name in ("-f", "--file", "--makefile"):
            file = value if equals else "".join(argv[place + 1 : place + 2])
            result += _UNKNOWN if is_input(file) else _NONE
    return result


def _nix(command: SimpleCommand) -> Started:
    """Read `nix-shell --run 'SCRIPT'` and `nix develop -c PROGRAM ...`."""
    argv = command.argv
    for place, word in enumerate(argv):
        if argv[0].endswith("nix-shell") and word in ("--run", "--command"):
            return _text(*argv[place + 1 : place + 2])
        if word in ("-c", "--command") and argv[1:2] != ("eval",):
            return Started((Wrapped(tuple(argv[place + 1 :])),))
    return _NONE


def _capsh(command: SimpleCommand) -> Started:
    """Read capsh: the words after `--` are bash's."""
    argv = command.argv
    for place, word in enumerate(argv):
        if word in ("--", "=="):
            return Started((Wrapped(("bash", *argv[place + 1 :])),))
    return _NONE


# The shell's own commands.


def _eval(command: SimpleCommand) -> Started:
    rest = command.argv[1:]
    return _text(*(rest[1:] if rest[:1] == ("--",) else rest))


def _source(command: SimpleCommand) -> Started:
    rest = command.argv[1:]
    name = rest[0] if rest else ""
    if name == "--":
        name = rest[1] if len(rest) > 1 else ""
    if is_input(name):
        return _from(fed(command))
    unknown = isinstance(name, Vague) and ("<(" in name or "/dev/" in name or command.stdin is not None)
    return _UNKNOWN if unknown or name == "-p" else Started(files=(name,))


def _trap(command: SimpleCommand) -> Started:
    rest = [word for word in command.argv[1:] if word != "--"]
    if not rest or rest[0] in ("-", "-l", "-p", "-P"):
        return _NONE
    return _text(rest[0])


def _callback(command: SimpleCommand) -> Started:
    """Read `mapfile -C 'git push'`, `compgen -C 'git push'`, `complete -F f`."""
    argv, result = command.argv, _NONE
    for place, word in enumerate(argv[1:], start=1):
        match = re.fullmatch(r"-[A-Za-z]*[CF](.*)", word, re.DOTALL)
        if match is not None:
            result += _text(match[1] or " ".join(argv[place + 1 : place + 2]))
    return result if not any(map(may_be_option, argv[1:])) else result + _UNKNOWN


def _remapped(command: SimpleCommand) -> Started:
    """Read `hash -p FILE name`, `enable -f FILE name`, `bind -x`, `set -H`, `fc`: they change what later words mean."""
    name, rest = command.argv[0], command.argv[1:]
    if name == "fc":
        return _NONE if any(word.startswith("-") and "l" in word for word in rest) else _UNKNOWN
    if name == "set":
        words_of = rest[: rest.index("--")] if "--" in rest else rest
        changes = any((word[:1] == "-" and "H" in word) or word == "histexpand" for word in words_of)
        return _UNKNOWN if changes or (words_of and may_be_option(words_of[0])) else _NONE
    letter = {"hash": "p", "enable": "f", "bind": "x"}[name]
    changes = any(word[:1] == "-" and letter in word for word in rest) or any(map(may_be_option, rest))
    return _UNKNOWN if changes else _NONE


_SPECIAL = {
    ".": _source,
    "at": _later,
    "batch": _later,
    "bind": _remapped,
    "capsh": _capsh,
    "compgen": _callback,
    "complete": _callback,
    "enable": _remapped,
    "env": _env,
    "eval": _eval,
    "fc": _remapped,
    "fd": _fd,
    "fdfind": _fd,
    "find": _find,
    "git": _git,
    "gmake": _make,
    "hash": _remapped,
    "make": _make,
    "mapfile": _callback,
    "nix": _nix,
    "nix-shell": _nix,
    "parallel": _parallel,
    "readarray": _callback,
    "runuser": _runuser,
    "set": _remapped,
    "sg": _sg,
    "source": _source,
    "ssh": _ssh,
    "su": _su,
    "trap": _trap,
    "xargs": _xargs,
}
