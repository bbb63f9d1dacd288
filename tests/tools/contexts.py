"""A context made by hand: what a test of a tool needs."""

from pathlib import Path

from ferrule.patch.files import PlainFiles
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess
from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.context import Access, Attempt, Permissions, T, ToolContext
from ferrule.tools.effects import Effect
from ferrule.tools.files import Files
from ferrule.tools.questions import Answer, NoAnswer, Question


class RecordingHost:
    """Grants everything, and remembers effects and events."""

    observed = True

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.events: list[object] = []

    async def run(self, ctx: ToolContext, effect: Effect, attempt: Attempt[T]) -> T:
        self.effects.append(effect)
        return await attempt(Access(PlainLauncher(), ctx.files))

    async def ask(self, ctx: ToolContext, question: Question) -> Answer:
        return NoAnswer("nobody is here")

    def emit(self, event: object) -> None:
        self.events.append(event)


def context(host: RecordingHost | None = None, cwd: Path | None = None, tokens: int = 10_000) -> ToolContext:
    folder = str(cwd or Path.cwd())
    return ToolContext(
        call_id="call_1",
        cwd=folder,
        permissions=Permissions(AskForApproval.NEVER, DangerFullAccess()),
        output_budget=OutputBudget(tokens),
        files=Files(PlainFiles(), folder),
        host=host or RecordingHost(),
    )
