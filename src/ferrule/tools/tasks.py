"""Tasks that start eagerly, and blocking functions off the event loop."""

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
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
    that never returns cannot block the exit of the process."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(function, *args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - it is raised again where it is awaited
            error = _awaitable(raised)
        _settle(loop, done, result, error)

    threading.Thread(target=work, name=f"ferrule-{getattr(function, '__name__', 'tool')}", daemon=True).start()
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

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed: nobody is waiting any more
        if not loop.is_closed():
            raise


def _awaitable(error: BaseException) -> BaseException:
    """Wrap StopIteration, which cannot pass through a future."""
    if isinstance(error, StopIteration):
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        return wrapped
    return error
