"""Start processes without a sandbox. The agent process never forks: `Popen` without a `preexec_fn` uses vfork."""

import asyncio
import errno
import os
import secrets
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import msgspec

from ferrule.process.launcher import Child, ExitStatus, LaunchError, Limits, Pty, Stdio
from ferrule.process.tree import MARK_VARIABLE, Process, Tree, command_of, is_starting, ticks_now

KILL_DEADLINE = 5.0
"""Seconds before giving up on a tree that does not die (uninterruptible I/O)."""
POLL_SECONDS = 0.02
"""Poll interval while a tree is ending: no event reports the end of processes that are not our children."""
NAME_DEADLINE = 0.5
"""Seconds a process between fork and exec gets to take its name. A shell's busy loop looks the same and costs this
much."""
NAMED_LEFTOVERS = 5
"""Processes named in a notice; the rest are counted."""
LONGEST_ARGUMENT = 128 * 1024
"""Linux's limit for one argument in bytes (MAX_ARG_STRLEN)."""

# Without util-linux, an interpreter makes the same three calls, at the cost of its start-up.
_TERMINAL_SCRIPT = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class PlainLauncher:
    """A `Launcher` without a sandbox."""

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        try:
            return _start(argv, env, cwd, stdio, limits)
        except (OSError, ValueError) as error:
            raise LaunchError(_explain(error, argv, cwd)) from error


class _Ends(msgspec.Struct, frozen=True):
    """The caller's ends of the descriptors; `terminal` is our own copy of a PTY's master."""

    stdin: int | None
    stdout: int
    stderr: int | None
    terminal: int | None = None


