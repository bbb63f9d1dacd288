"""Blocking functions, off the event loop, on daemon threads: a function that never returns cannot hold the exit."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_blocking(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function` on a thread of its own and wait. When the wait is cancelled, the result is dropped."""
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
            done.set_result(result)  # type: ignore[arg-type]

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed: nobody waits any more
        if not loop.is_closed():
            raise


def _awaitable(error: BaseException) -> BaseException:
    """StopIteration cannot travel through a future."""
    if isinstance(error, StopIteration):
        wrapped = RuntimeError("the function raised StopIteration")
        wrapped.__cause__ = error
        return wrapped
    return error
