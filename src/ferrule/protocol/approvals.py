"""Approval requests for commands, and the three possible answers. Wire names are Codex's."""

from enum import StrEnum

import msgspec

from ferrule.protocol.permissions import AskForApproval, SandboxPermissions, SandboxPolicy


class PolicyDecision(StrEnum):
    """The verdict of a rule or a heuristic on one command; the strictest of all wins."""

    ALLOW = "allow"
    PROMPT = "prompt"
    FORBIDDEN = "forbidden"


class SecurityRisk(StrEnum):
    """How much harm an action can do; `unknown` means it could not be judged."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    UNKNOWN = "unknown"


class ExecPolicyAmendment(msgspec.Struct, frozen=True):
    """A command prefix that the user may allow permanently: `prefix_rule(pattern=command, decision="allow")`.

    `exact`: only the command with exactly these words.
    """

    command: tuple[str, ...]
    exact: bool = False


class NetworkAmendment(msgspec.Struct, frozen=True):
    """A host that the user may allow permanently: `network_rule(host=host, protocol=protocol, decision="allow")`."""

    host: str
    protocol: str


class ExecApprovalRequest(msgspec.Struct, frozen=True):
    """One command before it runs. `prefix_rule` is the prefix that the model proposes to allow permanently; `env`
    holds the call's changes to the session's environment."""

    command: tuple[str, ...]
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    sandbox_permissions: SandboxPermissions = SandboxPermissions.USE_DEFAULT
    prefix_rule: tuple[str, ...] | None = None
    env: tuple[tuple[str, str], ...] = ()


class PrefixRuleMatch(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A matching rule of a `.rules` file; `source` is that file, `resolved_program` the path that was looked up."""

    matched_prefix: tuple[str, ...]
    decision: PolicyDecision
    justification: str | None = None
    resolved_program: str | None = None
    source: str | None = None


class HeuristicsRuleMatch(msgspec.Struct, frozen=True, rename="camel"):
    """A built-in judgement of a command without a rule; `heuristic` names it."""

    command: tuple[str, ...]
    decision: PolicyDecision
    heuristic: str


PolicyMatch = PrefixRuleMatch | HeuristicsRuleMatch


class Forbidden(msgspec.Struct, frozen=True, tag="forbidden"):
    """The command must not run; `reason` is shown to the model."""

    reason: str
    matched: tuple[PolicyMatch, ...] = ()


class NeedsApproval(msgspec.Struct, frozen=True, tag="needs_approval"):
    """The user decides; `reason` is shown to the user."""

    reason: str
    proposed_execpolicy_amendment: ExecPolicyAmendment | None = None
    matched: tuple[PolicyMatch, ...] = ()
    proposed_network_amendment: NetworkAmendment | None = None


class Skip(msgspec.Struct, frozen=True, tag="skip"):
    """No approval is needed. `bypass_sandbox` only if a rule of the user allows every part of the command."""

    bypass_sandbox: bool = False
    proposed_execpolicy_amendment: ExecPolicyAmendment | None = None
    matched: tuple[PolicyMatch, ...] = ()


ExecApprovalRequirement = Forbidden | NeedsApproval | Skip
