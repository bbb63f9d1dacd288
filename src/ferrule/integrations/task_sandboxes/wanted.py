"""The contract: what a sandbox is asked for, and what it does."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Protocol

import msgspec
from pydantic import Field

from ferrule.process.run import Completed
from ferrule.protocol.errors import FerruleError

LEAST_MEMORY = 4 << 20
"""Bytes: with less not even what starts the commands runs."""
LEAST_PROCESSORS = 0.01
"""The kernel takes no less: a millisecond of each tenth of a second."""
Level = Literal["auto", "container", "workspace-write"]
Memory = Annotated[int, Field(ge=LEAST_MEMORY)]
Processors = Annotated[float, Field(ge=LEAST_PROCESSORS, allow_inf_nan=False)]
IDLE_SECONDS = 7 * 24 * 3600.0
"""A week: no task waits longer between two commands, and what is kept goes some day."""
OUTPUT_BYTES = 10 << 20
"""Of one output stream, as Inspect has it."""


class TooLarge(FerruleError):
    """A file is larger than the limit."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandbox shall be.

    `image` was imported (`ferrule runtime import`); without one it has the machine's programs. `user` runs commands
    that name none: by default the image's own, else root. `folder` is the working directory, `domains` are all that is
    reached of the network. `level` `auto` takes the best that the machine has. `memory_bytes` None is the machine's.
    """

    image: str | None = None
    user: str = ""
    folder: str = ""
    env: dict[str, str] = {}
    domains: tuple[str, ...] = ()
    level: Level = "auto"
    memory_bytes: int | None = None
    cpus: float | None = None


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command. `cwd` is relative to the sandbox's folder; `user` None is the sandbox's own. `timeout` is in seconds.
    The last `output_bytes` of each output stream are kept; `merge` sends stderr to stdout."""

    argv: Sequence[str]
    env: Mapping[str, str] = {}
    cwd: str = ""
    user: str | None = None
    stdin: bytes | None = None
    timeout: float | None = None
    output_bytes: int = OUTPUT_BYTES
    merge: bool = False


class TaskSandbox(Protocol):
    """One sandbox. Close it to end what runs in it and to remove its files, unless they are kept."""

    @property
    def id(self) -> str: ...
    @property
    def folder(self) -> str:
        """The working directory, as commands see it."""
        ...

    @property
    def files(self) -> str:
        """Where its own files lie on the machine."""
        ...

    async def run(self, command: Command) -> Completed:
        """Run a command to its end. Raises `LaunchError` if it cannot be started, with `number` where the command is
        at fault; `NoSuchUser` and `OneUser` for users that are not there or cannot be had."""
        ...

    async def read(self, path: str, limit: int) -> bytes:
        """Read a file; `path` is relative to the folder. Raises `OSError` as `open` does, and `TooLarge`."""
        ...

    async def write(self, path: str, content: bytes) -> None:
        """Write a file, and make the folders above it. Raises `OSError` as `open` does."""
        ...

    def keep(self) -> None:
        """Leave its files where they are when it is closed."""
        ...

    async def aclose(self) -> None:
        """End it. May be called again."""
        ...
