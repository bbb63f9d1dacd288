"""A round: conversations, clients of `ferrule serve` and a batch at once; then a look at what they left."""

import asyncio
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.testing import Request, ScriptedModel
from ferrule.testing.steps import Raw, Step
from tests.soak.census import ALL, LASTING, Census, resident_bytes, settled_leaks
from tests.soak.chores import Batch, draw_batch
from tests.soak.conversation import Conversation, Report, Voice
from tests.soak.disks import let_go, small_disk
from tests.soak.estate import Entry, changed, look, make_estate
from tests.soak.faults import SHARED
from tests.soak.household import Household, Upstream
from tests.soak.plan import ROUND, Offer, draw_plan
from tests.soak.service import Service
from tests.soak.strangers import Strangers

AT_ONCE = 4
SMALL_DISK = "size=512k"

_MARK = re.compile(r"<soak-(\d+)>")


@dataclass(slots=True)
class Stage:
    """What all rounds share: the folder, the seed, the first census, the sums."""

    root: Path
    seed: str
    offered: Offer
    household: Household = field(init=False)
    upstream: Upstream = field(init=False)
    service: Service = field(init=False)
    strangers: Strangers = field(init=False)
    estate: dict[str, Entry] = field(init=False)
    before: Census = field(init=False)
    sessions: int = 0
    turns: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    calls: int = 0

    def __post_init__(self) -> None:
        self.household = Household(self.root)
        for folder in (self.root / "tmp", self.household.user):
            folder.mkdir(mode=0o700)
        make_estate(self.household.user)
        os.environ.update(TMPDIR=str(self.root / "tmp"), HOME=str(self.household.user))
        tempfile.tempdir = None
        self.strangers = Strangers(self.root / "repos")
        self.upstream = Upstream(self.household, self.seed)
        self.service = Service(self.household, self.upstream, self.seed)
        self.estate = look(self.household.user)
        self.before = Census.take(self.root)

    def close(self) -> None:
        """End what runs and take the folder away, also after Ctrl-C."""
        self.service.close()
        self.upstream.close()
        for folder in (*self.root.glob("session-*"), *self.root.glob("batch-*")):
            let_go(folder)
        shutil.rmtree(self.root, ignore_errors=True)

    def end(self) -> list[str]:
        """End the server as its user does, and the model's. Returns what was wrong."""
        return self.service.stop() + self.upstream.close() + changed(self.estate, look(self.household.user))

    def add(self, report: Report) -> None:
        """Count what a conversation did."""
        self.sessions += 1
        self.turns += report.turns
        self.faults += report.faults
        self.calls += report.calls

    def totals(self) -> str:
        """The sums in words."""
        return f"{self.calls} calls, turns {_listed(self.turns)}, faults {_listed(self.faults)}"


@dataclass(frozen=True, slots=True)
class Done:
    """A round that is over. `resident`: bytes of memory."""

    numbers: Sequence[int]
    sessions_so_far: int
    resident: int
    turns: Counter[str]
    faults: Counter[str]
    problems: list[str]

    def __str__(self) -> str:
        return (
            f"sessions {self.numbers[0]}-{self.numbers[-1]}: turns {_listed(self.turns)}; "
            f"{self.faults.total()} faults; {self.resident / 2**20:.1f} MiB; {len(self.problems)} problems"
        )


