"""The implementation of `ctx.run`: the only place for approval, the choice of a sandbox, the attempt and a retry."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from ferrule.dispatch.approval import (
    approval_keys,
    network_requirement,
    outgrows,
    question,
    rejected,
    requirement_of,
)
from ferrule.dispatch.denial import is_likely_denied
from ferrule.dispatch.network import Rejected
from ferrule.dispatch.security import Security
from ferrule.dispatch.workspace import Workspace
from ferrule.execpolicy import AmendmentError, LocalHost, PolicyStore
from ferrule.process.launcher import Launcher
from ferrule.protocol.approvals import (
    ExecApprovalRequirement,
    ExecPolicyAmendment,
    Forbidden,
    NeedsApproval,
    NetworkAmendment,
    Skip,
)
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import ExecApproval, WarningEvent
from ferrule.protocol.permissions import AskForApproval, ReviewDecision
from ferrule.sandbox.boundary import Boundary
from ferrule.tools.context import Access, Attempt, ToolContext
from ferrule.tools.effects import CommandEffect, CommandResult, Effect, NetworkEffect
from ferrule.tools.files import Files
from ferrule.tools.questions import Answer, Decision, NoAnswer
from ferrule.tools.tasks import run_blocking

T = TypeVar("T")

PermissionHook = Callable[[ToolContext, Effect], Awaitable[Decision | None]]

RETRY_REASON = "command failed; retry without sandbox?"
RETRY_NOTICE = "note: the sandbox stopped a first run; parts of the command may have run twice"


class Orchestrator:
    """The session's only orchestrator: grants each effect its access, and asks if the policy requires it.

    `permission_hook` is called before the user is asked for a first approval; never for a retry.
    """

    __slots__ = ("_env", "_freed", "_permission_hook", "_plain", "_policies", "_security", "_workspace")

    def __init__(
        self,
        plain: Launcher,
        workspace: Workspace,
        policies: PolicyStore,
        env: Mapping[str, str] = os.environ,
        security: Security | None = None,
        permission_hook: PermissionHook | None = None,
    ) -> None:
        self._plain = workspace.unconfined(plain)
        self._freed = workspace.freed(self._plain)
        self._workspace = workspace
        if workspace.network is not None:
            workspace.network.judge = self
        self._policies = policies
        self._env = env
        self._security = security or Security()
        self._permission_hook = permission_hook

    async def run(self, ctx: ToolContext, effect: Effect, attempt: Attempt[T]) -> T:
        """Run `attempt` with the access that the policy grants, and perhaps once more without the sandbox.

        Raises `RespondToModel` if it is refused.
        """
        boundary = await self._boundary(effect)
        needs = await self._needs(ctx, effect, boundary)
        if isinstance(needs, Forbidden):
            raise RespondToModel(needs.reason)
        if isinstance(needs, NeedsApproval):
            await self.approve(ctx, effect, needs)
            boundary = await self._boundary(effect)  # answering took time
        if isinstance(needs, Skip) and needs.bypass_sandbox:
            return await self._attempt_unconfined(ctx, attempt, self._freed)
        if boundary is None or (isinstance(needs, NeedsApproval) and outgrows(effect, boundary)):
            return await self._attempt_unconfined(ctx, attempt, self._plain)
        with self._workspace.attempting(ctx) as attempted:
            result = await attempt(self._workspace.access(ctx.cwd))
        # Without a sandbox it would reach all of the network, which is not what was refused; in a container no more.
        if attempted.refused or not await self._may_retry(ctx, effect, result):
            return result
        return await self._attempt_unconfined(ctx, attempt, self._plain, RETRY_NOTICE)

    async def _boundary(self, effect: Effect) -> Boundary | None:
        """Return what may be written now. A command's launcher checks by itself."""
        return self._workspace.boundary if isinstance(effect, CommandEffect) else await self._workspace.look()

    async def question_of(self, ctx: ToolContext, effect: Effect) -> ExecApproval | None:
        """Return what the user would be asked before the first attempt; None if nothing, or if it is forbidden."""
        needs = await self._needs(ctx, effect, await self._boundary(effect))
        if not isinstance(needs, NeedsApproval) or self.is_approved(ctx, effect):
            return None
        return question(effect, ctx.call_id, needs)

    async def _needs(self, ctx: ToolContext, effect: Effect, boundary: Boundary | None) -> ExecApprovalRequirement:
        return self._confirmed(ctx, effect, await self._requirement(ctx, effect, boundary))

    def _confirmed(self, ctx: ToolContext, effect: Effect, needs: ExecApprovalRequirement) -> ExecApprovalRequirement:
        """Require confirmation for an effect that would simply proceed, if its risk is reason enough."""
        if not isinstance(needs, Skip):
            return needs
        reason = self._security.reason_to_ask(effect, ctx.risk)
        if reason is None:
            return needs
        if ctx.permissions.approval_policy is AskForApproval.NEVER:
            return Forbidden(f"rejected: {reason}, and the approval policy is never, so nobody can confirm it")
        return NeedsApproval(reason, needs.proposed_execpolicy_amendment, needs.matched)

    async def _requirement(
        self, ctx: ToolContext, effect: Effect, boundary: Boundary | None
    ) -> ExecApprovalRequirement:
        """Return what the effect needs. Reading git's configuration blocks, and is needed under `untrusted` only."""
        permissions, rules = ctx.permissions, self._policies.rules
        cwd, env = ctx.cwd, self._env
        if isinstance(effect, CommandEffect):
            cwd, env = effect.cwd, {**env, "PATH": effect.path} if effect.path is not None else env
        host = LocalHost(cwd, env, self._workspace.places)
        if permissions.approval_policy is AskForApproval.UNTRUSTED and isinstance(effect, CommandEffect):
            return await run_blocking(requirement_of, effect, permissions, boundary, rules, host)
        return requirement_of(effect, permissions, boundary, rules, host)

    async def _attempt_unconfined(
        self, ctx: ToolContext, attempt: Attempt[T], launcher: Launcher, notice: str | None = None
    ) -> T:
        """Attempt it without a sandbox. In a container commands reach no more of the network then."""
        workspace = self._workspace
        files = Files(workspace.plain_files, ctx.cwd, journal=workspace.journal)
        if workspace.container is None:
            return await attempt(Access(launcher, files, notice=notice))
        with workspace.attempting(ctx):
            return await attempt(Access(launcher, files, notice=notice, remarks=workspace.remarks()))

    @property
    def allowed_hosts(self) -> Iterable[str]:
        """Hosts of the network that rules allow."""
        return self._policies.rules.allowed_hosts

    def network_requirement(self, ctx: ToolContext, effect: NetworkEffect) -> ExecApprovalRequirement:
        """Return whether a running command may reach a host, must not, or needs the user's approval."""
        return network_requirement(effect, ctx.permissions, self._policies.rules)

    def is_approved(self, ctx: ToolContext, effect: Effect) -> bool:
        """Tell whether the session remembers an approval."""
        return self._policies.approved.issuperset(approval_keys(effect, ctx.permissions.sandbox_policy))

    async def approve(self, ctx: ToolContext, effect: Effect, needs: NeedsApproval) -> None:
        """Ask, unless the session remembers an approval. Raises `RespondToModel` unless the answer is yes."""
        keys = approval_keys(effect, ctx.permissions.sandbox_policy)
        amendment = needs.proposed_execpolicy_amendment or needs.proposed_network_amendment
        if self.is_approved(ctx, effect):
            return
        answer: Answer | None = None
        if self._permission_hook is not None:
            answer = await self._permission_hook(ctx, effect)
        if answer is None:
            answer = await ctx.ask(question(effect, ctx.call_id, needs))
        if isinstance(answer, NoAnswer):
            raise RespondToModel(f"{rejected(effect)}: {answer.reason}")
        if not isinstance(answer, Decision):
            raise RespondToModel(f"{rejected(effect)}: the answer was not a decision")
        match answer.decision:
            case ReviewDecision.APPROVED:
                return
            case ReviewDecision.APPROVED_FOR_SESSION:
                self._policies.approved.update(keys)
            case ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT if amendment is not None:
                self._amend(ctx, amendment)
            case ReviewDecision.ABORT:
                ctx.caller.interrupt()
                raise Rejected(rejected(effect, answer.message))
            case _:
                raise Rejected(rejected(effect, answer.message))

    def _amend(self, ctx: ToolContext, amendment: ExecPolicyAmendment | NetworkAmendment) -> None:
        try:
            self._policies.amend(amendment)
        except AmendmentError as error:
            ctx.emit(WarningEvent(message=str(error)))

    async def _may_retry(self, ctx: ToolContext, effect: Effect, result: object) -> bool:
        """Ask the user whether a command that the sandbox probably stopped may run once more without it."""
        if ctx.permissions.approval_policy is AskForApproval.NEVER or not isinstance(effect, CommandEffect):
            return False
        if not isinstance(result, CommandResult) or not is_likely_denied(result):
            return False
        asked: ExecApproval = question(effect, ctx.call_id, NeedsApproval(RETRY_REASON), reason=RETRY_REASON)
        answer = await ctx.ask(asked)
        if isinstance(answer, Decision) and answer.decision is ReviewDecision.ABORT:
            ctx.caller.interrupt()
        return isinstance(answer, Decision) and answer.decision in (
            ReviewDecision.APPROVED,
            ReviewDecision.APPROVED_FOR_SESSION,
        )
