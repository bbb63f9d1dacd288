"""Run one turn in a new or stored session."""

import asyncio
import math
from contextlib import AsyncExitStack

from ferrule.dispatch.front_end import FrontEnd
from ferrule.protocol.settings import Settings
from ferrule.session.bounds import COMMAND_GRACE, RunTimeout, within
from ferrule.session.opening import open_session
from ferrule.session.result import TurnResult
from ferrule.session.rollout import StoredSession
from ferrule.session.session import Prompt


async def run_turn(
    settings: Settings, front_end: FrontEnd, prompt: Prompt, stored: StoredSession | None = None
) -> TurnResult:
    """Open the session, run the turn, close the session.

    Commands that still run when the model is done get `COMMAND_GRACE` to end, or what is left of the run. Raises what
    `open_session` and `Session.run` raise, and `RunTimeout`.
    """
    now, limit = asyncio.get_running_loop().time, settings.run_timeout
    end = math.inf if limit is None else now() + limit
    async with AsyncExitStack() as ends:
        async with within(limit, RunTimeout, "run"):
            session = await ends.enter_async_context(await open_session(settings, front_end, stored=stored))
            result = await session.run(prompt)
        await session.settle_commands(min(COMMAND_GRACE, max(end - now(), 0.0)))
    return result
