"""Whether there can be a screen on this machine."""

import pytest

from ferrule.containers.screen import ScreenError
from ferrule.containers.screen.program import find_program
from ferrule.sandbox.plan import Level
from tests.programs import REQUIRED
from tests.sandbox.conftest import require


async def require_screen() -> None:
    """Skip the test where there can be none, or fail it where a browser is required."""
    await require(Level.NAMESPACES)
    try:
        find_program()
    except ScreenError as error:
        (pytest.fail if "chromium" in REQUIRED else pytest.skip)(str(error))
