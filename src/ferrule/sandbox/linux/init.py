"""The init of one command: the first process of new PID and mount namespaces, or a subreaper where there are none.

It prepares itself, waits on its own channel for one command, confines itself, spawns the command and reports how it
ended. Without namespaces the child that it forks confines itself. Standard library only.
"""
# ruff: noqa: SIM105 - `contextlib` is not imported
# Messages are bare dicts (type-arg), because `typing` is not imported.

import _signal  # type: ignore[import-not-found]  # what `signal` wraps in enums
import _socket
import errno
import fcntl
import marshal
import os
import resource
import select
import struct

from . import kernel
from .filesystem import HostSockets, cover, cover_kernel_knobs, hide
from .kernel import SIGINT, SIGKILL, SIGTERM, SIGUSR1, StepError
from .messages import receive, send
from .processes import descendants, is_starting, name_of, reap, signal_quietly
from .watch import end_segments

NAMED_SURVIVORS = 5
"""Names reported of processes that were ended with their command; more would tell nothing new."""
MOST_LEFT = 100
"""Processes that may go on when their command ends: services are few, what is left of a fork bomb is not."""
NAME_LOOKS, NAME_SECONDS = 50, 0.002
"""Looks, and seconds between them, while waiting for a process that does not have its own name yet."""
SMALLEST_PID_MAX = 301
"""The smallest value that the kernel accepts."""
MOST_FDS = 1 << 20
SIGNALS = tuple(number for number in range(1, 32) if number not in (SIGKILL, kernel.SIGSTOP))


