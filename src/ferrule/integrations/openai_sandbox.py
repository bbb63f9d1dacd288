"""A sandbox client of the OpenAI Agents SDK: `RunConfig(sandbox=SandboxRunConfig(client=ContainerClient()))`.

The SDK brings the tools of a `SandboxAgent`; its commands and files are in a container, without Docker. Source: the
docstrings of `agents.sandbox.session.BaseSandboxSession` and `BaseSandboxClient`.
"""

import io
import os
import secrets
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ferrule.containers.errors import NoSuchUser, OneUser
from ferrule.integrations.task_sandboxes import Command, Sandboxes, TaskSandbox, TooLarge, Wanted
from ferrule.process.launcher import LaunchError
from ferrule.process.run import Completed
from ferrule.protocol.errors import UsageError

try:
    from agents.sandbox import (
        ExecResult,
        ExecTimeoutError,
        ExecTransportError,
        Manifest,
        SnapshotSpec,
        User,
        WorkspaceArchiveReadError,
        WorkspaceArchiveWriteError,
        WorkspaceReadNotFoundError,
        resolve_snapshot,
    )
    from agents.sandbox.session import (
        BaseSandboxClient,
        BaseSandboxSession,
        Instrumentation,
        SandboxSession,
        SandboxSessionState,
    )
    from agents.sandbox.snapshot import SnapshotBase
    from agents.sandbox.util.tar_utils import UnsafeTarMemberError, strip_tar_member_prefix, validate_tarfile
except ImportError as error:
    raise UsageError("the adapter needs the extra `openai-agents`: pip install 'ferrule[openai-agents]'") from error

NAME = "openai-agents"
"""Of the place of its sandboxes."""
MAX_FILE = 1 << 30
"""Bytes of a file or an archive: it is held in memory."""
PACK = 'cd "$1" && shift && exec tar --hard-dereference -cf "$@"'
UNPACK = 'mkdir -p "$1" && exec tar -xf "$2" -C "$1"'


class ContainerState(SandboxSessionState):
    """What is kept of a session: its manifest and its snapshot. The container is made anew from them."""

    type: Literal["ferrule"] = "ferrule"


