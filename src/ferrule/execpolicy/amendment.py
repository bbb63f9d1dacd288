"""Add a rule that the user answers with: store it, and use it at once."""

import os
from pathlib import Path

from ferrule.execpolicy.rules import Rules
from ferrule.locks import lock_patiently
from ferrule.protocol.approvals import ExecPolicyAmendment, NetworkAmendment
from ferrule.protocol.errors import FerruleError

DEFAULT_RULES = Path("rules", "default.rules")  # below FERRULE_HOME
# What every Starlark reads the same way; other characters stand for themselves.
_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class AmendmentError(FerruleError):
    """The rule could not be stored; the command's own approval stands."""


def rule_line(amendment: ExecPolicyAmendment | NetworkAmendment) -> str:
    """Return the amendment as one line of a rules file."""
    if isinstance(amendment, NetworkAmendment):
        return f'network_rule(host="{amendment.host}", protocol="{amendment.protocol}", decision="allow")\n'
    words = ", ".join(f'"{word.translate(_ESCAPES)}"' for word in amendment.command)
    exact = ", exact=True" if amendment.exact else ""
    return f'prefix_rule(pattern=[{words}], decision="allow"{exact})\n'


def append_rule(path: Path, amendment: ExecPolicyAmendment | NetworkAmendment) -> None:
    """Add the rule to the file unless it is there already. Blocking, for a moment. Raises `AmendmentError`."""
    line = rule_line(amendment).encode()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, _APPEND, 0o600), "rb+") as file:
            lock_patiently(file.fileno())  # without it, the rule may be there twice
            present = file.read()
            if line in present.splitlines(keepends=True):
                return
            file.write(line if not present or present.endswith(b"\n") else b"\n" + line)
    except (OSError, UnicodeEncodeError) as error:
        raise AmendmentError(f"the rule could not be added to {path}: {error}") from error


class PolicyStore:
    """The rules of a session and the file that its amendments go to. `approved` has the keys of what the user has
    approved until the session ends. Sub-agents share it all."""

    def __init__(self, rules: Rules, path: Path) -> None:
        self.rules = rules
        self.approved: set[tuple[str, ...]] = set()
        self._path = path

    def amend(self, amendment: ExecPolicyAmendment | NetworkAmendment) -> None:
        """Store the rule for good and use it from now on. Blocking. Raises `AmendmentError` with nothing changed."""
        append_rule(self._path, amendment)
        self.rules = self.rules.amended(amendment, str(self._path))
