"""The driver, whoever its workers are: here they are played, as those of another machine could be."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from ferrule.batch import driver as module
from ferrule.batch.driver import ALONE_AFTER, Driver, Progress
from ferrule.batch.messages import Done, Hold, Job, Message, Ready
from ferrule.batch.pool import Event, Left, Said
from ferrule.batch.results import Result, ResultsFile
from ferrule.protocol.errors import FerruleError
from ferrule.store.queue import TaskQueue

Play = Callable[["PlayedPool", int, Job], None]


class PlayedPool:
    """Workers that do with each job what the test says."""

    processors = 2

    def __init__(self, play: Play) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.slots: dict[int, int] = {}
        self.told: list[tuple[int, Message]] = []
        self.closed = False
        self._play = play

    async def start(self, slots: int) -> int:
        number = len(self.slots) + 1
        self.slots[number] = slots
        self.events.put_nowait(Said(number, Ready("workspaces are copied")))
        return number

    def send(self, worker: int, message: Message) -> None:
        self.told.append((worker, message))
        if isinstance(message, Job):
            self._play(self, worker, message)

    async def close(self) -> None:
        self.closed = True

    def finish(self, worker: int, job: Job, **more: object) -> None:
        result = Result(id=msgspec.json.decode(job.task)["id"], status="done", attempts=job.tries, error="not reached")
        self.events.put_nowait(Said(worker, Done(job.key, result.line(), "done", **more)))  # type: ignore[arg-type]

    def die(self, worker: int) -> None:
        self.events.put_nowait(Left(worker, "was ended by SIGKILL"))


class Place:
    """A queue and a file of results."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out.jsonl"
        self.results = ResultsFile(self.out)
        self.queue = TaskQueue(folder / "queue", ALONE_AFTER)

    def driver(self, pool: PlayedPool, ids: list[object], slots: int = 4) -> Driver:
        tasks = [(msgspec.json.encode(one).decode(), msgspec.json.encode({"id": one, "prompt": "x"})) for one in ids]
        self.queue.add(iter(tasks))
        progress = Progress(total=len(tasks))
        return Driver(self.queue, self.results, pool, progress, slots=slots, changed=lambda: None)

    def written(self) -> list[dict[str, object]]:
        return [msgspec.json.decode(line) for line in self.out.read_bytes().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.results.close()
    place.queue.close()


async def test_each_task_has_one_line(place: Place) -> None:
    pool = PlayedPool(PlayedPool.finish)
    driver = place.driver(pool, [*range(1000)])
    running = asyncio.create_task(driver.run())
    lines = []
    while (line := await driver.given.get()) is not None:
        driver.taken()
        lines.append(line)
    await running
    assert b"".join(lines) == place.out.read_bytes()
    assert sorted(int(str(result["id"])) for result in place.written()) == [*range(1000)]
    assert pool.slots == {1: 2, 2: 2}
    assert pool.closed
    assert place.queue.is_empty()
    assert driver._progress.notice == "workspaces are copied"


async def test_no_more_is_handed_out_than_is_taken(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 5)
    pool = PlayedPool(PlayedPool.finish)
    driver = place.driver(pool, [*range(100)])
    running = asyncio.create_task(driver.run())
    await asyncio.wait([running], timeout=0.1)
    assert len(pool.told) < 20
    while await driver.given.get() is not None:
        driver.taken()
    await running
    assert len(place.written()) == 100


async def test_a_task_that_kills_its_workers_is_an_error_and_the_others_are_done(place: Place) -> None:
    def play(pool: PlayedPool, worker: int, job: Job) -> None:
        if job.key == "13":
            pool.die(worker)
        else:
            pool.finish(worker, job)

    pool = PlayedPool(play)
    await place.driver(pool, [*range(20)]).run()
    results = {result["id"]: result for result in place.written()}
    assert len(place.written()) == len(results) == 20
    assert results[13]["status"] == "error"
    assert results[13]["error"] == "its worker died 5 times; the last one was ended by SIGKILL"
    assert results[13]["attempts"] == 5
    assert {result["status"] for key, result in results.items() if key != 13} == {"done"}
    jobs = [(worker, message.key) for worker, message in pool.told if isinstance(message, Job)]
    owners = [worker for worker, key in jobs if key == "13"]
    assert [pool.slots[worker] for worker in owners] == [2, 2, 1, 1, 1]
    assert [key for worker, key in jobs if worker in owners[2:]] == ["13"] * 3


async def test_what_died_with_a_worker_is_done_again(place: Place) -> None:
    died: list[str] = []

    def play(pool: PlayedPool, worker: int, job: Job) -> None:
        if worker > 1:
            pool.finish(worker, job)
        else:
            died.append(job.key)
            if len(died) == 2:
                pool.die(worker)

    await place.driver(PlayedPool(play), [*range(10)]).run()
    assert {str(result["id"]): result["attempts"] for result in place.written()} == {
        str(one): 2 if str(one) in died else 1 for one in range(10)
    }


async def test_workers_that_do_not_start_are_told(place: Place) -> None:
    class Broken(PlayedPool):
        async def start(self, slots: int) -> int:
            number = len(self.slots) + 1
            self.slots[number] = slots
            self.events.put_nowait(Left(number, "ended with exit code 1: no module"))
            return number

    with pytest.raises(FerruleError, match="workers do not start: the last one ended with exit code 1: no module"):
        await place.driver(Broken(PlayedPool.finish), [1, 2]).run()
    assert place.written() == []


async def test_a_server_that_answers_nobody_ends_the_batch(place: Place) -> None:
    def play(pool: PlayedPool, worker: int, job: Job) -> None:
        pool.finish(worker, job, unreachable=int(job.key) >= 10)

    with pytest.raises(FerruleError, match=r"stopped: no answer in 2\d tries in a row; the last one: not reached"):
        await place.driver(PlayedPool(play), [*range(100)]).run()
    assert [*range(10)] == sorted(int(str(result["id"])) for result in place.written())


async def test_tasks_that_an_outage_has_met_are_done_again(place: Place) -> None:
    def play(pool: PlayedPool, worker: int, job: Job) -> None:
        pool.finish(worker, job, unreachable=(10 <= int(job.key) < 20 and job.tries == 1) or job.key == "50")

    await place.driver(PlayedPool(play), [*range(100)]).run()
    tries = {int(str(result["id"])): result["attempts"] for result in place.written()}
    assert tries == {one: 2 if 10 <= one < 20 else 3 if one == 50 else 1 for one in range(100)}


async def test_few_tasks_whose_server_does_not_answer_are_errors(place: Place) -> None:
    pool = PlayedPool(lambda pool, worker, job: pool.finish(worker, job, unreachable=True))
    await place.driver(pool, [*range(6)], slots=2).run()
    assert [result["attempts"] for result in place.written()] == [1] * 6


async def test_a_wait_that_one_worker_is_asked_for_holds_all(place: Place) -> None:
    def play(pool: PlayedPool, worker: int, job: Job) -> None:
        if job.key == "0":
            pool.events.put_nowait(Said(worker, Hold(7.0)))
        pool.finish(worker, job)

    pool = PlayedPool(play)
    await place.driver(pool, [*range(8)]).run()
    first = next(worker for worker, message in pool.told if isinstance(message, Job) and message.key == "0")
    assert [worker for worker, message in pool.told if message == Hold(7.0)] == [3 - first]


async def test_results_that_cannot_be_written_are_kept_and_written_later(place: Place) -> None:
    gone = place.out.with_name("gone")

    def play(pool: PlayedPool, worker: int, job: Job) -> None:
        place.out.rename(gone)
        pool.finish(worker, job)

    driver = place.driver(PlayedPool(play), ["a"], slots=1)
    with pytest.raises(FerruleError, match="moved, replaced or deleted"):
        await driver.run()
    assert driver.given.get_nowait() is None  # nobody waits for more
    gone.rename(place.out)
    pool = PlayedPool(PlayedPool.finish)
    driver = place.driver(pool, [])
    await driver.run()
    assert [result["id"] for result in place.written()] == ["a"]
    assert pool.told == []


async def test_an_interrupt_keeps_what_was_finished(place: Place) -> None:
    halfway = asyncio.Event()

    def play(pool: PlayedPool, worker: int, job: Job) -> None:
        if int(job.key) < 5:
            pool.finish(worker, job)
        else:
            halfway.set()

    running = asyncio.create_task(place.driver(PlayedPool(play), [*range(10)], slots=2).run())
    await halfway.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert sorted(int(str(result["id"])) for result in place.written()) == [*range(5)]
