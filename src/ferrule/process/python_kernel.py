"""Start a Python kernel: any Python of the machine or of a container, which gets its program over the pipe."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ferrule.process.kernel import Kernel, KernelLost
from ferrule.process.launcher import Launcher, LaunchError
from ferrule.sync import uninterrupted

INTERRUPT_GRACE = 3.0
"""Seconds in which an interrupted cell has to end: far more than `finally` blocks take, and not so long that a user who
interrupts wonders."""
START_MS = 60_000
"""Limit of the start: a first import from a slow disk takes seconds; more is a program that is no Python."""
LOST_DESCRIPTOR = 79
"""The exit code by which `python_cells` says that a cell took its descriptors."""

_SOURCES = ("python_tools.py", "python_shown.py", "python_cells.py")
_BOOT = """\
import sys
if sys.version_info < (3, 8): sys.exit("Python 3.8 or newer is needed, not %d.%d" % sys.version_info[:2])
import builtins, os
own = {"__name__": "kernel", "__file__": "<kernel>", "__builtins__": dict(vars(builtins))}
for size in map(int, sys.argv[1:]):
    source = b""
    while len(source) < size: source += os.read(3, size - len(source)) or sys.exit(1)
    exec(compile(source, "<kernel>", "exec"), own)
"""


async def start_python(launcher: Launcher, python: str, env: Mapping[str, str], cwd: str, first: str = "") -> Kernel:
    """Start a kernel in the interpreter `python` and wait until it takes cells. Raises `LaunchError`.

    `first` is evaluated before; nobody sees what comes of it.

    Nothing but the interpreter needs to exist where it runs. Cells find modules from their working directory, then in
    `PYTHONPATH`, then where the interpreter has them; the kernel itself loads nothing from the first two.
    """
    sources = _sources()
    argv = (python, "-I", "-u", "-c", _BOOT, *(str(len(source)) for source in sources))
    kernel = await Kernel.start(launcher, argv, env, cwd, preamble=b"".join(sources), grace=INTERRUPT_GRACE)
    try:
        await kernel.run(first, START_MS)
    except KernelLost as error:
        said = error.written.text().strip().rpartition("\n")[2]
        raise LaunchError(f"{python} does not start as a kernel: {error}{said and ': '}{said}") from error
    except BaseException:
        await uninterrupted(kernel.kill())
        raise
    return kernel


@cache
def _sources() -> tuple[bytes, ...]:
    return tuple(Path(__file__).with_name(name).read_bytes() for name in _SOURCES)
