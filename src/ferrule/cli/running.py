"""Run one turn in a new or stored session, with clean-up however it ends. `exec` and `demo` call it."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from ferrule.dispatch.front_end import FrontEnd
from ferrule.protocol.settings import Settings
from ferrule.session.opening import open_session
from ferrule.session.rollout import StoredSession
from ferrule.session.session import Prompt
from ferrule.session.turn import TurnResult

T = TypeVar("T")


class Interrupted(KeyboardInterrupt):
    """The work was interrupted by Ctrl-C or a signal; everything was closed."""


async def run_turn(
    settings: Settings, front_end: FrontEnd, prompt: Prompt, stored: StoredSession | None = None
) -> TurnResult:
    """Open the session, run the turn, close the session. Raises what `open_session` and `Session.run` raise."""
    async with await open_session(settings, front_end, stored=stored) as session:
        return await session.run(prompt)


def run_interruptibly(work: Coroutine[Any, Any, T]) -> T:
    """Run in a new event loop. Ctrl-C, SIGTERM and SIGHUP cancel the work, wait for its clean-up, and raise
    `Interrupted`."""
    try:
        return asyncio.run(_with_signals(work))
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        raise Interrupted from error


async def _with_signals(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    return await work
