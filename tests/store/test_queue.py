"""The queue of tasks: handed out once, counted, kept until somebody says so."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ferrule.store.errors import StoreError
from ferrule.store.queue import Taken, TaskQueue

TASKS = [("a", b"A"), ("b", b"B"), ("c", b"C")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl.queue"


@pytest.fixture
def queue(path: Path) -> Iterator[TaskQueue]:
    queue = TaskQueue(path, alone_after=2)
    queue.add(iter(TASKS))
    yield queue
    queue.close()


def test_tasks_are_handed_out_in_their_order_and_once(queue: TaskQueue) -> None:
    assert queue.take(2) == [Taken("a", b"A", 1, 0), Taken("b", b"B", 1, 0)]
    assert queue.take(5) == [Taken("c", b"C", 1, 0)]
    assert queue.take(5) == []


def test_a_task_whose_owner_died_is_handed_out_again_and_in_the_end_alone(queue: TaskQueue) -> None:
    for deaths in range(2):
        assert queue.take(1) == [Taken("a", b"A", deaths + 1, deaths)]
        queue.give_back(["a"], died=True)
    assert (queue.waiting(alone=False), queue.waiting(alone=True)) == (2, 1)
    assert [taken.key for taken in queue.take(5)] == ["b", "c"]
    assert queue.take(5, alone=True) == [Taken("a", b"A", 3, 2)]


def test_a_task_that_was_given_back_after_its_result_is_done(queue: TaskQueue) -> None:
    queue.take(1)
    queue.finish([("a", b"first")])
    queue.finish([("a", b"second")])
    queue.give_back(["a"], died=True)
    assert list(queue.results()) == [("a", b"first")]
    assert [taken.key for taken in queue.take(5)] == ["b", "c"]


def test_the_next_process_goes_on(queue: TaskQueue, path: Path) -> None:
    queue.take(2)
    queue.finish([("a", b"result")])
    queue.close()
    again = TaskQueue(path, alone_after=2)
    assert not path.with_name(f"{path.name}-shm").exists()
    again.add(iter([("c", b"C, changed"), ("b", b"B"), ("d", b"D")]))
    assert list(again.results()) == [("a", b"result")]
    assert again.take(9) == [Taken("c", b"C, changed", 1, 0), Taken("b", b"B", 2, 0), Taken("d", b"D", 1, 0)]
    again.forget(["a", "b", "c", "d"])
    assert again.is_empty()
    again.remove()
    assert list(path.parent.iterdir()) == []


def test_what_an_earlier_run_asked_for_and_this_one_does_not_is_kept_and_not_handed_out(
    queue: TaskQueue, path: Path
) -> None:
    queue.close()
    again = TaskQueue(path, alone_after=2)
    again.add(iter([("b", b"B")]))
    assert [taken.key for taken in again.take(9)] == ["b"]
    assert not again.is_empty()
    again.close()


def test_a_queue_with_nothing_to_remember_is_empty(queue: TaskQueue, path: Path) -> None:
    queue.take(1)
    queue.forget(["a"])
    assert not queue.is_empty()
    queue.close()
    again = TaskQueue(path, alone_after=2)
    assert again.is_empty()
    again.add(iter([("b", b"B")]))
    assert not again.is_empty()
    again.close()


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="a database of another program; move it away"):
        TaskQueue(path, alone_after=2)
    assert path.read_bytes() == before


def test_what_is_no_database_is_left_alone(path: Path) -> None:
    path.write_text("notes " * 1000)
    with pytest.raises(StoreError, match="is no database; move it away"):
        TaskQueue(path, alone_after=2)
    assert path.read_text() == "notes " * 1000


def test_a_queue_of_a_newer_version_is_left_alone(queue: TaskQueue, path: Path) -> None:
    queue.close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma user_version = 99")
    with pytest.raises(StoreError, match="newer Ferrule"):
        TaskQueue(path, alone_after=2)
