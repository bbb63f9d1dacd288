"""Write a decision as JSON, for `ferrule policy check`."""

import msgspec

from ferrule.protocol.approvals import (
    ExecApprovalRequirement,
    Forbidden,
    HeuristicsRuleMatch,
    NeedsApproval,
    PolicyMatch,
    Skip,
)


def policy_report(requirement: ExecApprovalRequirement) -> dict[str, object]:
    """Return requirement, reason, bypass_sandbox, matched (Codex's match objects), proposed_execpolicy_amendment."""
    proposed = None if isinstance(requirement, Forbidden) else requirement.proposed_execpolicy_amendment
    return {
        "requirement": _name(requirement),
        "reason": None if isinstance(requirement, Skip) else requirement.reason,
        "bypass_sandbox": isinstance(requirement, Skip) and requirement.bypass_sandbox,
        "matched": [_match(match) for match in requirement.matched],
        "proposed_execpolicy_amendment": None if proposed is None else list(proposed.command),
    }


def _name(requirement: ExecApprovalRequirement) -> str:
    if isinstance(requirement, Skip):
        return "skip"
    return "needs_approval" if isinstance(requirement, NeedsApproval) else "forbidden"


def _match(match: PolicyMatch) -> dict[str, object]:
    key = "heuristicsRuleMatch" if isinstance(match, HeuristicsRuleMatch) else "prefixRuleMatch"
    # By hand, not through JSON bytes: an argument may be no valid UTF-8.
    fields: dict[str, object] = msgspec.to_builtins(match)
    return {key: {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}}
