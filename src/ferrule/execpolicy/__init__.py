"""Decide whether a command may run: taken apart, judged by rules and heuristics, explained.

    decide(ExecApprovalRequest(...), load_rules(files), LocalHost(cwd, env)) -> Forbidden | NeedsApproval | Skip

`commands.py` takes a command apart (`bash.py`, `wrappers.py`); `safe.py` and `dangerous.py` judge the parts; `rules.py`
holds the user's rules, `load.py` reads them; `decision.py` puts all together; `amendment.py` adds a rule by an answer.
"""

from .amendment import DEFAULT_RULES, AmendmentError, PolicyStore
from .decision import decide
from .display import visible
from .evaluate import RulesError
from .host import Host, LocalHost, UnknownHost
from .load import load_rules, read_rules, rule_files, with_project_rules
from .report import policy_report
from .risk import command_risk
from .rules import Rules
from .shells import command_text

__all__ = [
    "DEFAULT_RULES",
    "AmendmentError",
    "Host",
    "LocalHost",
    "PolicyStore",
    "Rules",
    "RulesError",
    "UnknownHost",
    "command_risk",
    "command_text",
    "decide",
    "load_rules",
    "policy_report",
    "read_rules",
    "rule_files",
    "visible",
    "with_project_rules",
]