class Init:
    """The init of one command: waits for it, confines itself, runs it, reports."""

    def __init__(
        self,
        channel: _socket.socket,
        settings: dict,  # type: ignore[type-arg]
        ruleset: int | None,
        sockets: HostSockets | None,
    ) -> None:
        self.settings = settings
        self.namespaces: bool = settings["namespaces"]
        self.sockets = sockets
        self.ruleset = ruleset
        self.channel = channel
        self.command = 0
        self.user: tuple[int, int, list[int]] | None = settings["user"]
        self.pid_max: int | None = None

    def prepare(self, covers: list[tuple[str, bytes, bytes]]) -> None:
        """Do everything that does not depend on the command."""
        kernel.prctl(kernel.PR_SET_PDEATHSIG, SIGKILL)
        if not self.namespaces:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
            return
        try:
            kernel.mount(b"proc", b"/proc", b"proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        except StepError:
            # In a container that hides parts of /proc the kernel refuses a new one; the old one stays.
            if self.settings["own_proc"]:
                raise
        if self.settings["pid_max"]:
            self.pid_max = os.open("/proc/sys/kernel/pid_max", os.O_WRONLY | os.O_CLOEXEC)
        cover_kernel_knobs()
        hide(self.settings["hidden"])
        if self.sockets:
            self.sockets.cover()
        cover(covers)

    def rehearse(self) -> None:
        """Run through the steps of a command once, with arguments that fail.

        The kernel copies each page at the first write after the clone: that happens now, not when somebody waits.
        """
        near, far = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
        null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        nothing = {"argv": [b"/dev/null/x"], "env": {b"PATH": b"/dev/null"}, "stdin": False, "terminal": None}
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("ii", null, null))]
        far.sendmsg([b"I" + marshal.dumps(nothing)], rights)
        actions = self.standard_streams(nothing, receive(near)[1])
        for step in (
            lambda: kernel.bind(b"/dev/null/x", b"/dev/null/x"),
            lambda: kernel.set_attributes(0, -1),
            lambda: kernel.attach(os.dup(null), b"/dev/null/x"),
            lambda: cover([("read", b"/dev/null/x", b"")]),
            lambda: kernel.landlock_restrict(-1),
            lambda: kernel.load_filter(b""),
            lambda: find_program(b"x", {b"PATH": b"/dev/null"}),
            lambda: self.spawn(b"/dev/null/x", nothing, actions),
            kernel.keep_capabilities,
            lambda: kernel.prctl(kernel.PR_SET_DUMPABLE, 1),
            self.handle_signals,
            lambda: os.chdir(b"/dev/null/x"),
            lambda: os.wait3(os.WNOHANG),
            self.survivors,
            lambda: send(far, b"X", struct.pack("iqdd?", 0, 0, 0, 0, False)),
        ):
            try:
                step()
            except (OSError, StepError):
                pass
        for _, fd, _ in actions:
            os.close(fd)
        os.close(null)
        near.close()
        far.close()

    def run(self) -> None:
        request, fds = receive(self.channel)
        while request == {}:  # the command comes in a moment: what is slow after a rest is done until then
            if self.sockets:
                self.sockets.cover()
            request, fds = receive(self.channel)
        if request is None:
            return
        self.user = request.get("user") or self.user
        if "open" in request:
            self.hand_over(*request["open"])
            return
        actions = self.standard_streams(request, fds)
        final_filter = self.arrange(request)
        # Opened before we are sealed, because then the kernel gives the file to root.
        preference = self.settings["oom_score_adj"] and os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        if self.namespaces:
            self.seal(final_filter)
        program = find_program(request["argv"][0], request["env"])
        self.handle_signals()
        start = self.spawn if self.namespaces and not self.user else self.fork_sealed
        if preference is not None:
            os.pwrite(preference, self.settings["oom_score_adj"], 0)
        self.command = start(program, request, actions)
        if preference is not None:
            os.pwrite(preference, b"0", 0)
        send(self.channel, b"S")
        for fd in fds:
            os.close(fd)
        self.wait()

    def hand_over(self, path: bytes, flags: int) -> None:
        """Open a file as a command of this user could, and send it. What is to be made gets its folders, too."""
        self.seal(self.settings["final_filter"])
        if self.user:
            become(*self.user)
        # Paths below /proc/self/fd would lead to what is ours.
        os.closerange(0, self.channel.fileno())
        os.closerange(self.channel.fileno() + 1, MOST_FDS)
        if flags & os.O_CREAT:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        # A pipe must not make us wait, nor a terminal become ours.
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o666)
        send(self.channel, b"F", fds=(fd,))
        os.close(fd)  # before our end, for which the client waits: a file that we could write cannot be executed

    def standard_streams(self, request: dict, fds: list[int]) -> list[tuple]:  # type: ignore[type-arg]
        if request["terminal"]:
            return self.open_terminal(*request["terminal"])
        if not request["stdin"]:
            fds.insert(0, os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        return [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)]

    def open_terminal(self, rows: int, columns: int) -> list[tuple]:  # type: ignore[type-arg]
        """Let the command's session open the slave itself, which makes it the controlling terminal."""
        master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        fcntl.ioctl(master, kernel.TIOCSPTLCK, struct.pack("i", 0))
        number = struct.unpack("i", fcntl.ioctl(master, kernel.TIOCGPTN, bytes(4)))[0]
        fcntl.ioctl(master, kernel.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        send(self.channel, b"T", fds=(master,))
        os.close(master)
        slave = (os.POSIX_SPAWN_OPEN, 0, f"/dev/pts/{number}", os.O_RDWR, 0)
        return [slave, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]

    def arrange(self, request: dict) -> bytes:  # type: ignore[type-arg]
        """Set up mounts, working directory and limits for this command. Returns its final filter."""
        final_filter: bytes = self.settings["final_filter"]
        if self.namespaces:
            if self.sockets and not self.sockets.cover():
                final_filter = self.settings["final_filter_without_sockets"]
            cover(request["covers"])
        try:
            # After the mounts: a directory entered before would lie below them and bypass them.
            os.chdir(request["cwd"])
        except OSError as error:
            raise StepError(error.errno or 0, "chdir", request["cwd"]) from None
        for kind, soft, hard in self.settings["shares"]:
            resource.setrlimit(kind, (soft, hard))
        for kind, value in request["limits"]:
            limit(kind, value)
            if kind == resource.RLIMIT_NPROC and self.pid_max is not None:
                # This bounds root as well.
                os.write(self.pid_max, b"%d" % max(value, SMALLEST_PID_MAX))
        return final_filter

    def seal(self, final_filter: bytes) -> None:
        kernel.drop_capabilities(self.settings["capabilities"])
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if self.ruleset is not None:
            kernel.landlock_restrict(self.ruleset)
        kernel.load_filter(final_filter)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)

    def spawn(self, program: bytes, request: dict, actions: list[tuple]) -> int:  # type: ignore[type-arg]
        argv, env = request["argv"], request["env"]
        try:
            return os.posix_spawn(
                program, argv, env, file_actions=actions, setsid=True, setsigmask=[], setsigdef=SIGNALS
            )
        except OSError as error:
            raise StepError(error.errno or 0, "exec", argv[0]) from None

    def fork_sealed(self, program: bytes, request: dict, actions: list[tuple]) -> int:  # type: ignore[type-arg]
        """Fork a child that becomes another user, or confines itself: without namespaces the init stays outside the
        domain, so that the command cannot signal it."""
        failed, failure = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            try:
                self.become_command(actions)
                os.execve(program, request["argv"], request["env"])
            except (OSError, StepError) as error:
                number = error.number if isinstance(error, StepError) else error.errno
                os.write(failure, struct.pack("i", number))
            os._exit(127)
        os.close(failure)
        result = os.read(failed, 4)
        os.close(failed)
        if result:
            raise StepError(struct.unpack("i", result)[0], "exec", request["argv"][0])
        return pid

    def become_command(self, actions: list[tuple]) -> None:  # type: ignore[type-arg]
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, SIGKILL)
        for action, *values in actions:
            if action == os.POSIX_SPAWN_OPEN:
                os.dup2(os.open(values[1], values[2]), values[0])
            else:
                os.dup2(*values)
        for number in SIGNALS:
            _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        if self.namespaces:
            assert self.user is not None
            become(*self.user)
            return
        own = struct.pack("I", os.getpid())
        self.seal(self.settings["final_filter"].replace(self.settings["own_process"], own))

    def handle_signals(self) -> None:
        """Map the client's signals, as it knows no other process: interrupt the command, ask all to end, kill all."""
        _signal.signal(SIGINT, lambda *_: self.command and signal_quietly(os.killpg, self.command, SIGINT))
        _signal.signal(SIGTERM, lambda *_: self.signal_all(SIGTERM))
        _signal.signal(SIGUSR1, lambda *_: self.signal_all(SIGKILL))

    def wait(self) -> None:
        """Reap until the command ends, and report. What it left running ends with it, or is waited for."""
        pid = 0
        while pid != self.command:
            pid, status, usage = os.wait3(0)
        survivors, linger = self.survivors()
        if "memory_bytes" in self.settings:
            end_segments(self.settings["memory_bytes"] // 2)  # the next command needs some, too
        body = struct.pack("iqdd?", status, usage.ru_maxrss, usage.ru_utime, usage.ru_stime, linger)
        send(self.channel, b"X", body + b"\0".join(survivors))
        if linger:
            reap(0)

    def signal_all(self, number: int) -> bool:
        """Signal all processes; False if there was none."""
        if self.namespaces:
            return signal_quietly(os.kill, -1, number)
        return sum(signal_quietly(os.kill, pid, number) for pid in descendants(os.getpid())) > 0

    def survivors(self) -> tuple[list[bytes], bool]:
        """Name what the command left running, and end it; True if it goes on instead."""
        reap(os.WNOHANG)
        if not self.signal_all(0):
            return [], False
        self.let_start()
        left = self.others()
        linger = self.settings["lingers"] and len(left) <= MOST_LEFT
        names = [name for pid in left if (name := name_of(pid))]
        while not linger and self.signal_all(SIGKILL):
            reap(0 if self.namespaces else os.WNOHANG)
        return names[:NAMED_SURVIVORS], linger

    def let_start(self) -> None:
        """Wait for processes between fork and exec, which still have their parent's name."""
        for _ in range(NAME_LOOKS):
            if not any(map(is_starting, self.others())):
                return
            select.select((), (), (), NAME_SECONDS)

    def others(self) -> list[int]:
        if not self.namespaces:
            return descendants(os.getpid())
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def become(user: int, group: int, groups: list[int]) -> None:
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def find_program(name: bytes, env: dict[bytes, bytes]) -> bytes:
    """Find the program in the command's own PATH, as `execvp` does."""
    if b"/" in name:
        return name
    number = errno.ENOENT
    for folder in env.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin").split(b":"):
        path = os.path.join(folder or b".", name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            number = errno.EACCES
    raise StepError(number, "exec", name)
