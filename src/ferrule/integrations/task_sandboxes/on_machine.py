"""A task's sandbox without a container: a folder, and commands that are confined on the machine itself.

They see the machine's files as whoever runs the evaluation, and write in the folder and in `/tmp` only.
"""

import asyncio
import errno
import os
import pwd
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ferrule.config import ferrule_home
from ferrule.containers import ContainerSettings
from ferrule.containers.errors import OneUser
from ferrule.containers.place import Slot, in_our_hands, new_slot
from ferrule.integrations.task_sandboxes.opened import TO_READ, read_opened, refusal
from ferrule.integrations.task_sandboxes.outputs import run_command
from ferrule.integrations.task_sandboxes.wanted import IDLE_SECONDS, Command, Wanted
from ferrule.process.run import Completed
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import WorkspaceWrite
from ferrule.sandbox.sandbox import Sandbox, open_launcher
from ferrule.sync import uninterrupted

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_HERE = "{} takes a container, and there is none here: {}"
ONE_USER = "commands run as whoever runs the evaluation, and not as {}, because this machine has no containers"
WRITE = 'mkdir -p "$(dirname -- "$1")" && cat > "$1"'
"""What writes a file, confined as a command is."""
REFUSED = re.compile(r"Permission denied|Read-only file system|Operation not permitted|File exists|Not a directory")


class MachineSandbox:
    """A folder with commands. Made by `open`."""

    def __init__(
        self, slot: Slot, sandbox: Sandbox, env: dict[str, str], on_close: Callable[["MachineSandbox"], None]
    ) -> None:
        self.folder = str(slot.data)
        self._slot = slot
        self._sandbox = sandbox
        self._env = env
        self._on_close = on_close
        self._kept = False

    @classmethod
    async def open(
        cls, wanted: Wanted, place: Path, reason: str, on_close: Callable[["MachineSandbox"], None]
    ) -> "MachineSandbox":
        """Make one; `reason` says why there is no container. Raises `FerruleError`."""
        for what, given in (
            ("an image", wanted.image),
            ("a working directory", wanted.folder),
            ("a limit of memory", wanted.memory_bytes),
            ("a number of processors", wanted.cpus),
        ):
            if given:
                raise UsageError(NOT_HERE.format(what, reason))
        _only_us(wanted.user)
        settings = ContainerSettings(temporary=True, idle_seconds=IDLE_SECONDS)
        slot = await in_our_hands(lambda: new_slot(place, settings), Slot.remove)
        try:
            slot.publish()
            folders = [slot.path(name) for name in ("home", "tmp")]
            policy = WorkspaceWrite(
                writable_roots=tuple(folders), network_access=wanted.domains or False, exclude_tmpdir_env_var=True
            )
            env = {"PATH": PATH, "HOME": folders[0], "TMPDIR": folders[1], "LANG": "C.UTF-8", "TERM": "dumb"}
            sandbox = await open_launcher(policy, str(slot.data), Path(ferrule_home()))
            try:
                await sandbox.level()
            except BaseException:
                await sandbox.close()
                raise
        except BaseException:
            slot.remove()
            raise
        return cls(slot, sandbox, {**env, **wanted.env}, on_close)

    @property
    def id(self) -> str:
        return self._slot.record.id

    @property
    def files(self) -> str:
        return str(self._slot.folder)

    async def run(self, command: Command) -> Completed:
        """See `TaskSandbox.run`."""
        _only_us(command.user or "")
        return await run_command(self._sandbox, command, {**self._env, **command.env}, self._path(command.cwd))

    async def read(self, path: str, limit: int) -> bytes:
        """See `TaskSandbox.read`. Commands can read whatever we can."""
        try:
            fd = os.open(self._path(path), TO_READ | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            raise refusal(error, path) from error
        return await read_opened(fd, path, limit)

    async def write(self, path: str, content: bytes) -> None:
        """See `TaskSandbox.write`. A command writes it, which gets nowhere that others do not."""
        target = self._path(path)
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if os.path.exists(target) and not os.stat(target).st_mode & 0o200:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        line = ["/bin/sh", "-c", WRITE, "sh", target]
        done = await self.run(Command(argv=line, env={"LC_ALL": "C"}, stdin=content))
        if done.exit_code:
            said = done.stderr.text().strip()
            raise (
                PermissionError(errno.EACCES, said, path) if REFUSED.search(said) else OSError(errno.EIO, said, path)
            )

    def keep(self) -> None:
        """See `TaskSandbox.keep`."""
        self._slot.keep()
        self._kept = True

    async def aclose(self) -> None:
        """See `TaskSandbox.aclose`."""
        self._on_close(self)
        await uninterrupted(self._close())

    async def _close(self) -> None:
        await self._sandbox.close()
        await asyncio.to_thread(self._slot.release if self._kept else self._slot.remove)

    def _path(self, path: str) -> str:
        return os.path.join(self.folder, path)


def _only_us(user: str) -> None:
    """Raise `OneUser` for any user but the one who runs us."""
    names = {"", str(os.getuid())}
    with suppress(KeyError):
        names.add(pwd.getpwuid(os.getuid()).pw_name)
    if user not in names:
        raise OneUser(ONE_USER.format(user))
