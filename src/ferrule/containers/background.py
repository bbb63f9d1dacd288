"""Commands that only wait for others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ferrule.process.launcher import Child, Launcher, Limits, Stdio


class Background(Launcher):
    """Starts commands with another launcher, and hands each to `leave_out`."""

    def __init__(self, launcher: Launcher, leave_out: Callable[[Any], object]) -> None:
        self._launcher = launcher
        self._leave_out = leave_out

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        """See `Launcher`."""
        child = await self._launcher.launch(argv, env, cwd, stdio, limits)
        self._leave_out(child)
        return child
