"""Hooks around a turn: before its first words, and where the model wants to end it."""

from ferrule.protocol.errors import FerruleError
from ferrule.session.hooks import SessionHooks

MAX_STOP_BLOCKS = 10
"""Times per turn that Stop hooks may send the model back to work: a hook that always does must not run forever."""


class PromptBlocked(FerruleError):
    """A hook refused the user's words; nothing was sent."""


class TurnHooks:
    """Asks `hooks`, if there are any, when a turn begins and ends."""

    __slots__ = ("_hooks", "_source", "_started")

    def __init__(self, hooks: SessionHooks | None, *, resumed: bool) -> None:
        self._hooks = hooks
        self._source = "resume" if resumed else "startup"
        self._started = False

    async def at_start(self, prompt: str) -> None:
        """SessionStart once, then `at_prompt`."""
        if self._hooks is not None and not self._started:
            self._started = True
            await self._hooks.ask("SessionStart", source=self._source)
        await self.at_prompt(prompt)

    async def at_prompt(self, prompt: str) -> None:
        """UserPromptSubmit, which may refuse what the user said. Raises `PromptBlocked`."""
        if self._hooks is None:
            return
        for answer in await self._hooks.ask("UserPromptSubmit", prompt=prompt):
            reason = answer.block_reason or (None if answer.continue_ else answer.stop_reason or "a hook stopped it")
            if reason is not None:
                raise PromptBlocked(f"the prompt was blocked by a hook: {reason}")

    async def before_compaction(self, trigger: str) -> str | None:
        """PreCompact: return why a hook blocks the compaction, or None."""
        if self._hooks is None:
            return None
        for answer in await self._hooks.ask("PreCompact", trigger=trigger):
            if answer.block_reason is not None or not answer.continue_:
                return answer.block_reason or answer.stop_reason or "no reason was given"
        return None

    async def after_compaction(self, trigger: str, summary: str) -> None:
        """PostCompact: a hook sees the summary; empty where the server made it."""
        if self._hooks is not None:
            await self._hooks.ask("PostCompact", trigger=trigger, compact_summary=summary)

    async def at_stop(self, last_message: str, times: int) -> str | None:
        """Stop: a hook may send the model back to work, for the `times`-th time; what it is told, or None."""
        if self._hooks is None or times >= MAX_STOP_BLOCKS:
            return None
        answers = await self._hooks.ask("Stop", last_assistant_message=last_message, stop_hook_active=times > 0)
        return "\n".join(reason for answer in answers if (reason := answer.block_reason)) or None
