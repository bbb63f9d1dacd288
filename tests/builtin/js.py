"""A bench with the JavaScript tools, and where they can run."""

import asyncio
import shutil
from collections.abc import Callable

import pytest

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed here")

JS = ("js_repl", "js_repl_reset")


async def until(condition: Callable[[], bool]) -> None:
    """Look again and again, as at what the kernel's own processes do there is no event to wait for."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
