"""Open the terminal interface and stay in it until the user leaves."""

import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from ferrule.doors.terminal.app import TerminalApp
from ferrule.protocol.errors import FerruleError

if TYPE_CHECKING:
    from ferrule.session.talk import Opening


async def run_terminal(load: "Callable[[], Opening]") -> bool:
    """Show a session until the user quits. Return False if a signal ended it; the terminal is as before then, too.

    `load` says which session, in a thread. Raises what it and `open_session` raise.
    """
    app = TerminalApp(load)
    loop = asyncio.get_running_loop()
    ended_by: list[int] = []

    def end(number: int) -> None:
        ended_by.append(number)
        app.exit()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    try:
        await app.run_async()
    finally:
        await app.close()
    if app.failure is not None:
        raise app.failure
    if app.return_code:
        raise FerruleError("the terminal interface failed, as is told above; the session goes on by /resume")
    return not ended_by
