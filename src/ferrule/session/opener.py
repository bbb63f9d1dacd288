"""Who opens a session, and what they give to it: the user, another session, or a program that runs many."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ferrule.dispatch.front_end import FrontEnd
from ferrule.dispatch.workspace import Workspace
from ferrule.execpolicy import PolicyStore
from ferrule.model.stream import Model
from ferrule.process.shell import LoginShell
from ferrule.protocol.items import ResponseItem
from ferrule.retrieval.access import FolderAccess
from ferrule.session.budget import Budget
from ferrule.session.hooks import Hook
from ferrule.session.sources import ToolLike
from ferrule.undo.undo_log import UndoLog

if TYPE_CHECKING:
    from ferrule.mcp.source import McpSource


class Parent(msgspec.Struct, frozen=True):
    """What a sub-agent takes over from the session that starts it. `depth` is the child's; `history` what it goes on
    from."""

    session_id: str
    depth: int
    role: str | None
    model: Model
    policies: PolicyStore
    servers: "McpSource | None"
    budget: Budget
    undo_log: UndoLog
    workspace: Workspace | None = None
    file_search: FolderAccess | None = None
    history: tuple[ResponseItem, ...] = ()


class SharedResources(msgspec.Struct, frozen=True):
    """What a program that runs many sessions shares with one of them, and closes itself: the model's connections, the
    environment of the login shell, and a new file for its rollout, which is not among the user's own sessions.

    Such a session asks nothing of the model's server beside its work, builds its sandbox when a command needs it, and
    is not undone.
    """

    model: Model
    login: LoginShell
    record: Path


class Opener(msgspec.Struct, frozen=True):
    """What whoever opens a session gives to it beside the settings."""

    front_end: FrontEnd | None
    tools: Sequence[ToolLike] | None
    hooks: Sequence[Hook]
    env: Mapping[str, str]
    api_key: str | None
    parent: Parent | None
    shared: SharedResources | None
    report: Callable[[str], None]

    @property
    def is_user(self) -> bool:
        """True for the user, whose session has a model of its own and can be undone."""
        return self.parent is None and self.shared is None
