"""A rule that the user adds by an answer: which prefixes may be offered, how one is stored and is live at once."""

import fcntl
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ferrule.protocol.approvals import ExecPolicyAmendment
from ferrule.protocol.errors import FerruleError

from .commands import MAX_NESTING
from .programs import base_name
from .rules import Rules
from .wrappers import SHELLS, is_wrapper, unwrap

DEFAULT_RULES = Path("rules", "default.rules")  # below FERRULE_HOME
_INTERPRETERS = re.compile(
    r"python[0-9.]*|pythonw|pyw?|pypy[0-9.]*|node|deno|bun|perl|ruby|php|lua[0-9.]*|pwsh|powershell|osascript|awk|gawk"
)
_OPEN_ENDED = frozenset(["git", "su", "ssh", "eval", "find"])  # what they do stands in the next words
_CODE_FOLLOWS = re.compile(r"-|-[lix]*[cCeErpm]|-[0-9.]+|-Command|-EncodedCommand|--eval|run|eval")
# What every Starlark reads the same way; other characters stand for themselves.
_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class AmendmentError(FerruleError):
    """The rule could not be stored; the command's own approval stands."""


def is_banned(prefix: Sequence[str]) -> bool:
    """True for a prefix that would allow almost anything: an interpreter, a shell, `git`, `sudo`, nothing behind it."""
    for _ in range(MAX_NESTING):
        if not prefix or not all(prefix):
            return True
        name = base_name(prefix[0])
        if not is_wrapper(name):
            return _says_too_little(name, prefix[1:])
        wrapped = unwrap(prefix)
        prefix = wrapped.argv if wrapped is not None else ()
    return True


def _says_too_little(name: str, rest: Sequence[str]) -> bool:
    if name in _OPEN_ENDED:
        return all(word.startswith("-") for word in rest)
    if name in SHELLS or _INTERPRETERS.fullmatch(name):
        return all(_CODE_FOLLOWS.fullmatch(word) for word in rest)
    return False


def rule_line(amendment: ExecPolicyAmendment) -> str:
    """The amendment as one line of a rules file."""
    words = ", ".join(f'"{word.translate(_ESCAPES)}"' for word in amendment.command)
    return f'prefix_rule(pattern=[{words}], decision="allow")\n'


def append_rule(path: Path, amendment: ExecPolicyAmendment) -> None:
    """Add the rule to the file unless it is there already. Blocking; other sessions wait. Raises `AmendmentError`."""
    line = rule_line(amendment).encode()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, _APPEND, 0o600), "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # ends with the file
            present = file.read()
            if line in present.splitlines(keepends=True):
                return
            file.write(line if not present or present.endswith(b"\n") else b"\n" + line)
    except (OSError, UnicodeEncodeError) as error:
        raise AmendmentError(f"the rule could not be added to {path}: {error}") from error


class PolicyStore:
    """The rules of a session and the file that its amendments go to."""

    def __init__(self, rules: Rules, path: Path) -> None:
        self.rules = rules
        self._path = path

    def amend(self, amendment: ExecPolicyAmendment) -> None:
        """Store the rule for good and use it from now on. Blocking. Raises `AmendmentError`, nothing changed."""
        append_rule(self._path, amendment)
        self.rules = self.rules.amended(amendment, str(self._path))
