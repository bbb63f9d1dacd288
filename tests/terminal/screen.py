"""The terminal interface without a terminal: its screen as text, and somebody who types."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from textual.pilot import Pilot

from ferrule.doors.terminal.app import TerminalApp
from ferrule.protocol.permissions import AskForApproval
from ferrule.protocol.settings import Settings
from ferrule.session.talk import Opening
from ferrule.testing import ScriptedModel
from ferrule.testing.steps import StepLike
from tests.cli.played import settings_for

SECONDS = 20.0


@dataclass
class Screen:
    """What is shown, and the keys."""

    app: TerminalApp
    pilot: Pilot[int]
    model: ScriptedModel

    @property
    def lines(self) -> list[str]:
        """The rows of the screen, without blanks at their ends."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def text(self) -> str:
        """The screen."""
        return "\n".join(self.lines)

    async def press(self, *keys: str) -> None:
        """Press keys."""
        await self.pilot.press(*keys)

    async def say(self, text: str) -> None:
        """Type a text and send it."""
        self.app.composer.insert(text)
        await self.pilot.press("enter")

    async def until(self, pattern: str, *, gone: bool = False) -> str:
        """Wait until the screen matches, or no longer does. Return the screen."""
        try:
            async with asyncio.timeout(SECONDS):
                while bool(re.search(pattern, self.text, re.MULTILINE)) is gone:
                    await self.pilot.pause(0.01)
        except TimeoutError:
            raise AssertionError(f"{pattern!r} {'stays' if gone else 'does not come'}:\n{self.text}") from None
        return self.text


@asynccontextmanager
async def shown(
    folder: Path, script: Sequence[StepLike] = (), *, size: tuple[int, int] = (80, 24), **changed: Any
) -> AsyncIterator[Screen]:
    """Show a session with full access in `folder`, which asks; `changed` are settings."""
    with ScriptedModel(script) as model:
        app = TerminalApp(lambda: Opening(settings=asking(folder, model.base_url, **changed)))
        try:
            async with app.run_test(size=size) as pilot:
                screen = Screen(app, pilot, model)
                await screen.until("^ ferrule [0-9.]+")
                yield screen
        finally:
            await app.close()


def asking(folder: Path, base_url: str, **changed: Any) -> Settings:
    """Settings of a session in which somebody can be asked."""
    settings = msgspec.structs.replace(settings_for(folder, base_url), approval_policy=AskForApproval.UNTRUSTED)
    return msgspec.structs.replace(settings, **changed)
