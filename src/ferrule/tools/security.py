"""How much harm a call can do, who says so, and when that is reason enough to ask.

With a model that is asked for it, every tool that may change things carries one more argument, `security_risk`: the
model's own estimate. It is taken out before the arguments are validated.
"""

from typing import Protocol

import msgspec

from ferrule.execpolicy import command_risk
from ferrule.protocol.approvals import SecurityRisk
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_text import decode
from ferrule.protocol.payload import FunctionPayload, McpPayload
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.context import ToolInvocation
from ferrule.tools.effects import CommandEffect, Effect, McpEffect, PatchEffect, ToolEffect
from ferrule.tools.risk_field import RISK_FIELD

_ORDER = (SecurityRisk.LOW, SecurityRisk.MEDIUM, SecurityRisk.HIGH)


def pop_risk(invocation: ToolInvocation) -> ToolInvocation:
    """The invocation without the model's estimate among its arguments, and with it beside them."""
    payload = invocation.payload
    if not isinstance(payload, FunctionPayload | McpPayload):
        return invocation
    raw = payload.arguments if isinstance(payload, FunctionPayload) else payload.raw_arguments
    if RISK_FIELD not in raw:
        return invocation
    try:
        arguments = decode(raw)
    except RespondToModel:  # the tool's own reading says what is wrong
        return invocation
    if not isinstance(arguments, dict) or RISK_FIELD not in arguments:
        return invocation
    stated = str(arguments.pop(RISK_FIELD)).lower()  # some families were trained on capitals
    risk = SecurityRisk(stated) if stated in set(SecurityRisk) else SecurityRisk.UNKNOWN
    return msgspec.structs.replace(invocation, decoded=arguments, risk=risk)


class SecurityAnalyzer(Protocol):
    """Judges an effect before it happens. `stated` is the model's own estimate."""

    def assess(self, effect: Effect, stated: SecurityRisk) -> SecurityRisk: ...


class ModelEstimate:
    """Believes the model."""

    def assess(self, effect: Effect, stated: SecurityRisk) -> SecurityRisk:
        """The model's estimate."""
        return stated


class RuleBased:
    """Looks at the facts, and takes the worse of them and the model's estimate."""

    def assess(self, effect: Effect, stated: SecurityRisk) -> SecurityRisk:
        """The risk of the command, patch or call."""
        match effect:
            case CommandEffect(argv=argv):
                found = command_risk(argv)
            case PatchEffect(changes=changes):
                deletes = any(change.kind == "delete" for change in changes)
                found = SecurityRisk.MEDIUM if deletes else SecurityRisk.LOW
            case McpEffect(annotations=hints):
                found = _hinted(hints, SecurityRisk.HIGH)
            case ToolEffect(annotations=hints):
                found = _hinted(hints, SecurityRisk.UNKNOWN)
        return worse(found, stated)


def _hinted(hints: ToolAnnotations, unsaid: SecurityRisk) -> SecurityRisk:
    """The risk by what a tool says of itself; `unsaid` where it does not say whether it destroys."""
    if hints.readOnlyHint or hints.destructiveHint is False:
        return SecurityRisk.LOW
    return SecurityRisk.HIGH if hints.destructiveHint else unsaid


def worse(one: SecurityRisk, other: SecurityRisk) -> SecurityRisk:
    """The higher of two risks; an unknown one only counts where nothing else is known."""
    known = [risk for risk in (one, other) if risk is not SecurityRisk.UNKNOWN]
    return max(known, key=_ORDER.index, default=SecurityRisk.UNKNOWN)


class ConfirmationPolicy(Protocol):
    """Says whether a risk is reason enough to ask."""

    def should_confirm(self, risk: SecurityRisk) -> bool: ...


class AlwaysConfirm:
    """Every effect is asked about."""

    def should_confirm(self, risk: SecurityRisk) -> bool:
        """Yes."""
        return True


class NeverConfirm:
    """Risk alone is never a reason."""

    def should_confirm(self, risk: SecurityRisk) -> bool:
        """No."""
        return False


class ConfirmRisky(msgspec.Struct, frozen=True):
    """Effects from `threshold` on are asked about, and those of unknown risk unless said otherwise."""

    threshold: SecurityRisk = SecurityRisk.HIGH
    confirm_unknown: bool = True

    def should_confirm(self, risk: SecurityRisk) -> bool:
        """Whether the risk reaches the threshold."""
        if risk is SecurityRisk.UNKNOWN:
            return self.confirm_unknown
        return _ORDER.index(risk) >= _ORDER.index(self.threshold)


class Security(msgspec.Struct, frozen=True):
    """Who judges, and when that leads to a question."""

    analyzer: SecurityAnalyzer = msgspec.field(default_factory=RuleBased)
    policy: ConfirmationPolicy = msgspec.field(default_factory=NeverConfirm)

    def reason_to_ask(self, effect: Effect, stated: SecurityRisk) -> str | None:
        """Why the user should confirm the effect, or None."""
        risk = self.analyzer.assess(effect, stated)
        return f"its risk is {risk}" if self.policy.should_confirm(risk) else None


def confirmation_policy(name: str) -> ConfirmationPolicy:
    """The policy of a setting: always, never, or risky."""
    policies: dict[str, ConfirmationPolicy] = {
        "always": AlwaysConfirm(),
        "never": NeverConfirm(),
        "risky": ConfirmRisky(),
    }
    return policies[name]
