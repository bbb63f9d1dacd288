"""The driver: hands tasks out, takes results in, writes each once, and goes on whoever dies."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from ferrule.batch.messages import Done, Hold, Job, Message, Ready, Unable
from ferrule.batch.pool import Event, Left, Said, Woken, WorkerPool, waiting
from ferrule.batch.results import Result, ResultsFile, Status
from ferrule.batch.tasks import Task
from ferrule.protocol.errors import FerruleError
from ferrule.store.queue import Taken, TaskQueue

ALONE_AFTER = 2
"""Deaths after which a task gets a worker of its own: until then another task of its worker may have been the cause."""
MOST_DEATHS = 5
"""Deaths after which a task is an error: three times it was alone, so neither its neighbours nor chance did it."""
MOST_FAILED_STARTS = 8
"""Workers in a row that end before they are ready: nothing and nobody kills so many by chance."""
MOST_TRIES = 3
"""How often a task is tried whose model's server does not answer while it answers others."""
LEAST_UNREACHABLE = 20
"""Tries in a row that failed because the server did not answer, after which the batch stops: it would turn every task
into an error. At least so many, and twice as many as run at once."""
MOST_WAITING = 1000
"""Results that wait for whoever takes them, beyond which no task is handed out."""

T = TypeVar("T")


class Progress(msgspec.Struct):
    """How far a batch is. Times are those of the monotonic clock."""

    total: int = 0
    earlier: int = 0
    """Tasks that had a result when it began."""
    running: int = 0
    counts: dict[Status, int] = {}
    errors: int = 0
    """Results that are errors, with those of earlier runs."""
    passed: int = 0
    failed: int = 0
    began: float = 0.0
    held_until: float = 0.0
    """Until then the server asks to wait."""
    notice: str = ""
    """Why the workspaces are copies, which takes longer; "" if they are layers."""

    @property
    def done(self) -> int:
        """The results of this run."""
        return sum(self.counts.values())

    @property
    def left(self) -> int:
        """The tasks that have no result."""
        return self.total - self.earlier - self.done