class PlainChild:
    """A process started by `PlainLauncher`."""

    def __init__(self, process: subprocess.Popen[bytes], tree: Tree, ends: _Ends) -> None:
        self.stdin = ends.stdin
        self.stdout = ends.stdout
        self.stderr = ends.stderr
        self._terminal = ends.terminal
        self._process = process
        self._tree = tree
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[ExitStatus] = self._loop.create_future()
        self._watch()

    async def wait(self) -> ExitStatus:
        return await asyncio.shield(self._exit)

    async def interrupt(self) -> None:
        if self._exit.done():  # the group's number may have been reused by now
            return
        group = self._process.pid
        if self._terminal is not None:
            with suppress(OSError):
                # Zero until the child has taken the terminal; as a group, zero would mean our own.
                group = os.tcgetpgrp(self._terminal) or group
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGINT)

    async def kill_tree(self, grace: float = 0.0) -> None:
        if grace > 0:
            await self._signal_until_gone(signal.SIGTERM, 0, grace)
        await self._signal_until_gone(signal.SIGKILL, signal.SIGKILL, KILL_DEADLINE)

    async def leftovers(self, output_held: bool) -> str | None:
        if not output_held and not self._tree.group_alive():
            return None
        members = await self._started_members()
        if not members:
            return None
        names = ", ".join(
            f"{member.pid}{_in_parentheses(command_of(member.pid))}" for member in members[:NAMED_LEFTOVERS]
        )
        more = f" and {len(members) - NAMED_LEFTOVERS} more" if len(members) > NAMED_LEFTOVERS else ""
        return f"Left running: {names}{more}."

    async def _started_members(self) -> list[Process]:
        """Return the living processes once each has its own name."""
        deadline = time.monotonic() + NAME_DEADLINE
        members = self._tree.members()
        while any(is_starting(member.pid) for member in members) and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            members = self._tree.members()
        return members

    def resize(self, rows: int, columns: int) -> None:
        if self._terminal is not None:
            termios.tcsetwinsize(self._terminal, (rows, columns))

    async def _signal_until_gone(self, first: int, again: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        number = first  # from now on send 0, a probe, while a process may still be obeying the first signal
        while self._tree.signal(number) and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            number = again

    def _watch(self) -> None:
        pidfd = _open_pidfd(self._process.pid)
        if pidfd is None:
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(pidfd, self._pidfd_ready, pidfd)

    def _pidfd_ready(self, pidfd: int) -> None:
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        self._ended()

    def _wait_in_thread(self) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop was closed before its child ended
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        code = self._process.wait()
        self._tree.root_reaped = True
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None
        if not self._exit.done():
            self._exit.set_result(ExitStatus(code=code) if code >= 0 else ExitStatus(signal=-code))


def _start(argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits) -> PlainChild:
    if not argv or not argv[0]:
        raise ValueError("it is empty")
    mark, since = secrets.token_hex(8), ticks_now()
    if isinstance(stdio, Pty):
        argv = [*_terminal_command(), _find_program(argv[0], env, cwd), *argv[1:]]
    with ExitStack() as ours, ExitStack() as theirs:
        ends, child_ends = _open(stdio, ours, theirs)
        process = subprocess.Popen(
            argv,
            stdin=child_ends[0],
            stdout=child_ends[1],
            stderr=child_ends[2],
            env={**env, MARK_VARIABLE: mark},
            cwd=cwd,
            start_new_session=ends.terminal is None,  # with a terminal, the trampoline creates the session
        )
        ours.callback(_discard, process)
        _limit(process.pid, limits)
        child = PlainChild(process, Tree(process.pid, mark, since), ends)
        ours.pop_all()
        return child


def _open(stdio: Stdio, ours: ExitStack, theirs: ExitStack) -> tuple[_Ends, tuple[int, int, int]]:
    def keep(mine: int, its: int) -> tuple[int, int]:
        ours.callback(os.close, mine)
        theirs.callback(os.close, its)
        return mine, its

    if isinstance(stdio, Pty):
        master, slave = keep(*os.openpty())
        termios.tcsetwinsize(slave, (stdio.rows, stdio.columns))
        terminal = os.dup(master)
        ours.callback(os.close, terminal)
        return _Ends(master, master, None, terminal), (slave, slave, slave)
    stdin, its_stdin = None, subprocess.DEVNULL
    if stdio.given is not None:
        its_stdin = stdio.given
    elif stdio.stdin:
        stdin, its_stdin = keep(*reversed(os.pipe()))
    stdout, its_stdout = keep(*os.pipe())
    stderr, its_stderr = (None, its_stdout) if stdio.merge else keep(*os.pipe())
    return _Ends(stdin, stdout, stderr), (its_stdin, its_stdout, its_stderr)


def _open_pidfd(pid: int) -> int | None:
    """Open a pidfd; None where the system has none: macOS, an old kernel, an old container filter."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in {errno.ENOSYS, errno.EPERM}:
            return None
        raise


def _in_parentheses(command: str) -> str:
    return f" ({command})" if command else ""


def _discard(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@cache
def _terminal_command() -> tuple[str, ...]:
    """Return the command prefix that makes standard input the controlling terminal, without a fork."""
    setsid = shutil.which("setsid", path="/usr/bin:/bin") if sys.platform == "linux" else None
    return (setsid, "-c") if setsid else (sys.executable, "-I", "-S", "-c", _TERMINAL_SCRIPT)


def _find_program(name: str, env: Mapping[str, str], cwd: str) -> str:
    """Find the program before launch: the trampoline could not report a missing one."""
    where = str(Path(cwd, name)) if "/" in name else name
    found = shutil.which(where, path=env.get("PATH", os.defpath))
    if found is None:
        code = errno.EACCES if "/" in name and Path(where).exists() else errno.ENOENT
        raise OSError(code, os.strerror(code), name)
    return name if "/" in name else found


def _limit(pid: int, limits: Limits) -> None:
    if sys.platform != "linux":
        return
    import resource

    for name, value in limits.resources().items():
        with suppress(ProcessLookupError, PermissionError):  # it exited, or now belongs to another user
            resource.prlimit(pid, getattr(resource, name), (value, value))


def _explain(error: OSError | ValueError, argv: Sequence[str], cwd: str) -> str:
    directory = Path(cwd)
    if not isinstance(error, OSError):
        return f"cannot run the command: {error}"
    if not directory.exists():
        return f"the working directory does not exist: {cwd}"
    if not directory.is_dir():
        return f"the working directory is not a directory: {cwd}"
    if error.filename == cwd:
        return f"cannot enter the working directory {cwd}: {error.strerror}"
    if error.errno == errno.E2BIG:
        longest = max(len(os.fsencode(argument)) for argument in argv)
        limit = f"; one argument may have {LONGEST_ARGUMENT} bytes, the longest here has {longest}"
        return f"the command line is too long{limit}: put long text into a file first"
    if error.errno == errno.ENOENT:
        if "/" in argv[0] and (directory / argv[0]).exists():
            return f"cannot run {argv[0]}: its interpreter (the #! line) does not exist"
        return f"program not found: {argv[0]}"
    return f"cannot run {argv[0]}: {error.strerror}"
