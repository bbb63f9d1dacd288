"""Run one turn in a new or stored session."""

from ferrule.dispatch.front_end import FrontEnd
from ferrule.protocol.settings import Settings
from ferrule.session.bounds import RunTimeout, within
from ferrule.session.opening import open_session
from ferrule.session.result import TurnResult
from ferrule.session.rollout import StoredSession
from ferrule.session.session import Prompt


async def run_turn(
    settings: Settings, front_end: FrontEnd, prompt: Prompt, stored: StoredSession | None = None
) -> TurnResult:
    """Open the session, run the turn, close the session. Raises what `open_session` and `Session.run` raise, and
    `RunTimeout`."""
    async with (
        within(settings.run_timeout, RunTimeout, "run"),
        await open_session(settings, front_end, stored=stored) as session,
    ):
        return await session.run(prompt)