class Driver:
    """One run: so many tasks at a time (`slots`), in a worker process a processor at most."""

    def __init__(
        self,
        queue: TaskQueue,
        results: ResultsFile,
        pool: WorkerPool,
        progress: Progress,
        *,
        slots: int,
        changed: Callable[[], None],
    ) -> None:
        self.given: asyncio.Queue[bytes | None] = asyncio.Queue()
        """The lines of results, once they are written; None at the end. Whoever takes one calls `taken`."""
        self._queue = queue
        self._results = results
        self._pool = pool
        self._progress = progress
        self._slots = slots
        self._changed = changed
        self._starting: dict[int, int] = {}
        self._free: dict[int, int] = {}
        self._at_work: dict[int, dict[str, Taken]] = {}
        self._alone: set[int] = set()
        self._failed_starts = 0
        self._unreachable = 0
        self._last_failure = b""
        self._put_aside: Counter[str] = Counter()
        self._doubtful: list[Done] = []
        """Errors that the server may be the cause of: it is seen when it answers again."""
        self._unwritten: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()

    async def run(self) -> None:
        """Do all tasks. Raises `FerruleError` where it cannot go on; what was finished is kept then, too."""
        for key, line in self._queue.results():
            self._unwritten.put_nowait((key, line))
        writing = asyncio.create_task(self._write())
        writing.add_done_callback(lambda _: self._wake())
        try:
            await self._staff()
            while self._progress.left and not writing.done():
                await self._heed([await self._pool.events.get(), *waiting(self._pool.events)])
        finally:
            try:
                await self._finish(writing)
            finally:
                self.given.put_nowait(None)

    def taken(self) -> None:
        """Go on with handing out when enough of the results were taken."""
        if self.given.qsize() == MOST_WAITING:
            self._wake()

    def _wake(self) -> None:
        self._pool.events.put_nowait(Woken())

    async def _finish(self, writing: "asyncio.Task[None]") -> None:
        """End the workers, and write what they had finished by then. Raises what kept results from being written."""
        try:
            await self._pool.close()
            self._take_in(waiting(self._pool.events))
        finally:
            self._unwritten.put_nowait(None)
            await writing

    async def _staff(self) -> None:
        """Start as many workers as have something to do, with the slots shared among them."""
        slots = min(self._slots, self._queue.waiting(alone=False))
        processes = min(self._pool.processors, slots)
        for place in range(processes):
            await self._start(slots // processes + (place < slots % processes))
        await self._start_alone()

    async def _start(self, slots: int, *, alone: bool = False) -> None:
        number = await self._pool.start(slots)
        self._starting[number] = slots
        if alone:
            self._alone.add(number)

    async def _start_alone(self) -> None:
        if not self._alone and self._queue.waiting(alone=True):
            await self._start(1, alone=True)

    async def _heed(self, events: list[Event]) -> None:
        self._take_in(events)
        for event in events:
            if isinstance(event, Said):
                self._listen(event.worker, event.message)
            elif isinstance(event, Left):
                await self._replace(event)
        if self._unreachable >= max(LEAST_UNREACHABLE, 2 * self._slots):
            said = msgspec.json.decode(self._last_failure, type=Result).error
            raise FerruleError(f"stopped: no answer in {self._unreachable} tries in a row; the last one: {said}")
        self._hand_out()
        if len(self._doubtful) == self._progress.left:  # nothing is left that could show the server at fault
            self._keep(self._doubtful)
            self._doubtful = []
        self._progress.running = self._running
        self._changed()

    @property
    def _running(self) -> int:
        return sum(map(len, self._at_work.values()))

    def _listen(self, worker: int, message: Message) -> None:
        if isinstance(message, Ready):
            self._failed_starts = 0
            self._progress.notice = message.notice
            self._free[worker] = self._starting.pop(worker)
            self._at_work[worker] = {}
            if (left := self._progress.held_until - time.monotonic()) > 0:
                self._pool.send(worker, Hold(left))
        elif isinstance(message, Unable):
            raise FerruleError(message.why)
        elif isinstance(message, Hold):
            self._progress.held_until = max(self._progress.held_until, time.monotonic() + message.seconds)
            for other in self._free:
                if other != worker:
                    self._pool.send(other, message)

    def _take_in(self, events: Iterable[Event]) -> None:
        """Keep results: from now on they are not lost."""
        kept = []
        for event in events:
            if isinstance(event, Said) and isinstance(event.message, Done):
                self._free[event.worker] += 1
                taken = self._at_work[event.worker].pop(event.message.key, None)
                if taken is not None and not self._is_doubtful(event.message):
                    kept.append(event.message)
        if kept:
            self._keep(kept)

    def _is_doubtful(self, done: Done) -> bool:
        """Put aside an error that the server may be the cause of. When it answers again, those tasks are done again."""
        if done.unreachable:
            self._unreachable += 1
            self._last_failure = done.line
            self._put_aside[done.key] += 1
            if self._put_aside[done.key] < MOST_TRIES:
                self._doubtful.append(done)
                return True
        else:
            self._unreachable = 0
            if self._doubtful:
                doubtful, self._doubtful = self._doubtful, []
                self._queue.give_back([one.key for one in doubtful], died=False)
        return False

    def _keep(self, done: list[Done]) -> None:
        self._queue.finish((message.key, message.line) for message in done)
        progress = self._progress
        for message in done:
            self._unwritten.put_nowait((message.key, message.line))
            progress.counts[message.status] = progress.counts.get(message.status, 0) + 1
            progress.errors += message.status == "error"
            progress.passed += message.verdict == "pass"
            progress.failed += message.verdict == "fail"

    def _hand_out(self) -> None:
        if self._unwritten.qsize() + self.given.qsize() > MOST_WAITING:
            return
        for worker, free in self._free.items():
            count = min(free, self._slots - self._running)
            for taken in self._queue.take(count, alone=worker in self._alone) if count > 0 else ():
                self._at_work[worker][taken.key] = taken
                self._free[worker] -= 1
                self._pool.send(worker, Job(taken.key, taken.task, taken.tries))

    async def _replace(self, left: Left) -> None:
        """Go on without a worker: its tasks are done again, by another one."""
        slots = self._starting.pop(left.worker, 0)
        if slots:
            self._failed_starts += 1
            if self._failed_starts >= MOST_FAILED_STARTS:
                raise FerruleError(f"workers do not start: the last one {left.how}")
        lost = self._at_work.pop(left.worker, {})
        slots += self._free.pop(left.worker, 0) + len(lost)
        if lost:
            self._queue.give_back(lost, died=True)
            self._give_up([taken for taken in lost.values() if taken.deaths + 1 >= MOST_DEATHS], left.how)
        if left.worker in self._alone:
            self._alone.discard(left.worker)
        elif self._progress.left:
            await self._start(slots)
        await self._start_alone()

    def _give_up(self, lost: Iterable[Taken], how: str) -> None:
        """Let tasks be errors that have ended their workers again and again."""
        results = []
        for taken in lost:
            task = msgspec.json.decode(taken.task, type=Task)
            error = f"its worker died {MOST_DEATHS} times; the last one {how}"
            result = Result(id=task.id, status="error", error=error, attempts=taken.tries)
            results.append(Done(taken.key, result.line(), result.status))
        if results:
            self._keep(results)

    async def _write(self) -> None:
        """Append results to their file, as many at a time as there are, and take them out of the queue."""
        ending = False
        while not ending:
            taken = [await self._unwritten.get(), *waiting(self._unwritten)]
            results = [result for result in taken if result is not None]
            ending = None in taken
            if results:
                await asyncio.to_thread(self._results.append, [line for _, line in results])
                self._queue.forget([key for key, _ in results])
            for _, line in results:
                self.given.put_nowait(line)
