"""Run a command's work in an event loop of its own, with clean-up however it ends."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

OPEN_FILES = 65_536
"""Files and connections that a server may have open: far more than one process serves."""


class Interrupted(KeyboardInterrupt):
    """The work was interrupted by Ctrl-C or a signal; everything was closed."""


def allow_open_files() -> None:
    """Let this process open as many files as it may: a stream takes two, a sandbox eight, and many systems begin with
    1,024."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run_interruptibly(work: Coroutine[Any, Any, T]) -> T:
    """Run in a new event loop. Ctrl-C, SIGTERM and SIGHUP cancel the work, wait for its clean-up, and raise
    `Interrupted`."""
    try:
        return asyncio.run(_with_signals(work))
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        raise Interrupted from error


async def run_until_signal(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Serve until Ctrl-C, SIGTERM or SIGHUP sets the event that `serve` is given."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(stop)


async def _with_signals(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    return await work
