"""How a process is started, whoever confines it. The contract has no pid: a sandbox reports the exit itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ferrule.protocol.errors import FerruleError

PTY_ROWS = 50
PTY_COLUMNS = 200
"""Wide enough that tables and paths are rarely wrapped."""


@dataclass(frozen=True, slots=True)
class Pipes:
    """Separate pipes for stdout and stderr; stdin is `/dev/null` unless it is asked for.

    `merge` sends stderr down stdout's pipe, in order of arrival. `given` is a descriptor of the caller's that the
    process reads instead, as it is; it stays the caller's.
    """

    stdin: bool = False
    given: int | None = None
    merge: bool = False


@dataclass(frozen=True, slots=True)
class Pty:
    """A new controlling terminal of this size."""

    rows: int = PTY_ROWS
    columns: int = PTY_COLUMNS


Stdio = Pipes | Pty


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource bounds of one process tree; None leaves the launcher's default."""

    max_processes: int | None = None
    core_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: an exit code, or the signal that ended it."""

    code: int | None = None
    signal: int | None = None

    @property
    def shell_code(self) -> int:
        """The code as a shell reports it: 128 + n for a death by signal n."""
        return self.code if self.code is not None else 128 + (self.signal or 0)


class Child(Protocol):
    """A started process. Its descriptors belong to the caller, who closes them. For a PTY stdin and stdout are the same
    descriptor, its master; stderr is None there and where it was merged."""

    @property
    def stdin(self) -> int | None: ...
    @property
    def stdout(self) -> int: ...
    @property
    def stderr(self) -> int | None: ...

    async def wait(self) -> ExitStatus:
        """The exit of the started process itself, not of its descendants. May be awaited many times, by many tasks."""
        ...

    async def interrupt(self) -> None:
        """SIGINT to the foreground process group (PTY) or to the process's group (pipes)."""
        ...

    async def kill_tree(self, grace: float = 0.0) -> None:
        """End the process and every descendant, also those that left its group: TERM, `grace` seconds, KILL. Returns
        when none is left."""
        ...

    async def leftovers(self, output_held: bool) -> str | None:
        """After the exit: one sentence about descendants that outlived the process (left running, or ended with it).

        None if there are none. `output_held` says that a descriptor did not reach its end, so that somebody has it.
        """
        ...

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the PTY; the foreground group gets SIGWINCH. Does nothing without a PTY."""
        ...


class Launcher(Protocol):
    """Starts processes, plainly or confined. Raises `LaunchError`."""

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child: ...


class LaunchError(FerruleError):
    """The process could not be started; the text names what is wrong (program, working directory, sandbox)."""
