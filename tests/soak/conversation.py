"""One conversation: both its sides, and what must be true of it afterwards."""

import asyncio
import random
import threading
import traceback
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.dispatch.front_end import Callbacks
from ferrule.history.pairs import settled
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess, InContainer, ReadOnly, ReviewDecision
from ferrule.protocol.settings import Features, ModelSettings, ProviderSettings, Settings
from ferrule.protocol.specs import Wire
from ferrule.session.opening import open_session
from ferrule.session.result import TurnResult
from ferrule.session.rollout import StoredSession, find_rollout, read_rollout
from ferrule.session.session import Session
from ferrule.testing import Item, Request, http_error, message, reasoning, step
from ferrule.testing.steps import Raw, Step
from tests.mcp.stub import server as stub_server
from tests.session.test_healing import CHAT_REFUSALS, RESPONSES_REFUSALS, Held
from tests.soak.faults import IDLE_TIMEOUT_MS, TURN_FAULTS, WIRE_FAULTS, Trouble, harmless
from tests.soak.history import stored_history, wrong_order
from tests.soak.plan import Plan, TurnPlan
from tests.soak.workloads import FUNCTIONS, WORKLOADS, Scene, Work, child_number

DEADLINE = 120.0
"""Seconds for a conversation on a busy machine; what takes longer hangs."""
LAST_WORDS = 30.0
"""Seconds for one that hangs to end when it is cancelled; then the soak goes on without it."""
OF_OTHERS = ("image", "'custom'", "web_search_call", "extra_content")
"""Refusals of what no model sends here, or what it would go on sending."""
REFUSALS: dict[Wire, list[tuple[Held, str]]] = {
    "responses": [one for one in RESPONSES_REFUSALS if not any(name in one[1] for name in OF_OTHERS)],
    "chat": [one for one in CHAT_REFUSALS if not any(name in one[1] for name in OF_OTHERS)],
    "messages": [],
}
DECISIONS = (
    ReviewDecision.APPROVED,
    ReviewDecision.APPROVED,
    ReviewDecision.APPROVED_FOR_SESSION,
    ReviewDecision.DENIED,
    ReviewDecision.ABORT,
)


class Voice:
    """The model's side. `answer` is called on the server's thread."""

    def __init__(self, scene: Scene, wire_faults: float, refusals: Sequence[tuple[Held, str]]) -> None:
        self.scene = scene
        self._refusals = refusals
        self._thinks = bool(refusals)
        self._children: dict[int, Item] = {}
        self.struck: Counter[str] = Counter()
        self._wire_faults = wire_faults
        self._lock = threading.Lock()
        self._works: list[tuple[Work, bool]] = []
        self._lost: list[Item] = []
        self._last = ""

    def begin(self, works: tuple[str, ...], last: str) -> None:
        """The next turn: these workloads, then these last words."""
        with self._lock:
            self._works = [(WORKLOADS[name].start(self.scene), False) for name in works]
            self._lost = []
            self._last = last

    def answer(self, request: Request) -> Step | Raw:
        """What the model says to a request."""
        with self._lock:
            if refusal := self._refused(request):
                return refusal
            outputs = {output.call_id: output.text for output in request.outputs}
            rng = self.scene.rng
            if (child := child_number(request.user_text)) is not None:
                return self._child(child, outputs)
            items = self._again(outputs) or self._next(outputs)
            self._lost = []
            if rng.random() < self._wire_faults:
                self._lost = items
                return self._fault(items or [message(self._last)])
            if not items:
                return step(self._last)
            return harmless(rng, [*self._thoughts(), *items])

    def _refused(self, request: Request) -> Raw | None:
        """What a server says that takes no such history."""
        for held, words in self._refusals:
            if held(request.raw.decode(), dict(request.body)):
                self.struck["refused"] += 1
                return http_error(400, words)
        return None

    def _fault(self, items: list[Item]) -> Step | Raw:
        name = self.scene.rng.choice(list(WIRE_FAULTS))
        self.struck[name] += 1
        return WIRE_FAULTS[name](self.scene.rng, items)

    def _thoughts(self) -> list[Item]:
        """Reasoning that the server wants back, or not."""
        return [reasoning("Hm.", encrypted_content="gAAA")] if self._thinks else []

    def _child(self, child: int, outputs: dict[str, str]) -> Step | Raw:
        """A sub-agent runs a command, and says that it has."""
        call = self._children.get(child)
        if call is None:
            call = self._children[child] = self.scene.call("shell_command", command="echo by a child; sleep 0.2")
        items = [message(f"Child {child} has done it.")] if str(call["call_id"]) in outputs else [call]
        return self._fault(items) if self.scene.rng.random() < self._wire_faults else harmless(self.scene.rng, items)

    def _again(self, outputs: dict[str, str]) -> list[Item]:
        """What was lost on the way: without what was answered, or as it was, ids included."""
        if self.scene.rng.random() < 0.5:
            return [item for item in self._lost if item["call_id"] not in outputs]
        return self._lost if any(item["call_id"] not in outputs for item in self._lost) else []

    def _next(self, outputs: dict[str, str]) -> list[Item]:
        items: list[Item] = []
        going: list[tuple[Work, bool]] = []
        for work, begun in self._works:
            with suppress(StopIteration):
                items += work.send(outputs) if begun else next(work)
                going.append((work, True))
        self._works = going
        return items


