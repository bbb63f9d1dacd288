"""Level 2: the distribution's `bwrap`, one process per command. Slower than a zygote, but it works where only profiled
programs may create user namespaces. It uses bwrap's mounts and PID namespace with our system call filter; commands can
make no named sockets."""

import asyncio
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from ferrule.lookup import Places, locate
from ferrule.process.launcher import Child, LaunchError, Limits, Stdio
from ferrule.process.plain import PlainLauncher
from ferrule.sandbox.boundary import WRITABLE, Cover
from ferrule.sandbox.environment import confined_environment
from ferrule.sandbox.linux.seccomp import build_filters
from ferrule.sandbox.placeholders import Placeholders
from ferrule.sandbox.plan import ConfinementPlan

FILTER_FD = "9"
STARTED_FD = "8"
VARIABLES_FD = "7"
LONGEST_ERROR = 4096
"""Bytes of bwrap's error message, which is one line."""
ATTEMPTS = 10
"""bwrap fails as a whole if a path vanishes before it is covered; it is retried while other programs are at work."""
_OPEN_AND_RUN = f'exec {FILTER_FD}<"$0" {STARTED_FD}>"$1" {VARIABLES_FD}<"$2" && shift 2 && exec "$@"'
_REPORT_START = f'echo >&{STARTED_FD}; exec {STARTED_FD}>&-; exec "$@"'


