"""Behind `ctx.run`: the only place where approval, the choice of a sandbox, the attempt and a retry happen."""

from typing import TypeVar

from ferrule.process.launcher import Launcher
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.permissions import DangerFullAccess
from ferrule.tools.context import Access, Attempt, ToolContext
from ferrule.tools.effects import Effect, McpEffect, ToolEffect

T = TypeVar("T")


class Orchestrator:
    """Grants each effect its access. `plain` is the unconfined launcher."""

    __slots__ = ("_plain",)

    def __init__(self, plain: Launcher) -> None:
        self._plain = plain

    async def run(self, ctx: ToolContext, effect: Effect, attempt: Attempt[T]) -> T:
        """Do `attempt` with the access that the policy grants. Raises `RespondToModel` where it is refused."""
        policy = ctx.permissions.sandbox_policy
        if not isinstance(policy, DangerFullAccess | None) and not isinstance(effect, McpEffect | ToolEffect):
            raise RespondToModel("commands and patches need the sandbox mode danger-full-access in this version")
        return await attempt(Access(self._plain, ctx.files))
