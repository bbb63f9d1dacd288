"""Tasks that start eagerly, and blocking functions off the event loop."""

import asyncio
import contextvars
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from ferrule.sync import uninterrupted

P = ParamSpec("P")
T = TypeVar("T")


def start_task(coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a task eagerly, where the interpreter can (3.12): it runs until it first has to wait, so a call that never
    waits costs no turn of the loop."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.create_task(coroutine)


async def end_tasks(tasks: "Iterable[asyncio.Future[Any]]") -> None:
    """Cancel tasks and wait until all have ended, whatever they do with it, and however often the wait is cancelled."""
    ending = set(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await uninterrupted(_ended(ending))


async def _ended(tasks: "set[asyncio.Future[Any]]") -> None:
    await asyncio.wait(tasks)


async def run_blocking(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` on a separate daemon thread and wait. If the wait is cancelled, the result is dropped; a function
    that never returns cannot block the exit of the process. However many run, each has a thread of its own."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> Callable[[], object]:
        try:
            return partial(_settle, loop, done, context.run(function, *args, **kwargs), None)
        except BaseException as raised:  # noqa: BLE001 - it is raised again where it is awaited
            return partial(_settle, loop, done, None, _awaitable(raised))

    _run_on_a_thread(work, getattr(function, "__name__", "tool"))
    return await done


def _settle(
    loop: asyncio.AbstractEventLoop, done: "asyncio.Future[T]", result: T | None, error: BaseException | None
) -> None:
    def settle() -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # without an error there is a result

    with suppress(RuntimeError):  # the loop is closed: nobody is waiting any more
        loop.call_soon_threadsafe(settle)


Work = Callable[[], Callable[[], object]]
"""What a thread does; what it returns hands over the result. Neither raises."""


class _Worker:
    """A thread that does one work after the other. While it has none it is among the idle ones, for some seconds."""

    __slots__ = ("_inbox", "_thread")

    def __init__(self) -> None:
        self._inbox: SimpleQueue[tuple[Work, str]] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def do(self, work: Work, name: str) -> None:
        """Do this next."""
        self._inbox.put((work, name))

    def _serve(self) -> None:
        while (given := self._next()) is not None:
            work, name = given
            self._thread.name = f"ferrule-{name}"
            hand_over = work()
            self._thread.name = IDLE_NAME
            _idle.append(self)  # before the result is there: whoever waits for it may want a thread next
            hand_over()
            del given, work, hand_over

    def _next(self) -> tuple[Work, str] | None:
        try:
            return self._inbox.get(timeout=IDLE_SECONDS)
        except Empty:
            pass
        try:
            _idle.remove(self)
        except ValueError:  # somebody has just taken it
            return self._inbox.get()
        return None


IDLE_SECONDS = 10
"""How long a thread is kept without work: a model asks for its next call within seconds, and a start takes as long as
four calls."""
IDLE_NAME = "ferrule-idle"

_idle: list[_Worker] = []
"""The last one to become idle is taken first, so those that are not needed end."""


def _run_on_a_thread(work: Work, name: str) -> None:
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.do(work, name)


os.register_at_fork(after_in_child=_idle.clear)
"""A forked child has none of these threads."""


def _awaitable(error: BaseException) -> BaseException:
    """Wrap StopIteration, which cannot pass through a future."""
    if isinstance(error, StopIteration):
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        return wrapped
    return error
