"""A sandbox provider of Inspect AI: `Task(..., sandbox="ferrule")`, without Docker.

Inspect finds it by the entry point `inspect_ai`. Source: https://inspect.aisi.org.uk/sandboxing.html and the docstrings
of `SandboxEnvironment`.
"""

import asyncio
import errno
import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any, Literal, overload

try:
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxEnvironment,
        SandboxEnvironmentConfigType,
        SandboxEnvironmentLimits,
        SandboxUnavailableError,
        SandboxUserUnsupportedError,
        concurrency,
        sandboxenv,
    )
    from inspect_ai.util._subprocess import max_subprocesses_context_var
except ImportError as error:
    raise ImportError("sandboxes for Inspect need the extra `inspect`: pip install 'ferrule[inspect]'") from error
from pydantic import BaseModel, ConfigDict

from ferrule.containers.errors import NoSuchUser, OneUser, UnknownContainer
from ferrule.integrations.task_sandboxes import (
    Command,
    Level,
    Memory,
    Processors,
    Sandboxes,
    TaskSandbox,
    TooLarge,
    Wanted,
    clean_up,
)
from ferrule.integrations.task_sandboxes.owner import place_of
from ferrule.process.launcher import LaunchError
from ferrule.process.run import Completed
from ferrule.protocol.errors import UsageError

NAME = "inspect"
"""Of the place of its sandboxes."""
CANNOT_RUN, NOT_FOUND = 126, 127
"""Exit codes of shells, and of Docker."""
POLLING_SECONDS = 0.2
"""Between two looks for requests of a sandbox: they cost milliseconds here."""
LESS = "Inspect's sandboxes run without containers, confined by less, because this machine has none: %s"
log = logging.getLogger("ferrule.integrations.inspect")


