"""Decide what your own command reaches in the model's sandbox: as in a session where nobody can be asked."""

from collections.abc import Iterable
from pathlib import Path

from ferrule.cli.options import print_warnings
from ferrule.dispatch.approval import network_requirement
from ferrule.dispatch.network import network_effect
from ferrule.execpolicy import load_rules, rule_files, with_project_rules
from ferrule.protocol.approvals import Forbidden
from ferrule.protocol.permissions import AskForApproval
from ferrule.protocol.settings import Settings
from ferrule.sandbox.local_way import AskingNobody
from ferrule.sandbox.protection import Report
from ferrule.tools.context import Permissions


class ByRules(AskingNobody):
    """Lets through what the list has and the rules allow."""

    def __init__(self, settings: Settings, report: Report) -> None:
        super().__init__(report)
        self._permissions = Permissions(AskForApproval.NEVER, settings.sandbox_policy)
        self._rules, warnings = with_project_rules(
            load_rules(rule_files([Path(settings.home)])), settings.project_rules
        )
        print_warnings(warnings)

    def names(self) -> Iterable[str]:
        """Return the hosts that rules allow."""
        return self._rules.allowed_hosts

    async def decide(self, host: str, port: int, listed: bool) -> str | None:
        """See `Decider.decide`."""
        needs = network_requirement(network_effect(host, port, listed), self._permissions, self._rules)
        return needs.reason if isinstance(needs, Forbidden) else None