class ContainerSession(BaseSandboxSession):
    """A session in one container. Commands that run when it ends are ended."""

    state: ContainerState

    def __init__(self, state: ContainerState, sandbox: TaskSandbox) -> None:
        self.state = state
        self.sandbox: TaskSandbox | None = sandbox
        self._made = False

    async def _prepare_backend_workspace(self) -> None:
        await self._checked("mkdir", "-p", self.state.manifest.root)
        self._made = True

    async def exec(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
    ) -> ExecResult:
        """Run a command in the workspace, as a user of the container."""
        words = self._prepare_exec_command(*command, shell=shell, user=None)
        done = await self._ran(words, timeout, user.name if isinstance(user, User) else user)
        return ExecResult(stdout=done.stdout.render(), stderr=done.stderr.render(), exit_code=done.exit_code)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        return await self.exec(*command, timeout=timeout, shell=False)

    async def _ran(self, words: list[str], timeout: float | None, user: str | None) -> Completed:
        env: Mapping[str, str] = await self.state.manifest.environment.resolve()
        cwd = self.state.manifest.root if self._made else "/"
        try:
            done = await self._there().run(Command(argv=words, env=env, cwd=cwd, user=user, timeout=timeout))
        except (LaunchError, NoSuchUser, OneUser) as error:
            raise ExecTransportError(command=words, cause=error, context={"reason": str(error)}) from error
        if done.timed_out:
            raise ExecTimeoutError(command=words, timeout_s=timeout)
        return done

    def _there(self) -> TaskSandbox:
        if self.sandbox is None:
            raise ExecTransportError(command=(), context={"reason": "the container has ended"})
        return self.sandbox

    async def _checked(self, *words: str) -> None:
        done = await self._ran([*words], None, None)
        if done.exit_code:
            root = Path(self.state.manifest.root)
            raise WorkspaceArchiveWriteError(path=root, context={"reason": done.stderr.text()})

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Read a file."""
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        return io.BytesIO(await self._content(str(self.normalize_path(path))))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return (await self._content(str(self.normalize_path(path))))[:max_bytes]

    async def _content(self, path: str) -> bytes:
        try:
            return await self._there().read(path, MAX_FILE)
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=Path(path), cause=error) from error
        except (OSError, TooLarge) as error:
            raise WorkspaceArchiveReadError(path=Path(path), cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Write a file, and make the folders above it."""
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        await self._put(str(self.normalize_path(path, for_write=True)), _bytes(data))

    async def _put(self, path: str, content: bytes) -> None:
        try:
            await self._there().write(path, content)
        except OSError as error:
            raise WorkspaceArchiveWriteError(path=Path(path), cause=error) from error

    async def running(self) -> bool:
        """Return whether the container is there."""
        return self.sandbox is not None

    async def persist_workspace(self) -> io.IOBase:
        """Return the workspace as a tar archive."""
        parent, name = os.path.split(self.state.manifest.root.rstrip("/"))
        skipped = [f"--exclude={name}/{path}" for path in self._persist_workspace_skip_relpaths()]
        archive = _temporary()
        await self._checked("/bin/sh", "-c", PACK, "sh", parent, archive, *skipped, name)
        packed = io.BytesIO(await self._content(archive))
        await self._checked("rm", "-f", archive)
        stripped: io.IOBase = strip_tar_member_prefix(
            packed, prefix=name, relativize_symlinks_under=self.state.manifest.root
        )
        return stripped

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Put the files of a tar archive into the workspace."""
        content, root = _bytes(data), Path(self.state.manifest.root)
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as tar:
                validate_tarfile(tar)  # its links lead nowhere but in the container
        except (UnsafeTarMemberError, tarfile.TarError) as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error) from error
        archive = _temporary()
        await self._put(archive, content)
        await self._checked("/bin/sh", "-c", UNPACK, "sh", str(root), archive)
        await self._checked("rm", "-f", archive)

    async def _shutdown_backend(self) -> None:
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            await sandbox.aclose()
            others = Sandboxes.of(NAME)
            if not others.any_open:
                await others.aclose()  # and what serves them all


class ContainerClient(BaseSandboxClient[None]):
    """Makes sessions in containers: of `image`, which was imported by `ferrule runtime import`, or with the machine's
    programs. Of the network they reach the `domains` alone, by default nothing."""

    backend_id = "ferrule"
    supports_default_options = True

    def __init__(
        self,
        *,
        image: str | None = None,
        domains: tuple[str, ...] = (),
        env: Mapping[str, str] = {},
        instrumentation: Instrumentation | None = None,
    ) -> None:
        self._wanted = Wanted(image=image, domains=domains, env=dict(env), level="container")
        self._instrumentation = instrumentation or Instrumentation()

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: None = None,
    ) -> SandboxSession:
        """Make a session. Raises `ContainerError` where there are no containers."""
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        state = ContainerState(manifest=manifest, snapshot=resolve_snapshot(snapshot, secrets.token_hex(16)))
        return await self.resume(state)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Make a session from what was kept of one, in a container of its own."""
        if not isinstance(state, ContainerState):
            raise TypeError("ContainerClient goes on with sessions of its own only")
        state.workspace_root_ready = False
        sandbox = await Sandboxes.of(NAME).open(self._wanted)
        return self._wrap_session(ContainerSession(state, sandbox), instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """End the container and remove its files."""
        await session._inner.shutdown()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Return the state from its JSON."""
        return self._deserialize_session_state_payload(payload, ContainerState)


def _bytes(data: io.IOBase) -> bytes:
    content: Any = data.read()
    return content.encode() if isinstance(content, str) else bytes(content)


def _temporary() -> str:
    return f"/tmp/{secrets.token_hex(8)}.tar"