@dataclass(slots=True)
class Report:
    """What came of a conversation."""

    problems: list[str] = field(default_factory=list)
    turns: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    calls: int = 0


class Conversation:
    """The user's side: opens a real session, plays the plan, checks."""

    def __init__(
        self, plan: Plan, seed: str, folder: Path, home: Path, base_url: str, web: str | None, *, calm: bool
    ) -> None:
        self.plan = plan
        self.report = Report()
        self._home = home
        self._base_url = base_url
        self._web = web
        self._rng = random.Random(f"{seed}/{plan.number}/troubles")
        self.scene = Scene(
            plan.number,
            random.Random(f"{seed}/{plan.number}/words"),
            folder,
            freeform=plan.model == "gpt-5.5",
            writable=not isinstance(plan.sandbox, ReadOnly),
            confined=isinstance(plan.sandbox, InContainer)
            or (plan.approval is AskForApproval.NEVER and not isinstance(plan.sandbox, DangerFullAccess)),
            calm=calm,
        )
        self.voice = Voice(
            self.scene,
            plan.wire_faults,
            self._rng.sample(REFUSALS[plan.wire], min(plan.refusals, len(REFUSALS[plan.wire]))),
        )

    async def run(self) -> Report:
        """Play it. Never raises: what went wrong is in the report."""
        playing = asyncio.create_task(self._play())
        if not (await asyncio.wait({playing}, timeout=DEADLINE))[0]:
            self.report.problems.append(f"hangs: {self.plan}\n{_stacks()}")
            playing.cancel()
            if not (await asyncio.wait({playing}, timeout=LAST_WORDS))[0]:
                self.report.problems.append(f"cannot be cancelled: session {self.plan.number}")
        if playing.done() and not playing.cancelled() and (error := playing.exception()):
            self.report.problems.append(f"{self.plan}\n{''.join(traceback.format_exception(error))}")
        self.report.problems += self.scene.problems
        self.report.calls = self.scene.calls
        self.report.faults += self.voice.struck
        return self.report

    async def _play(self) -> None:
        (self.scene.folder / "given.txt").write_text("hay\nneedle\n")
        session = await self._open(None)
        try:
            for number, turn in enumerate(self.plan.turns):
                await self._turn(session, turn, f"Done {number}.")
                if turn.fault == "closed_meanwhile":
                    break
        finally:
            await session.aclose()
        self.report.problems += wrong_order(session.history.items)
        stored = self._stored(session)
        if stored is not None:
            await self._resume(stored)

    def _stored(self, session: Session) -> StoredSession | None:
        if not self.plan.small_disk:
            stored, problems = stored_history(str(self._home), session.id, session.history.items)
            self.report.problems += problems
            return stored
        try:
            stored = read_rollout(find_rollout(str(self._home), session.id))
        except FerruleError:  # there was no space for its first line
            return None
        self.report.problems += wrong_order(settled(stored.responses))
        return stored

    async def _resume(self, stored: StoredSession) -> None:
        session = await self._open(stored)
        async with session:
            if list(session.history.items) != settled(stored.responses):
                self.report.problems.append("resumed with another history")
            await self._turn(session, TurnPlan(("functions",), None), "Resumed.")
        self.report.problems += wrong_order(session.history.items)

    async def _open(self, stored: StoredSession | None) -> Session:
        plan = self.plan
        stub = McpServerSettings(**stub_server(f"child={self.scene.folder}/child"), approval="allow")
        web = {} if self._web is None else {"web": McpServerSettings(url=self._web, approval="allow")}
        settings = Settings(
            cwd=str(self.scene.folder),
            home=str(self._home),
            model=ModelSettings(model=plan.model),
            provider=ProviderSettings(
                name="soak", base_url=self._base_url, wire_api=plan.wire, stream_idle_timeout_ms=IDLE_TIMEOUT_MS
            ),
            approval_policy=plan.approval,
            sandbox_policy=plan.sandbox,
            mcp_servers={"stub": stub} | web if plan.mcp else {},
            features=Features(multi_agent="spawn_agent" in plan.tools),
        )
        front_end = Callbacks(lambda event: None, self._decide) if plan.observed else None
        return await open_session(settings, front_end, tools=[*plan.tools, *FUNCTIONS], stored=stored)

    async def _decide(self, question: ExecApproval) -> ReviewDecision:
        await asyncio.sleep(self._rng.random() / 5)
        return self._rng.choice(DECISIONS)

    async def _turn(self, session: Session, turn: TurnPlan, last: str) -> None:
        self.voice.begin(turn.work, last)
        running = asyncio.create_task(session.run(f"<soak-{self.plan.number}> go on"))
        striking = None
        if turn.fault is not None:
            self.report.faults[turn.fault] += 1
            trouble = Trouble(self.scene, session, running, self._rng)
            striking = asyncio.ensure_future(_as_coroutine(TURN_FAULTS[turn.fault](trouble)))
        try:
            await asyncio.wait([running])
            self._judge(running, turn, last)
        finally:
            if striking is not None:
                await _ended(striking, patient=turn.fault == "closed_meanwhile")

    def _judge(self, running: "asyncio.Task[TurnResult]", turn: TurnPlan, last: str) -> None:
        """Whether the turn ended as it may under its faults."""
        error = None if running.cancelled() else running.exception()
        outcome = "cancelled" if running.cancelled() else type(error).__name__ if error else "done"
        if outcome == "done" and running.result().aborted:
            outcome = "aborted"
        self.report.turns[outcome] += 1
        if error is not None and not isinstance(error, FerruleError):
            self.report.problems.append("".join(traceback.format_exception(error)))
        elif outcome != "done" and self.scene.calm and not self.plan.wire_faults:
            self.report.problems.append(f"a turn without faults ended as {outcome}: {error}")
        elif outcome == "done" and running.result().text != last:
            self.report.problems.append(f"the turn's last message is {running.result().text!r}, not {last!r}")


async def _as_coroutine(awaitable: Awaitable[object]) -> None:
    await awaitable


async def _ended(striking: "asyncio.Future[None]", *, patient: bool) -> None:
    """The fault ends with its turn. Raises what went wrong with it."""
    if not patient:
        striking.cancel()
    await asyncio.wait([striking])
    if not striking.cancelled():
        striking.result()


def _stacks() -> str:
    """Where each task of the loop waits, innermost last."""
    return "\n".join(sorted(" > ".join(_awaits(task.get_coro())) for task in asyncio.all_tasks()))


def _awaits(waits: object) -> Iterator[str]:
    while waits is not None:
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "ag_frame", None)
        if frame is not None:
            yield f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
        waits = getattr(waits, "cr_await", None) or getattr(waits, "ag_await", None)
