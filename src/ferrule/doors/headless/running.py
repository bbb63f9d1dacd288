"""Run one turn in a new or stored session."""

from ferrule.dispatch.front_end import FrontEnd
from ferrule.protocol.settings import Settings
from ferrule.session.opening import open_session
from ferrule.session.rollout import StoredSession
from ferrule.session.session import Prompt
from ferrule.session.turn import TurnResult


async def run_turn(
    settings: Settings, front_end: FrontEnd, prompt: Prompt, stored: StoredSession | None = None
) -> TurnResult:
    """Open the session, run the turn, close the session. Raises what `open_session` and `Session.run` raise."""
    async with await open_session(settings, front_end, stored=stored) as session:
        return await session.run(prompt)
