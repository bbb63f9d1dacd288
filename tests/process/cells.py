"""A Python kernel in this interpreter, and what its cells say."""

import base64
import os
import sys
import textwrap
from pathlib import Path

from ferrule.process.kernel import CellResult, Kernel
from ferrule.process.plain import PlainLauncher
from ferrule.process.python_kernel import start_python
from tests.processes import DEADLINE

LIMIT = 1000 * int(DEADLINE)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
PICTURE = f"""
class Picture:
    def __init__(self, png={PNG!r}):
        self.png = png
    def _repr_png_(self):
        return self.png
    def __repr__(self):
        return "<picture>"
"""


async def started(cwd: Path, **variables: str) -> Kernel:
    return await start_python(PlainLauncher(), sys.executable, {**os.environ, **variables}, str(cwd))


async def run(kernel: Kernel, *cells: str, limit: int = LIMIT) -> str:
    """What the last cell wrote, then its error."""
    text = ""
    for cell in cells:
        result = await kernel.run(textwrap.dedent(cell), limit)
        text = told(result)
    return text


def told(result: CellResult) -> str:
    return (result.inherited.text() + (result.error or "")).removesuffix("\n")
