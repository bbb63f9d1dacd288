"""Decide whether a command may run, from the rules, the heuristics, the approval policy and the sandbox.

The strictest verdict on any part wins. Rules that restrict and the dangerous list apply to every command found; rules
that allow and the heuristics apply to the segments, which are all that happens.
"""

import shlex
from collections.abc import Iterator, Sequence

import msgspec

from ferrule.execpolicy.commands import CommandFacts, SeenCommand, bare, take_apart
from ferrule.execpolicy.dangerous import is_dangerous
from ferrule.execpolicy.display import visible
from ferrule.execpolicy.environment import is_harmless
from ferrule.execpolicy.host import Host, UnknownHost
from ferrule.execpolicy.offers import offer
from ferrule.execpolicy.rules import Matches, Rules, strictness
from ferrule.execpolicy.safe import is_known_safe
from ferrule.execpolicy.script import SimpleCommand
from ferrule.execpolicy.started import starts_no_more
from ferrule.execpolicy.unknown import may_start_restricted
from ferrule.protocol.approvals import (
    ExecApprovalRequest,
    ExecApprovalRequirement,
    ExecPolicyAmendment,
    Forbidden,
    HeuristicsRuleMatch,
    NeedsApproval,
    PolicyDecision,
    PolicyMatch,
    PrefixRuleMatch,
    Skip,
)
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    ExternalSandbox,
    SandboxPermissions,
)

NO_ESCALATION = (
    "approval policy is Never; reject command — you cannot ask for escalated permissions"
    " if the approval policy is Never"
)
NOBODY_TO_ASK = "approval required by policy, but AskForApproval is set to Never"
UNREAD = (
    "which programs it starts cannot be read before it runs, and rules forbid some. Write programs and scripts out,"
    " without variables or substitutions"
)
NO_FORCED_DELETION = "rm -f style commands are not permitted. Use a safer approach"

# Why a heuristic asks, as the user reads it.
_ASKED = {
    "dangerous": "it deletes files by force",
    "not_known_safe": "it is not known to be read-only",
    "escalation": "it asks to run without the sandbox",
    "unread": "which programs it starts is known only when it runs, and rules forbid or ask about some",
}


class _Verdict(msgspec.Struct, frozen=True):
    """A verdict on one command. A rule for the first of `amendable` would settle it, if all of them may be freed."""

    match: PolicyMatch
    amendable: tuple[SimpleCommand, ...] = ()

    @property
    def decision(self) -> PolicyDecision:
        return self.match.decision

    @property
    def by_rule(self) -> bool:
        return isinstance(self.match, PrefixRuleMatch)


def decide(request: ExecApprovalRequest, rules: Rules, host: Host | None = None) -> ExecApprovalRequirement:
    """Decide whether the command is forbidden, needs approval, or runs. Pure but for `host`'s lookups; never raises.

    Without a `host`, git never counts as safe and links are not followed.
    """
    escalated = request.sandbox_permissions is not SandboxPermissions.USE_DEFAULT
    if escalated and request.approval_policy is AskForApproval.NEVER:
        return Forbidden(NO_ESCALATION, (_heuristic(request.command, PolicyDecision.FORBIDDEN, "escalation"),))
    judge = _Judge(request, rules, host or UnknownHost())
    return judge.requirement()


def _heuristic(command: Sequence[str], decision: PolicyDecision, name: str) -> HeuristicsRuleMatch:
    return HeuristicsRuleMatch(tuple(map(str, command)), decision, name)


def _dangerous(command: SimpleCommand) -> HeuristicsRuleMatch:
    return _heuristic(command.argv, PolicyDecision.PROMPT, "dangerous")


def _unread(command: SimpleCommand) -> HeuristicsRuleMatch:
    return _heuristic(command.argv, PolicyDecision.PROMPT, "unread")


