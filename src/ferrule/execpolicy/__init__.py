"""Decide whether a command may run, and explain why.

    decide(ExecApprovalRequest(...), load_rules(files), LocalHost(cwd, env)) -> Forbidden | NeedsApproval | Skip

`commands.py` takes a command apart (`bash.py`, `wrappers.py`); `safe.py` and `dangerous.py` judge the parts; `rules.py`
holds the user's rules, `load.py` reads them; `decision.py` combines them; `amendment.py` adds a rule
that the user answers with.

Names are imported on first use: most of the modules read scripts, which a session does not need when it opens.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrule.execpolicy.amendment import DEFAULT_RULES, AmendmentError, PolicyStore
    from ferrule.execpolicy.decision import decide
    from ferrule.execpolicy.display import visible
    from ferrule.execpolicy.evaluate import RulesError
    from ferrule.execpolicy.host import Host, UnknownHost
    from ferrule.execpolicy.invocation import command_text
    from ferrule.execpolicy.load import load_rules, read_rules, rule_files, with_project_rules
    from ferrule.execpolicy.local_host import LocalHost
    from ferrule.execpolicy.report import policy_report
    from ferrule.execpolicy.risk import command_risk
    from ferrule.execpolicy.rules import Rules

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

_HOMES = {
    "DEFAULT_RULES": "amendment", "AmendmentError": "amendment", "Host": "host", "LocalHost": "local_host",
    "PolicyStore": "amendment", "Rules": "rules", "RulesError": "evaluate", "UnknownHost": "host",
    "command_risk": "risk", "command_text": "invocation", "decide": "decision", "load_rules": "load",
    "policy_report": "report", "read_rules": "load", "rule_files": "load", "visible": "display",
    "with_project_rules": "load",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