class Round:
    """Conversations `numbers`, with a model server of their own."""

    def __init__(self, stage: Stage, numbers: Sequence[int]) -> None:
        self._stage = stage
        self._numbers = numbers
        self._voices: dict[int, Voice] = {}

    async def run(self, *, warm: bool) -> Done:
        """Play and count. `warm`: the first round, after which the process holds what it will always hold."""
        stage = self._stage
        with _heard() as heard:
            reports, beside, struck = await self._play()
            problems = await asyncio.to_thread(self._left_over, warm)
        turns: Counter[str] = Counter()
        faults: Counter[str] = Counter()
        for report in reports:
            stage.add(report)
            turns += report.turns
            faults += report.faults
            problems += report.problems
        faults += struck
        stage.faults += struck
        resident = await asyncio.to_thread(resident_bytes)
        return Done(self._numbers, stage.sessions, resident, turns, faults, problems + beside + heard)

    async def _play(self) -> tuple[list[Report], list[str], Counter[str]]:
        """Everything at once. Returns what came of the conversations, what was wrong beside them, the faults there."""
        stage, number = self._stage, self._numbers[0] // ROUND
        plan = draw_batch(stage.seed, number, root=os.geteuid() == 0)
        batch = Batch(stage.household, stage.upstream, plan, stage.seed, number)
        with stage.strangers.at_work(f"{stage.seed}/strangers/{number}"):
            reports, (wrong, faults), also_wrong = await asyncio.gather(
                self._talk(), asyncio.to_thread(stage.service.play, number), asyncio.to_thread(batch.play)
            )
        return reports, wrong + also_wrong, faults + batch.faults

    async def _talk(self) -> list[Report]:
        stage = self._stage
        plans = [draw_plan(stage.seed, number, stage.offered) for number in self._numbers]
        shaken = any(turn.fault in SHARED for plan in plans for turn in plan.turns)
        room = asyncio.Semaphore(AT_ONCE)
        with ScriptedModel(self._answer) as server:

            async def one(index: int) -> Report:
                plan = plans[index]
                async with room:
                    folder = self._folder(plan.number, small=plan.small_disk)
                    home = folder / ".home" if plan.small_disk else stage.household.home
                    calm = plan.calm and not shaken
                    talk = Conversation(plan, stage.seed, folder, home, server.base_url, stage.upstream.mcp, calm=calm)
                    self._voices[plan.number] = talk.voice
                    return await talk.run()

            reports = await asyncio.gather(*(one(index) for index in range(len(plans))))
            failures = server.failures
        reports[0].problems += failures
        return reports

    def _answer(self, request: Request) -> Step | Raw:
        found = _MARK.search(request.user_text)
        assert found is not None, request.user_text[:300]
        return self._voices[int(found[1])].answer(request)

    def _folder(self, number: int, *, small: bool) -> Path:
        folder = self._stage.root / f"session-{number}"
        folder.mkdir()
        if small:
            small_disk(folder, SMALL_DISK)
        return folder

    def _left_over(self, warm: bool) -> list[str]:
        """What is more than there was. The conversations' own files go."""
        stage = self._stage
        self._voices.clear()
        # What the first round opens for good (descriptors, threads) is no leak; what it starts and leaves is one.
        problems = settled_leaks(lambda: Census.take(stage.root, LASTING if warm else ALL), stage.before)
        problems += [problem for folder in stage.root.glob("session-*") if (problem := let_go(folder))]
        problems += changed(stage.estate, look(stage.household.user))
        for name in ("sessions", "undo"):
            shutil.rmtree(stage.household.home / name, ignore_errors=True)
        if warm:
            stage.before = Census.take(stage.root)
        return problems


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Everything that Python says aside: forgotten exceptions, unclosed things."""
    heard: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: heard.append(f"the loop says: {context}"))
    hooks = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = lambda said: heard.append(f"unraisable: {said.exc_value!r} in {said.object!r}")
    threading.excepthook = lambda said: heard.append(f"thread {said.thread}: {said.exc_value!r}")
    log = _Log(heard)
    logging.getLogger().addHandler(log)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        yield heard
    logging.getLogger().removeHandler(log)
    sys.unraisablehook, threading.excepthook = hooks
    loop.set_exception_handler(None)


class _Log(logging.Handler):
    """What is logged is a fault of ours, except the tool that fails on purpose."""

    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        if "soak_fails" not in record.getMessage():
            self._heard.append(f"logged: {self.format(record)}")


def _listed(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counter.items())) or "none"