class BwrapLauncher:
    """A `Launcher` that runs commands through `bwrap`."""

    def __init__(self, plan: ConfinementPlan, state_dir: Path, covers: Callable[[], Sequence[Cover]] = tuple) -> None:
        located = locate("bwrap", os.environ.get("PATH"), _places(plan))
        if located.path is None:
            raise LaunchError(f"bwrap: {located.problem}")
        self._program = located.path
        self._plan = plan
        self._covers = covers
        self._placeholders = Placeholders(state_dir, plan.roots)
        try:
            self._empty = state_dir / "empty"
            self._empty.mkdir(exist_ok=True)
            self._filter = state_dir / ("filter-network" if plan.network else "filter")
            _write_whole(self._filter, build_filters(inet=True).single)
        except BaseException:
            self._placeholders.close()
            raise
        self._plain = PlainLauncher()
        self._children: dict[Child, asyncio.Task[None]] = {}

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        program = find_program(argv, env, cwd)
        made = await self._placeholders.acquire(self._covers())
        try:
            child = await self._started([program, *argv[1:]], confined_environment(env), cwd, stdio, limits, made)
        except BaseException:
            self._placeholders.release()
            raise
        self._children[child] = asyncio.create_task(self._release_after(child))
        return child

    async def _started(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        stdio: Stdio,
        limits: Limits,
        covers: Sequence[Cover],
    ) -> Child:
        said = ""
        for _ in range(ATTEMPTS):
            with Starting() as starting, Variables(env) as variables:
                # A path may be gone along with its parent folder, where even `--ro-bind-try` fails.
                there = [cover for cover in covers if cover.kind == "empty" or os.path.lexists(cover.path)]
                words = self.words(["/bin/sh", "-c", _REPORT_START, "sh", *argv], cwd, there)
                prepared = ["/bin/sh", "-c", _OPEN_AND_RUN, str(self._filter), starting.path, variables.path, *words]
                child = await self._plain.launch(prepared, {}, cwd, stdio, limits)
                if await starting.wait(child):
                    return child
                said = _error_output(child)
        raise LaunchError(f"bwrap cannot build the sandbox: {said}")

    async def close(self) -> None:
        """End the commands that still run."""
        for child in list(self._children):
            await child.kill_tree()
        if self._children:
            await asyncio.wait(self._children.values())
        self._placeholders.close()

    async def _release_after(self, child: Child) -> None:
        try:
            await child.wait()
        finally:
            self._placeholders.release()
            del self._children[child]

    def words(self, argv: Sequence[str], cwd: str, covers: Sequence[Cover]) -> list[str]:
        """Return the command line that runs `argv` in bubblewrap."""
        return [self._program, *self._options(covers), "--chdir", cwd, "--", *argv]

    def _options(self, covers: Sequence[Cover]) -> Iterator[str]:
        yield from ("--args", VARIABLES_FD, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent")
        yield from ("--cap-drop", "ALL", "--seccomp", FILTER_FD)
        if not self._plan.network:
            yield "--unshare-net"
        yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
        for knob in ("/proc/sys", "/proc/irq", "/proc/bus"):
            if Path(knob).exists():
                yield from ("--ro-bind", knob, knob)
        for root in self._plan.roots:
            yield from ("--bind", root.path, root.path)
        for cover in covers:
            if cover.kind == "empty":
                yield from ("--ro-bind", str(self._empty), cover.path)
            elif cover.kind != "link":  # bwrap follows links: the target is covered, the link is not
                yield from ("--bind-try" if cover.kind in WRITABLE else "--ro-bind-try", cover.path, cover.path)


def _places(plan: ConfinementPlan) -> Places:
    roots = (root.path for root in plan.roots)
    return Places(
        (*roots, *plan.places.roots), (*plan.read_only, *plan.places.kept), (*plan.opened, *plan.places.opened)
    )


class Starting:
    """A pipe on which a command reports that it runs. A child opens it by a path in `/proc`, so nothing is left on
    disk."""

    def __enter__(self) -> Self:
        self._fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.path = f"/proc/{os.getpid()}/fd/{self._write_fd}"
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        os.close(self._write_fd)

    async def wait(self, child: Child) -> bool:
        """Wait for the command. True once it runs; False if the child ended first."""
        loop = asyncio.get_running_loop()
        said = asyncio.Event()
        loop.add_reader(self._fd, said.set)
        waits: list[asyncio.Task[object]] = [asyncio.create_task(said.wait()), asyncio.create_task(child.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await child.kill_tree()
            raise
        finally:
            loop.remove_reader(self._fd)
            for one in waits:
                one.cancel()
        with suppress(BlockingIOError):
            if os.read(self._fd, 1):
                return True
        await child.wait()
        return False


class Variables:
    """The command's environment as options for bwrap, in a memory file that a child opens by its path.

    bwrap itself gets none of it: `LD_PRELOAD` and the like would run a command's code before anything confines it. On a
    command line, all users of the machine could read it.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        for name in env:
            if not name or "=" in name:
                raise LaunchError(f"{name!r} cannot be the name of a variable")
        self._options = b"".join(b"--setenv\0%b\0%b\0" % (os.fsencode(name), os.fsencode(env[name])) for name in env)

    def __enter__(self) -> Self:
        self._fd = os.memfd_create("variables")
        self.path = f"/proc/{os.getpid()}/fd/{self._fd}"
        os.pwrite(self._fd, self._options, 0)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _error_output(child: Child) -> str:
    """Read what a child wrote that did not start, and close its descriptors."""
    parts = []
    for fd in {child.stdin, child.stdout, child.stderr} - {None}:
        assert fd is not None
        os.set_blocking(fd, False)
        with suppress(OSError):
            if fd != child.stdin or fd == child.stdout:
                parts.append(os.read(fd, LONGEST_ERROR))
        os.close(fd)
    return b" ".join(parts).decode("utf-8", "replace").strip()


def _write_whole(path: Path, content: bytes) -> None:
    """Replace the file as a whole, because another session may be reading it."""
    if path.exists() and path.read_bytes() == content:
        return
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    new.write_bytes(content)
    new.replace(path)


def find_program(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> str:
    """Find the program's absolute path, because bwrap could not report that it is missing. Raises `LaunchError`."""
    if not argv:
        raise LaunchError("the command is empty")
    if not Path(cwd).is_dir():
        raise LaunchError(f"cannot use the working directory {cwd}: it is not a folder")
    name = str(Path(cwd, argv[0])) if os.sep in argv[0] else argv[0]
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        raise LaunchError(f"program not found: {argv[0]}")
    return found
