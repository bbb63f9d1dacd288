"""The launcher contract, plain or sandboxed. It has no pid: a sandbox reports the exit itself."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from ferrule.protocol.errors import FerruleError

PTY_ROWS = 50
PTY_COLUMNS = 200
"""Wide enough that tables and paths rarely wrap."""


class Pipes(msgspec.Struct, frozen=True):
    """Separate pipes for stdout and stderr; stdin is `/dev/null` unless requested.

    `merge` sends stderr to stdout's pipe, in order of arrival. `given` is a descriptor of the caller's that becomes
    the process's stdin as it is; the caller still owns it.
    """

    stdin: bool = False
    given: int | None = None
    merge: bool = False


class Pty(msgspec.Struct, frozen=True):
    """A new controlling terminal of this size."""

    rows: int = PTY_ROWS
    columns: int = PTY_COLUMNS


Stdio = Pipes | Pty


class Limits(msgspec.Struct, frozen=True):
    """Resource limits of one process tree; None keeps the launcher's default.

    `data_bytes` (memory that a process may write), `file_bytes` (the size of a file that it writes) and `cpu_seconds`
    hold for each of its processes alone.
    """

    max_processes: int | None = None
    core_bytes: int = 0
    data_bytes: int | None = None
    file_bytes: int | None = None
    cpu_seconds: int | None = None

    def resources(self) -> dict[str, int]:
        """Return those that are set, by their names in `resource`."""
        named = {
            "RLIMIT_CORE": self.core_bytes,
            "RLIMIT_NPROC": self.max_processes,
            "RLIMIT_DATA": self.data_bytes,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_CPU": self.cpu_seconds,
        }
        return {name: value for name, value in named.items() if value is not None}


class ExitStatus(msgspec.Struct, frozen=True):
    """How a process ended: its exit code, or the signal that killed it."""

    code: int | None = None
    signal: int | None = None

    @property
    def shell_code(self) -> int:
        """The code as a shell reports it: 128 + n for signal n."""
        return self.code if self.code is not None else 128 + (self.signal or 0)


class Child(Protocol):
    """A started process. The caller owns its descriptors and closes them. For a PTY, stdin and stdout are the same
    descriptor, its master; stderr is None for a PTY and when merged."""

    @property
    def stdin(self) -> int | None: ...
    @property
    def stdout(self) -> int: ...
    @property
    def stderr(self) -> int | None: ...

    async def wait(self) -> ExitStatus:
        """Wait for the started process to exit, but not its descendants. May be awaited many times, by many tasks."""
        ...

    async def interrupt(self) -> None:
        """Send SIGINT to the foreground process group (PTY) or to the process's group (pipes)."""
        ...

    async def kill_tree(self, grace: float = 0.0) -> None:
        """End the process and all its descendants, including those that left its group: TERM, `grace` seconds, KILL.
        Returns when none is left."""
        ...

    async def leftovers(self, output_held: bool) -> str | None:
        """Describe in one sentence, after the exit, the descendants that outlived the process (running or ended).

        Returns None if there are none. `output_held` means that a descriptor did not reach its end, so some process
        still holds it.
        """
        ...

    def resize(self, rows: int, columns: int) -> None:
        """Resize the PTY; the foreground group gets SIGWINCH. Does nothing without a PTY."""
        ...


class Launcher(Protocol):
    """A way to start processes, plain or sandboxed. Raises `LaunchError`."""

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child: ...


class LaunchError(FerruleError):
    """The process could not be started; the text names the cause (program, working directory, sandbox).

    `number` is the kernel's error if the command itself is the cause: what it names cannot be run, or not there.
    """

    number: int | None = None
