"""What a tool may know of the conversation when it is made: narrow, and the same for every tool."""

from typing import Protocol

import msgspec

from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.commands import Commands
from ferrule.tools.context import Permissions
from ferrule.tools.turn_diff import TurnDiffTracker


class ConversationState(Protocol):
    """Handed to `create` as `conv_state`. What lives as long as the session is reached through it."""

    @property
    def cwd(self) -> str: ...
    @property
    def permissions(self) -> Permissions: ...
    @property
    def profile(self) -> ModelProfile: ...
    @property
    def output_budget(self) -> OutputBudget: ...
    @property
    def commands(self) -> Commands: ...
    @property
    def turn_diff(self) -> TurnDiffTracker: ...


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a session hands out."""

    cwd: str
    permissions: Permissions
    profile: ModelProfile
    output_budget: OutputBudget
    commands: Commands
    turn_diff: TurnDiffTracker
