"""One container of this machine. It is a `Launcher`, so whatever runs commands can run them in it."""

import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from ferrule.containers.background import Background
from ferrule.containers.errors import ContainerError, ContainerExpired, NoSuchUser, OneUser
from ferrule.containers.host import ContainerInfo, ContainerSettings, Status
from ferrule.containers.images.accounts import account_of, find_account, read_table
from ferrule.containers.images.errors import ImageError
from ferrule.containers.images.writable import Way
from ferrule.containers.notices import EXCEEDED, RESTARTED, with_notices
from ferrule.containers.place import Slot
from ferrule.containers.processes import NotStarted, Processes
from ferrule.process.launcher import Launcher, Limits, Stdio
from ferrule.process.run import Completed, run
from ferrule.sandbox.linux.client import WireCovers
from ferrule.sandbox.linux.holders import HolderProcess
from ferrule.sandbox.linux.launcher import ConfinedChild, last_words, open_by, request_of, spawn, started
from ferrule.sandbox.linux.root import DATA, HOME, PATH, USER, Account
from ferrule.sandbox.way_out import WayOut
from ferrule.sync import Closing, in_thread, wait_for_coroutine

ENVIRONMENT: Mapping[str, str] = {
    "PATH": PATH, "HOME": HOME, "USER": USER, "LOGNAME": USER, "SHELL": "/bin/bash", "LANG": "C.UTF-8", "TERM": "dumb",
}  # fmt: skip
IMAGE_USER = {"HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/sh"}
SHELL = "/bin/bash"
HOST_MODULE = "ferrule.containers.local"
"""Found by name, because it needs this module."""
ONE_ID = (
    "the image's user {} cannot be had, because this container has one user id only (`ferrule doctor` says why): "
    "commands run as the image's root"
)
NO_USER = "unable to find user {}: no matching entries in passwd file"
"""As Docker says it."""
ONE_USER = "the container has one user id only (`ferrule doctor` says why), so nothing in it can run as {}"
ROOT = Account(user=0, group=0, groups=(0,), name="root", home="/root")
GIBIBYTE = 1 << 30
T = TypeVar("T")
_LIMITS = Limits()


class Keeper(Protocol):
    """The services that a container uses of its host."""

    async def holder_for(self, container: "Container", slot: Slot) -> HolderProcess:
        """Begin the processes of a container. Raises `ContainerError`."""
        ...

    async def let_go(self, container: "Container") -> None:
        """Clean up after the processes of a container have ended."""
        ...

    async def discard(self, container: "Container") -> None:
        """End a container and remove its files; does nothing if that was done."""
        ...

    def memory_bytes(self, settings: ContainerSettings) -> int:
        """Return how much memory a container really gets."""
        ...

    def memory_of_a_process(self, container: "Container") -> int | None:
        """Return what one process may take, where no control group bounds them together."""
        ...

    def killed(self, container: "Container") -> int:
        """Count the processes of a container that were ended because its memory was used up."""
        ...


