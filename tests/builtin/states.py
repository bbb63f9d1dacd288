"""Conversations and contexts for tests of tools."""

from pathlib import Path

from ferrule.process.plain import PlainLauncher
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess, SandboxPolicy
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.commands import Commands
from ferrule.tools.context import Permissions
from ferrule.tools.conversation import Conversation
from ferrule.tools.turn_diff import TurnDiffTracker


def conversation(cwd: Path, sandbox: SandboxPolicy | None = None, profile: ModelProfile | None = None) -> Conversation:
    """A conversation in `cwd`, unconfined unless said otherwise."""
    return Conversation(
        cwd=str(cwd),
        permissions=Permissions(AskForApproval.NEVER, sandbox or DangerFullAccess()),
        profile=profile or ModelProfile(name="test"),
        output_budget=OutputBudget(10_000),
        commands=Commands(PlainLauncher(), str(cwd)),
        turn_diff=TurnDiffTracker(str(cwd)),
    )
