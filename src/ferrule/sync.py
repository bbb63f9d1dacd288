"""The only sync facade: a background event loop that runs everything called from synchronous code. Also what owners
close, and work that a cancellation does not cut short."""

import asyncio
import atexit
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import wait
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")

AT_EXIT_SECONDS = 6.0
"""How long a program that closed nothing takes to end at most: a stubborn MCP server is killed after 4 seconds."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_open: "set[Callable[[], Coroutine[Any, Any, None]]]" = set()


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop that serves all synchronous callers of this process, started on first use."""
    global _loop, _thread  # noqa: PLW0603 - the one sync loop
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="ferrule-sync", daemon=True)
            _thread.start()
            atexit.register(_close_what_is_open)
            os.register_at_fork(after_in_child=_forget)
        return _loop


def _forget() -> None:
    """Give a forked child a loop of its own: the parent's has no thread here, and what is open on it is not ours."""
    global _lock, _loop, _thread, _open
    _lock, _loop, _thread, _open = threading.Lock(), None, None, set()


def close_at_exit(close: "Callable[[], Coroutine[Any, Any, None]]") -> Callable[[], None]:
    """Run `close` when the program ends, unless the function returned was called before.

    For what starts processes on the background loop, where no end of a loop cancels it. Elsewhere this does nothing.
    """
    if asyncio.get_running_loop() is not _loop:
        return lambda: None
    _open.add(close)
    return lambda: _open.discard(close)


def _close_what_is_open() -> None:
    loop, thread = _loop, _thread
    if loop is None or thread is None or not thread.is_alive():
        return
    wait([asyncio.run_coroutine_threadsafe(close(), loop) for close in tuple(_open)], AT_EXIT_SECONDS)


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Do blocking work in a thread; at once where the program ends, when threads cannot be had any more. For what
    `close_at_exit` runs."""
    try:
        done = asyncio.get_running_loop().run_in_executor(None, partial(work, *arguments))
    except RuntimeError:
        return work(*arguments)
    return await done


async def uninterrupted(work: Coroutine[Any, Any, object] | asyncio.Future[Any]) -> None:
    """Finish `work` even if the waiting task is cancelled meanwhile, then raise the cancellation."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled:
        raise cancelled


def call_async_from_sync(
    function: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, timeout: float | None = None, **kwargs: Any
) -> T:
    """Run a coroutine function on the background loop and wait for its result, at most `timeout` seconds.

    A function that has a `timeout` of its own gets it instead. Raises what `wait_for_coroutine` raises.
    """
    if timeout is not None and "timeout" in inspect.signature(function).parameters:
        return wait_for_coroutine(function(*args, timeout=timeout, **kwargs))
    return wait_for_coroutine(function(*args, **kwargs), timeout)


def wait_for_coroutine(coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """Run a coroutine on the background loop and wait up to `timeout` seconds.

    If the wait ends early (Ctrl-C, the timeout), the coroutine is cancelled and its clean-up is awaited. Raises
    `TimeoutError`, what the coroutine raises, and `RuntimeError` if called on the background loop itself.
    """
    loop = background_loop()
    try:
        on_own_loop = asyncio.get_running_loop() is loop
    except RuntimeError:
        on_own_loop = False
    if on_own_loop:
        coroutine.close()
        raise RuntimeError("this is already the background loop: await the coroutine instead")
    run = _Run(loop, coroutine)
    try:
        finished = run.wait(timeout)
    except BaseException:
        run.cancel_and_wait()
        raise
    if not finished:
        run.cancel_and_wait()
        raise TimeoutError(f"not done after {timeout} seconds")
    return run.result()


class _Run(Generic[T]):
    """A coroutine on the loop, watched from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._done = threading.Event()
        self._task: asyncio.Task[T] | None = None
        loop.call_soon_threadsafe(self._start, coroutine)

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._task = self._loop.create_task(coroutine)
        self._task.add_done_callback(lambda _: self._done.set())

    def wait(self, timeout: float | None) -> bool:
        return self._done.wait(timeout)

    def cancel_and_wait(self) -> None:
        self._loop.call_soon_threadsafe(lambda: self._task is not None and self._task.cancel())
        self._done.wait()

    def result(self) -> T:
        assert self._task is not None
        return self._task.result()


class AsyncClosing:
    """A mix-in for what its owner closes: `async with` does."""

    __slots__ = ()

    async def aclose(self) -> None:
        """Close what the object holds."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Closing(AsyncClosing):
    """A mix-in for what plain code may own, too: `with` closes it."""

    __slots__ = ()

    def close(self) -> None:
        """`aclose`, for plain code."""
        wait_for_coroutine(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def on_loop(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do `work` on another loop, which runs elsewhere. A wait that is cancelled cancels the work, and ends with it."""
    running = asyncio.get_running_loop()
    done = running.create_future()
    task: asyncio.Task[T] | None = None

    def start() -> None:
        nonlocal task
        task = loop.create_task(work())
        task.add_done_callback(lambda _: running.call_soon_threadsafe(done.set_result, None))

    loop.call_soon_threadsafe(start)
    cancelled = False
    while not done.done():
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            cancelled = True
            loop.call_soon_threadsafe(lambda: task is not None and task.cancel())
    assert task is not None
    if cancelled:
        task.cancelled() or task.exception()  # seen
        raise asyncio.CancelledError
    return task.result()


class LoopBound(AsyncClosing):
    """A mix-in for objects bound to the loop that used them first."""

    __slots__ = ("_owner",)

    def bind_to_running_loop(self) -> None:
        """Remember the running loop; raise `RuntimeError` if another one uses the object later."""
        loop = asyncio.get_running_loop()
        owner = getattr(self, "_owner", None)
        if owner is None:
            self._owner = loop
        elif owner is not loop:
            name = type(self).__name__
            raise RuntimeError(f"this {name} belongs to another event loop; make a new one there")
