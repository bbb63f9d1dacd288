"""What approval an effect needs, what the user is shown for it, and the keys of remembered answers. Pure."""

import hashlib
import shlex

import msgspec

from ferrule.egress.names import DomainNames
from ferrule.execpolicy import Host, Rules, command_text, visible
from ferrule.protocol.approvals import (
    ExecApprovalRequest,
    ExecApprovalRequirement,
    Forbidden,
    NeedsApproval,
    NetworkAmendment,
    PolicyDecision,
    Skip,
)
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.permissions import (
    AskForApproval,
    ReadOnly,
    ReviewDecision,
    SandboxPermissions,
    SandboxPolicy,
)
from ferrule.sandbox.boundary import Boundary
from ferrule.sandbox.plan import not_allowed
from ferrule.tools.context import Permissions
from ferrule.tools.effects import CommandEffect, Effect, McpEffect, NetworkEffect, PatchEffect, ToolEffect

ApprovalKey = tuple[str, ...]

OUTSIDE = "patch rejected: writing outside of the project; rejected by user approval settings"
READ_ONLY = "patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings"


def requirement_of(
    effect: Effect, permissions: Permissions, boundary: Boundary | None, rules: Rules, host: Host
) -> ExecApprovalRequirement:
    """Return whether the effect is forbidden, needs approval, or simply proceeds. `boundary` None: nothing is
    confined."""
    policy = permissions.approval_policy
    if isinstance(effect, CommandEffect):
        from ferrule.execpolicy import decide

        request = ExecApprovalRequest(
            effect.argv,
            policy,
            permissions.sandbox_policy,
            effect.sandbox_permissions,
            effect.prefix_rule,
            effect.env,
        )
        return decide(request, rules, host)
    if isinstance(effect, PatchEffect):
        return _patch(effect, permissions, boundary)
    if isinstance(effect, McpEffect):
        return _mcp(effect, policy)
    if isinstance(effect, NetworkEffect):
        return network_requirement(effect, permissions, rules)
    return _tool(effect, policy)


def _patch(effect: PatchEffect, permissions: Permissions, boundary: Boundary | None) -> ExecApprovalRequirement:
    policy = permissions.approval_policy
    never = policy is AskForApproval.NEVER
    if policy is AskForApproval.UNTRUSTED:
        return NeedsApproval("every patch is asked for under the approval policy untrusted")
    if boundary is not None:
        blocked = [path for path in effect.paths if boundary.refusal(path)]
        if blocked and never:
            read_only = isinstance(permissions.sandbox_policy, ReadOnly)
            return Forbidden(READ_ONLY if read_only else OUTSIDE)
        if blocked:
            return NeedsApproval(f"it writes where the sandbox does not: {', '.join(map(_one_line, blocked))}")
    if effect.risks and boundary is not None:
        reason = "; ".join(map(_one_line, effect.risks))
        return (
            Forbidden(f"patch rejected: {reason}; rejected by user approval settings")
            if never
            else NeedsApproval(reason)
        )
    return Skip()


def _mcp(effect: McpEffect, policy: AskForApproval) -> ExecApprovalRequirement:
    hints = effect.annotations
    if effect.approval == "allow" or (effect.approval == "auto" and hints.readOnlyHint):
        return Skip()
    if policy is AskForApproval.NEVER:
        setting = 'require_approval = "never"' if effect.approval == "provider" else 'approval = "allow"'
        return Forbidden(
            f"MCP tool call requires approval, but the approval policy is never; the setting {setting} of the "
            f"server {effect.server} permits its tools"
        )
    return NeedsApproval(f"the tool {effect.tool} of the MCP server {effect.server} may change things")


def _tool(effect: ToolEffect, policy: AskForApproval) -> ExecApprovalRequirement:
    if effect.warnings:
        warned = "; ".join(map(_one_line, effect.warnings))
        if policy is AskForApproval.NEVER:
            return Forbidden(f"the user would have to confirm this, and the approval policy is never: {warned}")
        return NeedsApproval(f"the model's provider warns: {warned}")
    if policy is AskForApproval.UNTRUSTED and not effect.annotations.readOnlyHint:
        return NeedsApproval(f"the tool {effect.name} may change things")
    return Skip()


