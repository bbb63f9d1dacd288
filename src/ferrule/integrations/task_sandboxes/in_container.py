"""A task's sandbox in a container."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from ferrule.config import ferrule_home
from ferrule.containers import Container, ContainerError, ContainerSettings, LocalHost
from ferrule.containers.container import ROOT
from ferrule.containers.host import machine_memory, settings_on
from ferrule.containers.images import Image, Images
from ferrule.containers.local import IMAGES
from ferrule.containers.notices import with_notices
from ferrule.egress.egress import Egress
from ferrule.egress.guard import Guard
from ferrule.egress.names import BadDomain, DomainNames
from ferrule.integrations.task_sandboxes.opened import TO_READ, TO_WRITE, read_opened, refusal, write_opened
from ferrule.integrations.task_sandboxes.outputs import run_command
from ferrule.integrations.task_sandboxes.wanted import IDLE_SECONDS, Command, Wanted
from ferrule.process.launcher import Child, Launcher, Limits, Stdio
from ferrule.process.run import Completed
from ferrule.protocol.errors import UsageError
from ferrule.sandbox.linux.root import DATA, HOST_NAME, Account
from ferrule.sync import uninterrupted

MAX_PROCESSES = 2048
"""Of one sandbox, for parallel builds."""
OWN_FOLDER = 'mkdir -p "$1" && if [ "$2" ]; then chown "$2" "$1"; fi'


class ContainerSandbox:
    """A container, with what serves its network and keeps its image. Made by `open`."""

    def __init__(
        self, container: Container, folder: str, way_out: Egress | None, on_close: Callable[["ContainerSandbox"], None]
    ) -> None:
        self.folder = folder
        self.container = container
        self._way_out = way_out
        self._on_close = on_close
        self._held = AsyncExitStack()
        self._kept = False

    @classmethod
    async def open(
        cls, wanted: Wanted, host: LocalHost, on_close: Callable[["ContainerSandbox"], None]
    ) -> "ContainerSandbox":
        """Make one. Raises `ContainerError`, `ImageError`, `UsageError`."""
        async with AsyncExitStack() as held:
            images = Images(Path(ferrule_home(), IMAGES))
            image = held.enter_context(images.using(wanted.image)) if wanted.image else None
            way_out = await held.enter_async_context(_way_out(wanted.domains)) if wanted.domains else None
            container = await host.create(_settings(wanted, image), way_out)
            held.push_async_callback(container.aclose)
            own = image.config.working_dir if image else DATA
            made = cls(container, wanted.folder or own or "/", way_out, on_close)
            await made._furnish(wanted)
            made._held = held.pop_all()
            return made

    @property
    def id(self) -> str:
        return self.container.id

    @property
    def files(self) -> str:
        return str(self.container.folder.parent)

    async def run(self, command: Command) -> Completed:
        """See `TaskSandbox.run`."""
        box = self.container
        account = None if command.user is None else await box.account_named(command.user)
        await box.start()  # its own user is known then
        own = {} if account is None else {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
        env = {**box.environment, **own, **command.env}
        done = await run_command(_As(box, account), command, env, self._path(command.cwd))
        refusals = [] if self._way_out is None else self._way_out.take_refusals()
        notices = [*box.take_notices(), *refusals]
        return with_notices(done, notices) if notices else done

    async def read(self, path: str, limit: int) -> bytes:
        """See `TaskSandbox.read`."""
        return await read_opened(await self._opened(path, TO_READ), path, limit)

    async def write(self, path: str, content: bytes) -> None:
        """See `TaskSandbox.write`."""
        await write_opened(await self._opened(path, TO_WRITE), path, content)

    def keep(self) -> None:
        """See `TaskSandbox.keep`."""
        self.container.keep()
        self._kept = True

    async def aclose(self) -> None:
        """See `TaskSandbox.aclose`. What is kept is left to its host, which ends its processes."""
        self._on_close(self)
        if not self._kept:
            await uninterrupted(self._held.pop_all().aclose())

    def _path(self, path: str) -> str:
        return os.path.join(self.folder, path)

    async def _opened(self, path: str, flags: int) -> int:
        try:
            return await self.container.open_file(self._path(path), flags)
        except OSError as error:
            raise refusal(error, path) from error

    async def _furnish(self, wanted: Wanted) -> None:
        """Make the folders that it lacks: the working directory, and the home of a user that was made for it."""
        own = self.container.account if self.container.mapped else None
        owner = "" if own is None else f"{own.user}:{own.group}"
        for folder in filter(None, (wanted.folder, own.home if own and not wanted.image else "")):
            line = ["/bin/sh", "-c", OWN_FOLDER, "sh", folder, owner]
            done = await run_command(_As(self.container, ROOT), Command(argv=line), self.container.environment, "/")
            if done.exit_code:
                raise ContainerError(f"{folder} cannot be made in the container: {done.stderr.text().strip()}")


class _As(Launcher):
    """Starts commands as a user."""

    def __init__(self, container: Container, account: Account | None) -> None:
        self._container = container
        self._account = account

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        """See `Launcher`."""
        return await self._container.launch(argv, env, cwd, stdio, limits, account=self._account)


def _settings(wanted: Wanted, image: Image | None) -> ContainerSettings:
    chosen = settings_on(image)
    return msgspec.structs.replace(
        chosen,
        users=image is None,
        user=wanted.user or chosen.user,
        env={**chosen.env, **wanted.env},
        memory_bytes=wanted.memory_bytes or machine_memory(),
        cpus=wanted.cpus,
        max_processes=MAX_PROCESSES,
        idle_seconds=IDLE_SECONDS,
        temporary=True,
    )


def _way_out(domains: Sequence[str]) -> Egress:
    """Raises `UsageError`."""
    try:
        return Egress(Guard(DomainNames.listed(domains)), host_name=HOST_NAME)
    except BadDomain as error:
        raise UsageError(f"domains: {error}") from error
