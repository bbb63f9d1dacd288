"""Decide whether a command may run: taken apart, judged by rules and heuristics, explained.

    decide(ExecApprovalRequest(...), load_rules(files), LocalHost(cwd, env)) -> Forbidden | NeedsApproval | Skip

`commands.py` takes a command apart (`bash.py`, `wrappers.py`); `safe.py` and `dangerous.py` judge the parts; `rules.py`
holds the user's rules, `load.py` reads them; `decision.py` puts all together; `amendment.py` adds a rule by an answer.
"""

from ferrule.execpolicy.amendment import DEFAULT_RULES, AmendmentError, PolicyStore
from ferrule.execpolicy.decision import decide
from ferrule.execpolicy.display import visible
from ferrule.execpolicy.evaluate import RulesError
from ferrule.execpolicy.host import Host, LocalHost, UnknownHost
from ferrule.execpolicy.load import load_rules, read_rules, rule_files, with_project_rules
from ferrule.execpolicy.report import policy_report
from ferrule.execpolicy.risk import command_risk
from ferrule.execpolicy.rules import Rules
from ferrule.execpolicy.shells import command_text

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