class FerruleSandboxConfig(BaseModel):
    """The configuration of a sandbox: `SandboxEnvironmentSpec("ferrule", FerruleSandboxConfig(image="python-3.12"))`.

    `image` was imported by `ferrule runtime import`; without one a sandbox has the machine's programs. `user` runs
    what names no user, by default the image's own or root. `working_dir` is made if it is missing. `domains` are all
    that can be reached of the network: nothing by default. `memory` is in bytes, `cpus` a number of processors. `level`
    `auto` takes a container where the machine has them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str | None = None
    user: str | None = None
    working_dir: str | None = None
    domains: tuple[str, ...] = ()
    env: dict[str, str] = {}
    memory: Memory | None = None
    cpus: Processors | None = None
    level: Level = "auto"

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


@sandboxenv(name="ferrule")
class FerruleSandboxEnvironment(SandboxEnvironment):
    """One sandbox of one sample."""

    def __init__(self, sandbox: TaskSandbox) -> None:
        super().__init__()
        self._sandbox = sandbox

    @classmethod
    def default_concurrency(cls) -> int | None:
        """No maximum: a sandbox takes 1.5 MB while its model thinks."""
        return None

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Read a configuration from a log."""
        return FerruleSandboxConfig(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Make a sandbox and end it: what cannot be is told before the first sample."""
        del task_name
        sandboxes = _sandboxes()
        await (await sandboxes.open(_wanted(config))).aclose()
        if sandboxes.why_none:
            log.warning(LESS, sandboxes.why_none)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Make the sandbox of a sample."""
        del task_name, metadata
        return {"default": cls(await _sandboxes().open(_wanted(config)))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """End the sandbox of a sample, also of an interrupted one: it takes milliseconds."""
        del task_name, config, interrupted
        for one in environments.values():
            await one.as_type(cls)._sandbox.aclose()

    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        """End what is left, or keep its files (`--no-sandbox-cleanup`) and say where they are."""
        del task_name, config
        kept = await _sandboxes().aclose(keep=not cleanup)
        if kept and not cleanup:
            print("\nThe files of these sandboxes were kept (their processes have ended):\n")
            for one in kept:
                print(f"  {one.id}  {one.files}")
            print("\nRemove them all by: inspect sandbox cleanup ferrule\nor one by:          ... cleanup ferrule ID\n")

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:  # noqa: A002  the name is Inspect's
        """Remove what killed evaluations left, and what was kept; nothing of one that runs."""
        try:
            removed, used = await clean_up(place_of(NAME), id)
        except UnknownContainer as error:
            print(f"{error}: nothing was removed")
            return
        print(f"removed {len(removed)} sandbox{'' if len(removed) == 1 else 'es'}")
        if used:
            print(f"left {len(used)} in use by a running evaluation: {', '.join(used)}")

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002  the name is Inspect's
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command. Of each output the last bytes are returned, up to Inspect's limit, as its own sandboxes do.
        A timeout ends the command with all that it started; it is never tried again, since nothing here hangs but
        the command."""
        del timeout_retry
        command = Command(
            argv=cmd,
            env=env or {},
            cwd=cwd or "",
            user=user or None,
            stdin=None if input is None else _bytes_of(input),
            timeout=timeout,
            output_bytes=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE,
        )
        if any("\0" in word for word in (*cmd, *(env or {}), *(env or {}).values(), cwd or "")):
            raise ValueError("embedded null byte")  # the model is told of it by this text
        async with _slot(concurrency):
            try:
                done = await self._sandbox.run(command)
            except OneUser as error:
                raise SandboxUserUnsupportedError(str(error)) from error
            except NoSuchUser as error:
                return ExecResult(False, CANNOT_RUN, "", f"{error}\n")
            except LaunchError as error:
                return _not_run(error)
        return _result(done, timeout)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file as the sandbox's user."""
        with _told():
            await self._sandbox.write(file, _bytes_of(contents))

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file as the sandbox's user."""
        with _told():
            content = await self._sandbox.read(file, SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        return content.decode() if text else content

    def default_polling_interval(self) -> float:
        """See `SandboxEnvironment`."""
        return POLLING_SECONDS


@contextmanager
def _told() -> Iterator[None]:
    """Raise what goes wrong with files as Inspect's own errors."""
    try:
        yield
    except TooLarge as error:
        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
    except LaunchError as error:
        raise SandboxUnavailableError(str(error)) from error


def _bytes_of(text: str | bytes) -> bytes:
    """Return what is written. Models write half of a surrogate pair, and are told of it by this error alone."""
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        half = repr(error.object[error.start])
        raise SandboxUnavailableError(f"the text contains half of a surrogate pair: {half}") from error


def _sandboxes() -> Sandboxes:
    """Return the sandboxes of this evaluation. Raises `UsageError`."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise UsageError("Ferrule's sandboxes need INSPECT_ASYNC_BACKEND=asyncio, which is the default") from error
    return Sandboxes.of(NAME)


def _wanted(config: SandboxEnvironmentConfigType | None) -> Wanted:
    """Return what a configuration asks for; a text names an image. Raises `UsageError`."""
    if config is None or isinstance(config, str):
        return Wanted(image=config)
    if not isinstance(config, FerruleSandboxConfig):
        raise UsageError(f"a sandbox of Ferrule takes a FerruleSandboxConfig or an image's name, not {config!r}")
    return Wanted(
        image=config.image,
        user=config.user or "",
        folder=config.working_dir or "",
        env=config.env,
        domains=config.domains,
        level=config.level,
        memory_bytes=config.memory,
        cpus=config.cpus,
    )


def _slot(wanted: bool) -> AbstractAsyncContextManager[object]:
    """Return one of the places of `max_subprocesses`, which Inspect's own sandboxes share."""
    return concurrency("subprocesses", max_subprocesses_context_var.get(), resizable=True) if wanted else nullcontext()


def _not_run(error: LaunchError) -> ExecResult[str]:
    """Return the result of a command that is itself the reason why it did not start; raise the others."""
    if error.number == errno.EACCES:
        raise PermissionError(errno.EACCES, str(error)) from error
    if error.number is None:
        raise SandboxUnavailableError(str(error)) from error
    return ExecResult(False, NOT_FOUND if error.number == errno.ENOENT else CANNOT_RUN, "", f"{error}\n")


def _result(done: Completed, timeout: int | None) -> ExecResult[str]:
    stdout, stderr = (output.head.decode("utf-8", "replace") for output in (done.stdout, done.stderr))
    if done.timed_out:
        late = TimeoutError(f"Command timed out after {timeout} seconds")
        late.truncated_output = stdout + stderr  # type: ignore[attr-defined]  # Inspect looks for it
        raise late
    return ExecResult(done.exit_code == 0, done.exit_code, stdout, stderr)