def _is_meant(match: PrefixRuleMatch, command: SimpleCommand) -> bool:
    """Return False for a rule that allows `find .` if `-exec` after it starts something."""
    return match.decision is not PolicyDecision.ALLOW or starts_no_more(command, len(match.matched_prefix))


class _Judge:
    """Decides one request."""

    def __init__(self, request: ExecApprovalRequest, rules: Rules, host: Host) -> None:
        self.request = request
        self.rules = rules
        self.host = host
        self.facts: CommandFacts = take_apart(request.command, request.env, host.is_exposed)

    def requirement(self) -> ExecApprovalRequirement:
        verdicts = [*self._restrictions()]
        for segment in self.facts.segments:
            verdicts += self._segment(segment)
        decision = max((verdict.decision for verdict in verdicts), key=strictness)
        matched = tuple(dict.fromkeys(verdict.match for verdict in verdicts))
        deciding = [verdict for verdict in verdicts if verdict.decision is decision]
        if decision is PolicyDecision.FORBIDDEN:
            return Forbidden(self._text("rejected", deciding), matched)
        amendment = self._amendment(deciding, verdicts)
        if decision is PolicyDecision.ALLOW:
            return Skip(all(verdict.by_rule for verdict in verdicts), amendment, matched)
        if self.request.approval_policy is AskForApproval.NEVER:
            return Forbidden(self._refusal(deciding), matched)
        return NeedsApproval(self._text("requires approval", deciding), amendment, matched)

    def _match(self, command: SimpleCommand) -> Matches:
        if not self.rules or not command.argv:
            return Matches()
        found = self.rules.match(command.argv, self.host.resolve(command.argv[0])).found
        return Matches(tuple(match for match in found if _is_meant(match, command)))

    def _settled_by_rule(self, command: SimpleCommand) -> bool:
        return bool(self._match(command).found) and self._may_be_freed(command)

    def _may_be_freed(self, command: SimpleCommand) -> bool:
        """Return True if a rule may free the command: the program is the one meant, its variables are harmless."""
        exposed = self.host.is_exposed
        return is_harmless(command.env, exposed) and bool(command.argv) and not exposed(command.argv[0])

    def _restrictions(self) -> Iterator[_Verdict]:
        """Apply rules that forbid or ask, and the dangerous list, to every command found."""
        for seen in self.facts.seen:
            command = seen.command
            found = self._match(command).found
            restricting = [match for match in found if match.decision is not PolicyDecision.ALLOW]
            yield from map(_Verdict, restricting)
            if not restricting and self._may_restrict(command) and not self._lifted(seen):
                yield _Verdict(_unread(command))
            if is_dangerous(command.argv) and not self._lifted(seen):
                outer = next(outer.command for outer in seen.chain() if outer.direct)
                yield _Verdict(_dangerous(command), (outer,) if outer.literal else ())

        if self.rules.restricts:
            yield from (_Verdict(_unread(seen.command)) for seen in self.facts.unread if not self._lifted(seen))

    def _may_restrict(self, command: SimpleCommand) -> bool:
        """Return True if a rule that forbids or asks may apply to the command or to what it starts."""
        if not command.argv or not self.rules.restricts:
            return False
        resolved = self.host.resolve(command.argv[0])
        return self.rules.may_restrict(command.argv, resolved) or may_start_restricted(command.argv, self.rules)

    def _lifted(self, seen: SeenCommand) -> bool:
        """Return True if a rule allows the command itself, or one that starts it."""
        return any(outer.direct and self._settled_by_rule(outer.command) for outer in seen.chain())

    def _segment(self, segment: SimpleCommand) -> list[_Verdict]:
        """Judge one segment by the rules, or else by the heuristics."""
        inner = bare(segment)
        matches = self._match(segment)
        if not matches.found and inner is not segment:
            matches = self._match(inner)
        restricted = any(match.decision is not PolicyDecision.ALLOW for match in matches.found)
        commands = (inner,) if inner is segment else (inner, segment)
        if matches.found and (restricted or all(map(self._may_be_freed, commands))):
            return [_Verdict(match) for match in matches.found]
        if is_dangerous(inner.argv):
            return [_Verdict(_dangerous(inner), commands)]
        decision, name = self._by_heuristic(inner)
        return [_Verdict(_heuristic(inner.argv, decision, name), commands)]

    def _by_heuristic(self, command: SimpleCommand) -> tuple[PolicyDecision, str]:
        policy = self.request.approval_policy
        if policy is AskForApproval.NEVER:
            return PolicyDecision.ALLOW, "never_asks"
        if policy is AskForApproval.UNTRUSTED:
            if is_known_safe(self.facts, self.host, command):
                return PolicyDecision.ALLOW, "known_safe"
            return PolicyDecision.PROMPT, "not_known_safe"
        if isinstance(self.request.sandbox_policy, DangerFullAccess | ExternalSandbox):
            return PolicyDecision.ALLOW, "unconfined"
        if self.request.sandbox_permissions is not SandboxPermissions.USE_DEFAULT:
            return PolicyDecision.PROMPT, "escalation"
        return PolicyDecision.ALLOW, "sandboxed"

    def _command(self) -> str:
        return visible(shlex.join(self.request.command))

    def _text(self, what: str, deciding: Sequence[_Verdict]) -> str:
        """Return the reason, such as "`cmd` rejected: no pushing". The rule with the longest prefix speaks."""
        rules = [verdict.match for verdict in deciding if isinstance(verdict.match, PrefixRuleMatch)]
        if not rules:
            return f"`{self._command()}` {what}: {_ASKED[_heuristic_name(deciding)]}"
        rule = max(rules, key=lambda match: len(match.matched_prefix))
        if rule.justification is not None:
            return f"`{self._command()}` {what}: {visible(rule.justification)}"
        if rule.decision is PolicyDecision.PROMPT:
            return f"`{self._command()}` {what} by policy"
        return f"`{self._command()}` {what}: policy forbids commands starting with `{shlex.join(rule.matched_prefix)}`"

    def _refusal(self, deciding: Sequence[_Verdict]) -> str:
        """Return the reason for refusing what would be asked about if somebody could be asked."""
        if any(verdict.by_rule for verdict in deciding):
            return NOBODY_TO_ASK
        if _heuristic_name(deciding) == "unread":
            return f"`{self._command()}` rejected: {UNREAD}"
        return f"`{self._command()}` rejected: {NO_FORCED_DELETION}"

    def _amendment(self, deciding: Sequence[_Verdict], verdicts: Sequence[_Verdict]) -> ExecPolicyAmendment | None:
        """Return the rule to offer: the model's if it settles the whole command, else one for the first open part."""
        if not self.facts.word_only or any(verdict.by_rule for verdict in deciding):
            return None
        asked = self._asked()
        if asked is not None and not any(verdict.by_rule for verdict in verdicts):
            amended = _Judge(self.request, self.rules.amended(asked), self.host)
            if all(amended._settled_by_rule(bare(segment)) for segment in self.facts.segments):
                return asked
        undecided = (verdict.amendable for verdict in deciding if verdict.amendable)
        command = next((found[0] for found in undecided if all(map(self._may_be_freed, found))), None)
        return None if command is None else offer(command.argv, is_whole=True)

    def _asked(self) -> ExecPolicyAmendment | None:
        """Return the rule that the model proposes, if it may be offered."""
        prefix = self.request.prefix_rule
        if not prefix:
            return None
        return offer(prefix, is_whole=any(prefix in (part.argv, bare(part).argv) for part in self.facts.segments))


def _heuristic_name(verdicts: Sequence[_Verdict]) -> str:
    return next(verdict.match.heuristic for verdict in verdicts if isinstance(verdict.match, HeuristicsRuleMatch))
