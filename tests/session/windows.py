"""A model with a window, which counts what it is sent and refuses what is too long, and sessions with it."""

from pathlib import Path
from typing import Any

from ferrule import tool
from ferrule.history.compaction import SUMMARY_PROMPT
from ferrule.protocol.events import ContextCompacted, Event, WarningEvent
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess
from ferrule.protocol.settings import CompactedBy, ModelSettings, ProviderSettings, Settings
from ferrule.protocol.specs import Wire
from ferrule.session.hooks import PythonHook
from ferrule.session.opening import open_session
from ferrule.session.resuming import resume_settings
from ferrule.session.session import Session
from ferrule.testing import Usage, function_call, http_error, step
from ferrule.testing.request import Request
from ferrule.tools.events import ToolEvent
from tests.session.conversations import ALL_GIVEN

WIRES: list[Wire] = ["responses", "chat", "messages"]
TOO_LONG = http_error(400, "This model's maximum context length is exceeded.", code="context_length_exceeded")
PLAN = {"plan": [{"step": "measure the boat", "status": "in_progress"}]}


@tool(read_only=True)
async def read(size: int = 1_000) -> str:
    return "0123456789" * (size // 10)


class Boat:
    """A model with a window: it counts a token for four bytes of each request. `acts` are what it does, one for each
    request that is none for a summary; `summary` answers those. `sizes` are the requests that it took."""

    def __init__(self, window: int, *acts: Any, summary: Any = "SUMMED UP", counts: float = 1) -> None:
        self.window = window
        self.counts = counts
        self.sizes: list[int] = []
        self.summaries: list[Request] = []
        self.taken: list[Request] = []
        self.refused = 0
        self.acts = list(acts)
        self.summary = summary

    def __call__(self, request: Request) -> Any:
        size = round(len(request.raw) / 4 * self.counts)
        if size > self.window:
            self.refused += 1
            return TOO_LONG
        usage = Usage(size, 10)
        if request.user_text.endswith(SUMMARY_PROMPT):
            self.summaries.append(request)
            said = self.summary(len(self.summaries)) if callable(self.summary) else self.summary
            return step(said, usage=usage) if isinstance(said, str) else said
        self.sizes.append(size)
        self.taken.append(request)
        act = self.acts.pop(0) if self.acts else "done"
        return step(*(act if isinstance(act, list) else [act]), usage=usage)


class Watch:
    can_answer = False

    def __init__(self) -> None:
        self.events: list[Event | ToolEvent] = []

    def on_event(self, event: Event | ToolEvent) -> None:
        self.events.append(event)

    @property
    def compactions(self) -> list[ContextCompacted]:
        return [event for event in self.events if isinstance(event, ContextCompacted)]

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, WarningEvent)]


class Dock:
    """Opens sessions in a folder with an AGENTS.md."""

    def __init__(self, folder: Path) -> None:
        (folder / "AGENTS.md").write_text("Always speak of the harbour.\n")
        self.folder = folder
        self.watch = Watch()

    async def open(
        self,
        url: str,
        wire: Wire = "responses",
        *,
        window: int | None = None,
        by: CompactedBy | None = None,
        limit: int | None = None,
        hooks: tuple[PythonHook, ...] = (),
        resume: bool = False,
        budget: int | None = None,
    ) -> Session:
        provider = ProviderSettings(
            name="server", base_url=url, wire_api=wire, compaction=by, request_max_retries=0, stream_max_retries=0
        )
        settings = Settings(
            cwd=str(self.folder),
            home=str(self.folder / "home"),
            model=ModelSettings(
                model="m-1", context_window=window, auto_compact_token_limit=limit, max_output_tokens=1_000
            ),
            provider=provider,
            sandbox_policy=DangerFullAccess(),
            approval_policy=AskForApproval.NEVER,
            instructions="Be a sailor.",
            run_token_budget=budget,
        )
        stored = None
        if resume:
            settings, stored = resume_settings(settings, None, ALL_GIVEN)
        return await open_session(settings, self.watch, tools=[read, "update_plan"], stored=stored, hooks=hooks)


def reads(*sizes: int) -> list[list[Any]]:
    return [[function_call("read", {"size": size})] for size in sizes]


def once(request: Request, *texts: str) -> None:
    body = request.raw.decode()
    for text in texts:
        assert body.count(text) == 1, (text, body.count(text))