class Container(Closing):
    """A container: a private root with a folder for data, a network of its own without a way out, and commands.

    Nothing runs until the first use. A holder that was killed is replaced at the next use; `take_notices` tells that
    once, and `run` writes it into the command's stderr. Close it to end it and remove its files.
    """

    def __init__(self, host: Keeper, slot: Slot) -> None:
        self._host = host
        self._slot = slot
        self._processes = Processes(slot, begin=self._begin, begun=self._begun, clean=lambda: self._host.let_go(self))
        self._children: set[ConfinedChild] = set()
        self._uses = 0
        self.background: Launcher = Background(self, self._children.discard)
        """Starts commands that only wait for others: while they run, nobody uses the container (see `in_use`)."""
        self._status: Status = "running"
        self._released = False
        self._notice: str | None = None
        self._started_before = False
        self._killed = 0
        self.when_closed: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Closes what was opened for this container alone."""
        self.way_out: WayOut | None = None
        """Serves its way to the network, from its first start on; without one it has none."""

    @staticmethod
    def open(
        *,
        root: str | None = None,
        env: Mapping[str, str] = {},
        settings: ContainerSettings | None = None,
    ) -> "Container":
        """Make a container of its own, without a host to open; its files go when it is closed. Use it as `async with`
        or `with`. Raises `ContainerError`."""
        chosen = settings or ContainerSettings()
        make: Callable[[ContainerSettings], Container] = import_module(HOST_MODULE).single_container
        return make(
            msgspec.structs.replace(chosen, root=root or chosen.root, env={**chosen.env, **env}, temporary=True)
        )

    def __repr__(self) -> str:
        return f"<Container {self.id}: {self._status}>"

    @property
    def id(self) -> str:
        return self._slot.record.id

    @property
    def created_at(self) -> float:
        return self._slot.record.created_at

    @property
    def last_used(self) -> float:
        return self._slot.last_used

    @property
    def settings(self) -> ContainerSettings:
        return self._slot.record.settings

    @property
    def status(self) -> Status:
        return self._status

    @property
    def info(self) -> ContainerInfo:
        return ContainerInfo(
            id=self.id,
            created_at=self.created_at,
            last_used=self.last_used,
            status=self._status,
            settings=self.settings,
        )

    @property
    def folder(self) -> Path:
        """The host's path of `/mnt/data`. Commands write there: links and special files in it are traps."""
        return self._slot.data

    @property
    def skills_folder(self) -> Path:
        """The host's path of `/mnt/skills`, which commands can only read."""
        return self._slot.skills

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command that brings none."""
        account = self.account
        found = self.variables(self.settings)
        if account is not None and (self._processes.holder is None or self.mapped):
            found |= {"HOME": account.home, "USER": account.name, "LOGNAME": account.name} | self.settings.env
        return found if self.way_out is None else {**found, **self.way_out.environment}

    def fitted(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return an environment based on `variables` with the values that hold since its user is known."""
        guessed, known = self.variables(self.settings), self.environment
        return {name: known[name] if value == guessed.get(name) else value for name, value in env.items()}

    @staticmethod
    def variables(settings: ContainerSettings) -> dict[str, str]:
        """Return the environment of a command that brings none, in a container with these settings."""
        user = IMAGE_USER if settings.root or settings.users else {}
        return {**ENVIRONMENT, **user, **settings.env}

    @property
    def landlock(self) -> int:
        """The version of Landlock in use while it has processes; 0 for none."""
        holder = self._processes.holder
        return holder.landlock if holder is not None else 0

    @cached_property
    def account(self) -> Account | None:
        """The user of an image whom its commands run as, where there are many ids; None for its root. Raises
        `ContainerError`."""
        own = self.settings
        root = self._slot.copy if own.users else own.root and Path(own.root)
        try:
            return account_of(root, own.user) if root and own.user else None
        except ImageError as error:
            raise ContainerError(str(error)) from error

    @property
    def busy(self) -> bool:
        """True while a command runs, but for those in the background."""
        return bool(self._children) or self._uses > 0

    @property
    def mapped(self) -> bool:
        """True if it has many user ids."""
        return self._processes.mapped

    @property
    def alive(self) -> bool:
        """True while it has processes."""
        return self._processes.alive

    @property
    def holder_pid(self) -> int:
        """The process above all of its commands; 0 while there is none."""
        holder = self._processes.holder
        return holder.pid if holder is not None else 0

    @property
    def layer(self) -> Way:
        """How its changes of an image are kept apart from it."""
        return self._processes.layer

    @property
    def restarted(self) -> bool:
        """True if it was started again and nobody was told yet."""
        return self._notice is not None

    def take_notices(self) -> list[str]:
        """Return, once, what has to be told: that it was started again, that commands used up memory or disk space."""
        notices = [] if self._notice is None else [self._notice]
        self._notice = None
        return notices + self._exceeded()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Count as a use of the container until the block is left."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            if self._status == "running":
                self.touch()

    async def start(self) -> None:
        """Start it now, instead of at its first use. Raises `ContainerError`."""
        await self._processes.running()

    async def launch(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        stdio: Stdio,
        limits: Limits,
        *,
        covers: WireCovers = (),
        on_init: Callable[[int], None] | None = None,
        account: Account | None = None,
    ) -> ConfinedChild:
        """Start a command; `cwd` is a path inside. What it leaves running goes on until the container ends.

        `covers` are protected while it runs, and what it leaves running. `on_init` is given a pidfd of the process that
        ends with the last of these, before the command starts. `account` runs it, in place of the container's own
        user (see `account_named`).
        """
        request = {**request_of(argv, env, cwd, self._bounded(limits)), "covers": list(covers)}
        return await self._processes.tried(
            lambda holder: self._attempt(holder, {**request, "user": _wire(account, holder)}, stdio, on_init)
        )

    async def open_file(self, path: str, flags: int, account: Account | None = None) -> int:
        """Open a file inside as a command could, and return the descriptor. `path` is absolute, `flags` are those of
        `os.open`; with `O_CREAT` the folders above are made. It need not be a regular file: look before you read.

        Raises `OSError` as `open` does, and `ContainerError`.
        """
        if "\0" in path:
            raise ValueError("embedded null byte")
        return await self._processes.tried(lambda holder: self._opened(holder, path, flags, account))

    async def account_named(self, user: str) -> Account:
        """Return the user of this name or number, as the container's own tables have them now. Raises `ContainerError`
        for one that is not there, and where the container has one user id only."""
        await self.start()
        passwd, groups = await self._table("/etc/passwd"), await self._table("/etc/group")
        try:
            account = find_account(passwd, groups, user)
        except ImageError as error:
            raise NoSuchUser(NO_USER.format(user)) from error
        if not self.mapped and (account.user or account.group):
            raise OneUser(ONE_USER.format(user))
        return account

    async def run(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] = {},
        cwd: str = DATA,
        stdin: bytes | None = None,
        timeout: float | None = None,
        limits: Limits = _LIMITS,
    ) -> Completed:
        """Run one command to its end: a line for bash (on another root: for `/bin/sh`), or an argv.

        `env` is added to the container's own variables.
        Ends it after `timeout` seconds. Raises `LaunchError` if it cannot be started.
        """
        shell = "/bin/sh" if self.settings.root else SHELL
        argv = [shell, "-c", command] if isinstance(command, str) else command
        await self.start()  # its user is known then
        done = await run(
            self,
            argv,
            env={**self.environment, **env},
            cwd=cwd,
            stdin=stdin,
            timeout_ms=None if timeout is None else int(timeout * 1000),
            limits=limits,
        )
        notices = self.take_notices()
        return with_notices(done, notices) if notices else done

    def run_sync(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] = {},
        cwd: str = DATA,
        stdin: bytes | None = None,
        timeout: float | None = None,
    ) -> Completed:
        """`run`, for plain code."""
        return wait_for_coroutine(self.run(command, env=env, cwd=cwd, stdin=stdin, timeout=timeout))

    def keep(self) -> None:
        """Let its files outlive its host, although it was made as a temporary one. Raises `ContainerError`."""
        self._slot.keep()

    def publish(self) -> "Container":
        """Let others see it, once somebody has it. For its host."""
        self._slot.publish()
        return self

    def touch(self) -> None:
        """Count a use, so that it does not expire."""
        self._slot.touch()

    async def stop(self) -> None:
        """End all its processes. The files stay, and the next use starts it again."""
        await self._processes.stop()

    def drop_spares(self) -> None:
        """End the processes that wait for a command: the next one takes a few milliseconds more."""
        self._processes.drop_spares()

    async def aclose(self) -> None:
        """End it and remove its files."""
        await self._host.discard(self)
        if self.when_closed is not None:
            await self.when_closed()

    async def expire(self) -> None:
        """End it for good. For its host."""
        self._status = "expired"
        self.touch()
        await self.stop()
        await in_thread(self._slot.remove)

    async def release(self) -> None:
        """End its processes and let others have it. For its host."""
        self._released = True
        await self.stop()
        self._slot.release()

    def adopted(self) -> "Container":
        """Note that another process had it before, so that its first start is told."""
        self._started_before = True
        return self

    async def _begin(self) -> HolderProcess:
        self._usable()
        return await self._host.holder_for(self, self._slot)

    def _begun(self) -> None:
        if self._started_before:
            self._notice = RESTARTED
        elif self.account and not self.mapped:
            self._notice = ONE_ID.format(self.settings.user)
        self._started_before = True
        self._killed = 0

    async def _table(self, path: str) -> str:
        try:
            return read_table(await self.open_file(path, os.O_RDONLY, ROOT))
        except OSError:
            return ""

    async def _opened(self, holder: HolderProcess, path: str, flags: int, account: Account | None) -> int:
        init = await self._processes.taken(holder)
        self._processes.refill(holder)
        return await open_by(init, path, flags, _wire(account, holder))

    async def _attempt(
        self,
        holder: HolderProcess,
        request: Mapping[str, object],
        stdio: Stdio,
        on_init: Callable[[int], None] | None,
    ) -> ConfinedChild:
        def ended() -> None:
            self._ended(child)

        init = await self._processes.taken(holder)
        try:
            child = spawn(init, request, stdio, soft_kill=False, on_end=ended)
        except OSError as error:
            reason = last_words(init)
            init.close()
            if reason is not None:
                raise ContainerError(reason) from error
            raise NotStarted from error
        if on_init is not None:
            on_init(os.dup(init.pidfd))
        self._children.add(child)
        self._processes.refill(holder)
        await started(child)
        holder.watch()  # not before: it would see no command, and look no more
        return child

    def _exceeded(self) -> list[str]:
        """Say, once, what commands used up."""
        holder = self._processes.holder
        found = set() if holder is None else set(holder.exceeded)
        if holder is not None:
            holder.exceeded.clear()
        killed = self._host.killed(self)
        if killed > self._killed:
            self._killed = killed
            found.add("memory")
        amounts = {"memory": self._host.memory_bytes(self.settings), "disk": self.settings.disk_bytes}
        return [EXCEEDED[what].format(amounts[what] / GIBIBYTE) for what in sorted(found)]

    def _ended(self, child: ConfinedChild) -> None:
        self._children.discard(child)
        if self._status == "running":
            self.touch()

    def _usable(self) -> None:
        if self._released:
            raise ContainerError(f"the host of container {self.id} is closed: open another one and get it by its id")
        if self._status == "expired":
            minutes = self.settings.idle_seconds / 60
            raise ContainerExpired(
                f"container {self.id} has ended (containers do after {minutes:g} minutes without use) and its files "
                "are gone: make a new one"
            )

    def _bounded(self, limits: Limits) -> Limits:
        """Return the limits of a command, where it has none of its own."""
        own = self.settings
        return msgspec.structs.replace(
            limits,
            max_processes=min(limits.max_processes or own.max_processes, own.max_processes),
            file_bytes=min(limits.file_bytes or own.file_bytes, own.file_bytes),
            data_bytes=limits.data_bytes or self._host.memory_of_a_process(self),
        )


def _wire(account: Account | None, holder: HolderProcess) -> tuple[int, int, list[int]] | None:
    """Return the user as an init becomes them; None for the only one that there is."""
    return (account.user, account.group, list(account.groups)) if account and holder.mapped else None
