"""How a session starts its sub-agents, and what they take over from it."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from ferrule.dispatch.front_end import Answers, Callbacks
from ferrule.dispatch.host import SessionHost
from ferrule.history.history import History
from ferrule.history.pairs import answered
from ferrule.model.stream import Model
from ferrule.protocol.errors import RespondToModel, UsageError
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.settings import AgentRole, Settings
from ferrule.session.budget import Budget
from ferrule.session.child_settings import child_settings
from ferrule.session.children import SessionChildren
from ferrule.session.opener import Opener, Parent
from ferrule.session.rollout import StoredSession, find_rollout, is_own, last_words, read_rollout
from ferrule.session.runtime import Runtime
from ferrule.session.session import Session
from ferrule.session.sources import AGENT_TOOLS
from ferrule.tools.children import ChildOrder
from ferrule.undo.undo_log import UndoLog

if TYPE_CHECKING:
    from ferrule.mcp.source import McpSource

FORK_INHERITS = (
    "Full-history forked agents inherit the parent agent type, model, and reasoning effort; omit agent_type, model and "
    "reasoning_effort, or spawn without fork_context."
)
"""Codex's words."""


class Family(msgspec.Struct, frozen=True):
    """Opens the children of one session, by `open`, which is `open_session`."""

    open: Callable[..., Awaitable[Session]]
    settings: Settings
    opener: Opener
    model_name: str
    session_id: str
    model: Model
    runtime: Runtime
    servers: "McpSource | None"
    budget: Budget
    undo_log: UndoLog

    @property
    def depth(self) -> int:
        """How deep the children are: 1 for those of a session that nobody started."""
        parent = self.opener.parent
        return 1 if parent is None else parent.depth + 1

    def children(self, host: SessionHost, history: History) -> SessionChildren:
        """Make the table of the children. `history` is what a forked one begins with."""

        async def open_child(order: ChildOrder, front_end: Callbacks) -> Session:
            if order.fork and (order.role, order.model, order.reasoning_effort) != (None, None, None):
                raise RespondToModel(FORK_INHERITS)
            role = self.settings.agents[order.role] if order.role is not None else AgentRole()
            begun = answered(history.items) if order.fork else ()
            return await self._open(order, role, front_end, begun)

        async def reopen(agent_id: str, front_end: Callbacks) -> tuple[Session, str | None]:
            stored = self.stored(agent_id)
            role = self.settings.agents.get(stored.meta.agent_role or "", AgentRole())
            model = None if stored.context is None else stored.context.model
            order = ChildOrder(content=(), role=stored.meta.agent_role, model=model)
            return await self._open(order, role, front_end, (), stored), last_words(stored)

        permissions = self.runtime.conversation.permissions
        return SessionChildren(
            self.session_id,
            self.settings.agents,
            self.settings.agent_max_threads,
            host=host,
            answers=Answers(permissions.answers_approvals, permissions.answers_questions),
            open_child=open_child if self.depth <= self.settings.agent_max_depth else None,
            reopen_child=reopen,
        )

    async def _open(
        self,
        order: ChildOrder,
        role: AgentRole,
        front_end: Callbacks,
        history: tuple[ResponseItem, ...],
        stored: StoredSession | None = None,
    ) -> Session:
        conversation = self.runtime.conversation
        rights = msgspec.structs.replace(
            self.settings,
            cwd=conversation.cwd,
            sandbox_policy=conversation.permissions.sandbox_policy,
            approval_policy=conversation.permissions.approval_policy,
        )
        may_spawn = self.depth < self.settings.agent_max_depth
        settings = child_settings(rights, self.model_name, order, role, may_spawn=may_spawn)
        if stored is not None:
            settings = msgspec.structs.replace(settings, instructions=stored.meta.instructions)
        tools = self.opener.tools if role.tools is None else role.tools
        if tools is not None and not may_spawn:
            tools = [tool for tool in tools if tool not in AGENT_TOOLS]
        parent = Parent(
            self.session_id,
            self.depth,
            order.role,
            self.model,
            self.runtime.policies,
            self.servers,
            self.budget,
            self.undo_log,
            self.runtime.workspace,
            self.runtime.conversation.file_search,
            history,
        )
        hooks, env = self.opener.hooks, self.opener.env
        return await self.open(settings, front_end, tools=tools, stored=stored, hooks=hooks, env=env, parent=parent)

    def stored(self, agent_id: str) -> StoredSession:
        """Return a closed child's rollout. Raises `RespondToModel`."""
        if self.settings.ephemeral:
            raise RespondToModel(f"agent with id {agent_id} is gone: this session stores nothing; spawn a new agent")
        try:
            path = find_rollout(self.settings.home, agent_id)
        except UsageError:
            path = None
        stored = None if path is None or not is_own(path, self.settings.home) else read_rollout(path)
        if stored is None or stored.meta.id != agent_id or stored.meta.parent_thread_id != self.session_id:
            raise RespondToModel(f"agent with id {agent_id} not found")
        return stored
