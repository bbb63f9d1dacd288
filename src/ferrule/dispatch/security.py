"""The risk of a call, who estimates it, and when it requires confirmation.

If the model is asked for it, every tool that may change things has an additional argument, `security_risk`: the
model's own estimate. It is removed before the arguments are validated.
"""

from typing import Protocol

import msgspec

from ferrule.protocol.approvals import SecurityRisk
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_text import decode
from ferrule.protocol.payload import FunctionPayload, McpPayload
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.context import ToolInvocation
from ferrule.tools.effects import CommandEffect, Effect, McpEffect, NetworkEffect, PatchEffect, ToolEffect
from ferrule.tools.risk_field import RISK_FIELD

_ORDER = (SecurityRisk.LOW, SecurityRisk.MEDIUM, SecurityRisk.HIGH)


def pop_risk(invocation: ToolInvocation) -> ToolInvocation:
    """Move the model's estimate from the arguments to the invocation."""
    payload = invocation.payload
    if not isinstance(payload, FunctionPayload | McpPayload):
        return invocation
    raw = payload.arguments if isinstance(payload, FunctionPayload) else payload.raw_arguments
    if RISK_FIELD not in raw:
        return invocation
    try:
        arguments = decode(raw)
    except RespondToModel:  # the tool's own parser reports what is wrong
        return invocation
    if not isinstance(arguments, dict) or RISK_FIELD not in arguments:
        return invocation
    stated = str(arguments.pop(RISK_FIELD)).lower()  # some families were trained on upper case
    risk = SecurityRisk(stated) if stated in set(SecurityRisk) else SecurityRisk.UNKNOWN
    return msgspec.structs.replace(invocation, decoded=arguments, risk=risk)


class SecurityAnalyzer(Protocol):
    """Estimates the risk of an effect before it happens. `stated` is the model's own estimate."""

    def assess(self, effect: Effect, stated: SecurityRisk) -> SecurityRisk: ...


class RuleBased:
    """Checks the facts, and takes the worse of them and the model's estimate."""

    def assess(self, effect: Effect, stated: SecurityRisk) -> SecurityRisk:
        """Return the risk of the command, patch or call."""
        match effect:
            case CommandEffect(argv=argv):
                from ferrule.execpolicy import command_risk

                found = command_risk(argv)
            case PatchEffect(changes=changes):
                deletes = any(change.kind == "delete" for change in changes)
                found = SecurityRisk.MEDIUM if deletes else SecurityRisk.LOW
            case McpEffect(annotations=hints):
                found = _hinted(hints, SecurityRisk.HIGH)
            case ToolEffect(annotations=hints):
                found = _hinted(hints, SecurityRisk.UNKNOWN)
            case NetworkEffect():
                found = SecurityRisk.MEDIUM
        return worse(found, stated)


def _hinted(hints: ToolAnnotations, unsaid: SecurityRisk) -> SecurityRisk:
    """Return the risk by what a tool says of itself; `unsaid` where it does not say whether it destroys."""
    if hints.readOnlyHint or hints.destructiveHint is False:
        return SecurityRisk.LOW
    return SecurityRisk.HIGH if hints.destructiveHint else unsaid


def worse(one: SecurityRisk, other: SecurityRisk) -> SecurityRisk:
    """Return the higher of two risks; an unknown one counts only if nothing else is known."""
    known = [risk for risk in (one, other) if risk is not SecurityRisk.UNKNOWN]
    return max(known, key=_ORDER.index, default=SecurityRisk.UNKNOWN)


class ConfirmationPolicy(Protocol):
    """Decides whether a risk requires confirmation."""

    def should_confirm(self, risk: SecurityRisk) -> bool: ...


class AlwaysConfirm:
    """Confirms every effect."""

    def should_confirm(self, risk: SecurityRisk) -> bool:
        """Return True."""
        return True


class NeverConfirm:
    """Never confirms because of risk alone."""

    def should_confirm(self, risk: SecurityRisk) -> bool:
        """Return False."""
        return False


class ConfirmRisky(msgspec.Struct, frozen=True):
    """Confirms effects from `threshold` on, and those of unknown risk unless configured otherwise."""

    threshold: SecurityRisk = SecurityRisk.HIGH
    confirm_unknown: bool = True

    def should_confirm(self, risk: SecurityRisk) -> bool:
        """Return whether the risk reaches the threshold."""
        if risk is SecurityRisk.UNKNOWN:
            return self.confirm_unknown
        return _ORDER.index(risk) >= _ORDER.index(self.threshold)


class Security(msgspec.Struct, frozen=True):
    """The analyzer, and the policy that turns its result into a question."""

    analyzer: SecurityAnalyzer = msgspec.field(default_factory=RuleBased)
    policy: ConfirmationPolicy = msgspec.field(default_factory=NeverConfirm)

    def reason_to_ask(self, effect: Effect, stated: SecurityRisk) -> str | None:
        """Return why the user should confirm the effect, or None."""
        risk = self.analyzer.assess(effect, stated)
        return f"its risk is {risk}" if self.policy.should_confirm(risk) else None


def confirmation_policy(name: str) -> ConfirmationPolicy:
    """Return the policy for a setting: always, never, or risky."""
    policies: dict[str, ConfirmationPolicy] = {
        "always": AlwaysConfirm(),
        "never": NeverConfirm(),
        "risky": ConfirmRisky(),
    }
    return policies[name]
