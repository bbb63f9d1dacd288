"""Level 2: the distribution's `bwrap`, one a command. Slower than a zygote; it works where only profiled programs may
make user namespaces. Its mounts and PID namespace with our system call filter; named sockets cannot be made at all."""

import asyncio
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ferrule.process.launcher import Child, LaunchError, Limits, Stdio
from ferrule.process.plain import PlainLauncher
from ferrule.sandbox.linux.seccomp import build_filters
from ferrule.sandbox.plan import ConfinementPlan
from ferrule.sandbox.protect import Cover, Placeholders, covers_of

FILTER_FD = "9"
_WITH_FILTER = f'exec {FILTER_FD}<"$0" && exec "$@"'


class BwrapLauncher:
    """The `Launcher` that puts `bwrap` before the command."""

    def __init__(self, plan: ConfinementPlan, state_dir: Path, repositories: Sequence[str]) -> None:
        program = shutil.which("bwrap")
        if program is None:
            raise LaunchError("bwrap is not installed")
        self._program = program
        self._plan = plan
        self._repositories = repositories
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
        covers = covers_of(self._plan, self._repositories)
        made = await self._placeholders.acquire(covers)
        try:
            words = self.words([program, *argv[1:]], cwd, made)
            child = await self._plain.launch(words, env, cwd, stdio, limits)
        except BaseException:
            self._placeholders.release()
            raise
        self._children[child] = asyncio.create_task(self._release_after(child))
        return child

    async def close(self) -> None:
        """Ends what still runs."""
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
        """The command line that runs `argv` confined."""
        confined = [*self._options(covers), "--chdir", cwd, "--", *argv]
        return ["/bin/sh", "-c", _WITH_FILTER, str(self._filter), *confined]

    def _options(self, covers: Sequence[Cover]) -> Iterator[str]:
        yield from (self._program, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent")
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
            elif cover.kind != "link":  # bwrap follows it: what it names is covered, the link itself is not
                yield from ("--bind-try" if cover.kind == "pin" else "--ro-bind-try", cover.path, cover.path)


def _write_whole(path: Path, content: bytes) -> None:
    """Another session may be reading the file."""
    if path.exists() and path.read_bytes() == content:
        return
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    new.write_bytes(content)
    new.replace(path)


def find_program(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> str:
    """The absolute path of the program; a wrapper could not tell us that it is missing. Raises `LaunchError`."""
    if not argv:
        raise LaunchError("the command is empty")
    if not Path(cwd).is_dir():
        raise LaunchError(f"cannot use the working directory {cwd}: it is not a folder")
    name = str(Path(cwd, argv[0])) if os.sep in argv[0] else argv[0]
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    if found is None:
        raise LaunchError(f"program not found: {argv[0]}")
    return found