def network_requirement(effect: NetworkEffect, permissions: Permissions, rules: Rules) -> ExecApprovalRequirement:
    """Return whether a command may reach a host."""
    rule = rules.network_rule(effect.host, effect.protocol)
    decision = rule.decision if rule else PolicyDecision.ALLOW if effect.listed else None
    if decision is PolicyDecision.ALLOW:
        return Skip()
    why = f": {rule.justification}" if rule and rule.justification else ""
    if decision is PolicyDecision.FORBIDDEN:
        return Forbidden(f"A rule forbids {effect.url}{why}.")
    if permissions.approval_policy is AskForApproval.NEVER or not permissions.answers_approvals:
        if rule:
            return Forbidden(f"A rule asks before {effect.url} is reached{why}, and nobody can be asked.")
        access = getattr(permissions.sandbox_policy, "network_access", ())
        return Forbidden(not_allowed(effect.host, DomainNames(access)))
    # A rule that allows would not count beside one that asks.
    proposed = None if rule else NetworkAmendment(effect.host, effect.protocol)
    return NeedsApproval(f"a command wants to reach {effect.host}{why}", proposed_network_amendment=proposed)


def approval_keys(effect: Effect, policy: SandboxPolicy) -> tuple[ApprovalKey, ...]:
    """Return what a session approval remembers; all of an effect's keys must be known for it to count. It is for a
    sandbox as wide as this one: a sub-agent with fewer rights asks again."""
    rights = msgspec.json.encode(policy).decode()
    return tuple((rights, *key) for key in _keys(effect))


def _keys(effect: Effect) -> tuple[ApprovalKey, ...]:
    match effect:
        case CommandEffect(argv=argv, cwd=cwd, env=env, tty=tty, sandbox_permissions=wider):
            return (("command", cwd, wider, str(tty), *(f"{k}={v}" for k, v in env), "--", *argv),)
        case PatchEffect(paths=paths):
            return tuple(("patch", path) for path in paths)
        case McpEffect(server=server, tool=tool, arguments=arguments):
            return (("mcp", server, tool, arguments),)
        case ToolEffect(name=name, arguments=arguments, warnings=warnings):
            return (("tool", name, arguments, *warnings),)
        case NetworkEffect(host=host):
            return (("network", host),)


def fingerprint(effect: Effect) -> str:
    """Return a hash of everything that will happen; the approval is bound to it."""
    return hashlib.sha256(msgspec.msgpack.encode(msgspec.to_builtins(effect))).hexdigest()


def approval_text(effect: Effect) -> str:
    """Return everything that will happen, with control, zero-width and bidi characters escaped."""
    match effect:
        case CommandEffect(argv=argv, env=env):
            changes = "".join(f"{name}={shlex.quote(value)} " for name, value in env)
            return visible(changes + command_text(argv))
        case PatchEffect(text=text):
            return visible(text)
        case McpEffect(server=server, tool=tool, arguments=arguments):
            return visible(f"{server}/{tool} {arguments}")
        case ToolEffect(name=name, arguments=arguments):
            return visible(f"{name} {arguments}")
        case NetworkEffect():
            return visible(effect.url)


def question(effect: Effect, call_id: str, needs: NeedsApproval, *, reason: str | None = None) -> ExecApproval:
    """Build the question for the user."""
    decisions = [ReviewDecision.APPROVED, ReviewDecision.APPROVED_FOR_SESSION]
    amendment, network = needs.proposed_execpolicy_amendment, needs.proposed_network_amendment
    if amendment is not None or network is not None:
        decisions.append(ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT)
    justification = _one_line((effect.justification if isinstance(effect, CommandEffect) else None) or "")
    asked = reason or needs.reason
    return ExecApproval(
        request_id="",
        call_id=call_id,
        kind=type(effect).__name__.removesuffix("Effect").lower(),
        text=approval_text(effect),
        reason=f"{asked} (the model says: {justification})" if justification else asked,
        cwd=_one_line(effect.cwd) if isinstance(effect, CommandEffect | PatchEffect) else None,
        decisions=(*decisions, ReviewDecision.DENIED, ReviewDecision.ABORT),
        proposed_execpolicy_amendment=None if amendment is None else amendment.command,
        proposed_network_host=None if network is None else network.host,
        proposes_exact=amendment is not None and amendment.exact,
        fingerprint=fingerprint(effect),
        justification=justification,
        changes=effect.changes if isinstance(effect, PatchEffect) else (),
    )


def outgrows(effect: Effect, boundary: Boundary) -> bool:
    """Return whether the effect, once approved, needs more than the sandbox allows."""
    if isinstance(effect, CommandEffect):
        return effect.sandbox_permissions is SandboxPermissions.REQUIRE_ESCALATED
    return isinstance(effect, PatchEffect) and any(map(boundary.refusal, effect.paths))


_REFUSED = {
    CommandEffect: "exec command rejected by user",
    PatchEffect: "patch rejected by user",
    McpEffect: "user rejected MCP tool call",
    ToolEffect: "tool call rejected by user",
    NetworkEffect: "network access rejected by user",
}


def rejected(effect: Effect, message: str | None = None) -> str:
    """Return the model's text after a refusal by the user."""
    text = _REFUSED[type(effect)]
    return f"{text}: {message}" if message else text


def _one_line(text: str) -> str:
    return visible(text, multiline=False)
