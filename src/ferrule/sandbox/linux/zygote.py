"""The fork server that confines commands. Imports only its neighbours and the standard library.

It owns the user, mount, network and IPC namespaces of one policy. For each request on its control socket it clones an
*init*: the first process of a new PID and mount namespace. An init prepares itself, waits on its own channel for one
command, confines itself, spawns the command and reports how it ended. Without namespaces an init is a subreaper, and
the child that it forks confines itself.

Messages are SEQPACKET datagrams. Those to us are `I` and a `marshal`led dict, or `M` with the dict in a memfd, the
first descriptor; `pool._settings` and `launcher.request_of` fill them. Those from us are one letter and a body, read by
`client.py`.

Nothing here may start a thread. `socket`, `signal`, `subprocess`, `typing`, `contextlib` and `pathlib` are not
imported: they cost memory and start time.
"""
# ruff: noqa: PTH123, SIM105 - `pathlib` and `contextlib` are not imported
# Messages are bare dicts (type-arg), because `typing` is not imported.

import _signal  # type: ignore[import-not-found]  # what `signal` wraps in enums
import _socket
import errno
import fcntl
import gc
import marshal
import os
import resource
import select
import struct

from . import kernel
from .filesystem import DEVICES, HostSockets, build_tree, cover, cover_kernel_knobs
from .kernel import SIGINT, SIGKILL, SIGTERM, SIGUSR1, StepError
from .socket_search import SocketSearch, read_all

LARGEST_MESSAGE = 1 << 18
"""Bytes: more than `client.LARGEST_INLINE` allows."""
NAMED_SURVIVORS = 5
"""Names reported of processes that were ended with their command; more would tell nothing new."""
NAME_LOOKS, NAME_SECONDS = 50, 0.002
"""Looks, and seconds between them, while waiting for a process that does not have its own name yet."""
PF_FORKNOEXEC = 0x40
"""A flag in `/proc/PID/stat` (include/linux/sched.h)."""
SMALLEST_PID_MAX = 301
"""The smallest value that the kernel accepts."""
LANDLOCK_THAT_TRUNCATES = 3
"""Earlier versions let any file be truncated, which is too weak without namespaces."""
SIGNALS = tuple(number for number in range(1, 32) if number not in (SIGKILL, kernel.SIGSTOP))


# Messages


def receive(channel: _socket.socket) -> tuple[dict | None, list[int]]:  # type: ignore[type-arg]
    """Receive one message and its descriptors; None at the end of the channel."""
    data, control, flags, _ = channel.recvmsg(LARGEST_MESSAGE, 4096, _socket.MSG_CMSG_CLOEXEC)
    fds = [fd for _, _, raw in control for (fd,) in struct.iter_unpack("i", raw)]
    if not data:
        return None, fds
    if flags & (_socket.MSG_CTRUNC | _socket.MSG_TRUNC):
        raise StepError(errno.EMSGSIZE, "receive")
    if data[:1] == b"I":
        return marshal.loads(data[1:]), fds
    memory = fds.pop(0)
    os.lseek(memory, 0, os.SEEK_SET)
    content = read_all(memory)
    os.close(memory)
    return marshal.loads(content), fds


def send(channel: _socket.socket, kind: bytes, body: bytes = b"", fds: tuple[int, ...] = ()) -> None:
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
    channel.sendmsg([kind, body], rights, _socket.MSG_NOSIGNAL)


def send_failure(channel: _socket.socket, error: BaseException) -> None:
    if isinstance(error, OSError):
        error = StepError(error.errno or 0, "open", os.fsencode(error.filename or b""))
    elif not isinstance(error, StepError):
        error = StepError(0, f"{type(error).__name__}: {error}")
    try:
        send(channel, b"E", struct.pack("i", error.number) + error.what.encode() + b"\0" + error.path)
    except OSError:
        pass  # nobody listens any more


# The init


class Init:
    """The init of one command: waits for it, confines itself, runs it, reports."""

    def __init__(self, zygote: "Zygote", channel: _socket.socket) -> None:
        self.settings = zygote.settings
        self.namespaces: bool = zygote.settings["namespaces"]
        self.sockets = zygote.sockets
        self.ruleset = zygote.ruleset
        self.channel = channel
        self.command = 0
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
            pass  # in a container that hides parts of /proc the kernel refuses a new one; the old one stays
        if self.settings["pid_max"]:
            self.pid_max = os.open("/proc/sys/kernel/pid_max", os.O_WRONLY | os.O_CLOEXEC)
        cover_kernel_knobs()
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
        if request is None:
            return
        actions = self.standard_streams(request, fds)
        final_filter = self.arrange(request)
        if self.namespaces:
            self.seal(final_filter)
        program = find_program(request["argv"][0], request["env"])
        self.handle_signals()
        start = self.spawn if self.namespaces else self.fork_sealed
        self.command = start(program, request, actions)
        send(self.channel, b"S")
        for fd in fds:
            os.close(fd)
        self.wait()

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
        limit(resource.RLIMIT_CORE, request["core_bytes"])
        if request["max_processes"]:
            limit(resource.RLIMIT_NPROC, request["max_processes"])
            if self.pid_max is not None:
                # This bounds root as well.
                os.write(self.pid_max, b"%d" % max(request["max_processes"], SMALLEST_PID_MAX))
        return final_filter

    def seal(self, final_filter: bytes) -> None:
        kernel.drop_capabilities()
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
        """Fork a child that confines itself: without namespaces the init stays outside the domain, so that the command
        cannot signal it."""
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
        own = struct.pack("I", os.getpid())
        self.seal(self.settings["final_filter"].replace(self.settings["own_process"], own))

    def handle_signals(self) -> None:
        """Map the client's signals, as it knows no other process: interrupt the command, ask all to end, kill all."""
        _signal.signal(SIGINT, lambda *_: self.command and signal_quietly(os.killpg, self.command, SIGINT))
        _signal.signal(SIGTERM, lambda *_: self.signal_all(SIGTERM))
        _signal.signal(SIGUSR1, lambda *_: self.signal_all(SIGKILL))

    def wait(self) -> None:
        """Reap until the command ends, end what it left running, and report."""
        pid = 0
        while pid != self.command:
            pid, status, usage = os.wait3(0)
        survivors = self.end_survivors()
        body = struct.pack("iqdd", status, usage.ru_maxrss, usage.ru_utime, usage.ru_stime)
        send(self.channel, b"X", body + b"\0".join(survivors))

    def signal_all(self, number: int) -> bool:
        """Signal all processes; False if there was none."""
        if self.namespaces:
            return signal_quietly(os.kill, -1, number)
        return sum(signal_quietly(os.kill, pid, number) for pid in descendants(os.getpid())) > 0

    def end_survivors(self) -> list[bytes]:
        reap(os.WNOHANG)
        if not self.signal_all(0):
            return []
        self.let_start()
        names = [name for pid in self.others() if (name := name_of(pid))]
        while self.signal_all(SIGKILL):
            reap(0 if self.namespaces else os.WNOHANG)
        return names[:NAMED_SURVIVORS]

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


def limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def signal_quietly(kill, pid: int, number: int) -> bool:  # type: ignore[no-untyped-def]  # `Callable` is in `typing`
    """Send a signal; False if nobody is there."""
    try:
        kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def reap(flags: int) -> None:
    try:
        while os.waitpid(-1, flags)[0]:
            pass
    except ChildProcessError:
        pass


def name_of(pid: int) -> bytes:
    """Return the name of a living process; empty for others."""
    name, state, _ = status_of(pid)
    return b"" if state == b"Z" else name


def is_starting(pid: int) -> bool:
    """Tell whether a running process is between fork and exec, or inside exec, where it has no command line yet."""
    _, state, flags = status_of(pid)
    if state not in (b"R", b"D"):
        return False
    return not has_command_line(pid) or (bool(flags & PF_FORKNOEXEC) and not children(pid))


def has_command_line(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(1) != b""
    except OSError:
        return True


def status_of(pid: int) -> tuple[bytes, bytes, int]:
    """Return name, state and flags of a process; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            name, _, rest = file.read().partition(b"(")[2].rpartition(b")")
    except OSError:
        return b"", b"", 0
    fields = rest.split()
    return name, fields[0], int(fields[6])


def children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    found = children(pid)
    return found + [below for child in found for below in descendants(child)]


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


# The zygote


class Zygote:
    def __init__(
        self,
        control: _socket.socket,
        settings: dict,  # type: ignore[type-arg]
        fds: list[int],
        search: SocketSearch | None,
    ) -> None:
        self.control = control
        self.search = search
        self.settings = settings
        self.folder, self.lock = fds  # of the placeholders' records, opened on the host's mount, where it is writable
        self.inits: dict[int, int] = {}  # pidfd -> pid
        self.sockets: HostSockets | None = None
        self.landlock = kernel.landlock_abi()
        self.ruleset: int | None = None

    def start(self) -> None:
        settings = self.settings
        roots, network = settings["roots"], settings["network"]
        if settings["namespaces"]:
            if settings["cover_sockets"]:
                self.sockets = HostSockets(settings["sockets"])
            kernel.enter_namespaces(network)
            build_tree(roots)
            if self.sockets:
                self.sockets.cover()
                if self.search:
                    self.sockets.cover_present(self.search)
            kernel.drop_bounding_set()
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        else:
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
            if not self.landlock:
                raise StepError(0, "this kernel has no Landlock, or it was not enabled at boot (lsm=)")
            if self.landlock < LANDLOCK_THAT_TRUNCATES:
                needed = f"{LANDLOCK_THAT_TRUNCATES} (Linux 6.2) is needed"
                raise StepError(0, f"this kernel has version {self.landlock} of Landlock; {needed}")
        self.ruleset = kernel.landlock_ruleset((*roots, b"/dev/shm", b"/dev/pts"), (*DEVICES, b"/dev/ptmx"))
        if settings["namespaces"]:
            # Inits inherit it, because loading it takes half a millisecond.
            kernel.load_filter(settings["filter"])

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd in self.inits:
                    poll.unregister(fd)
                    os.waitpid(self.inits.pop(fd), 0)
                    os.close(fd)
                    self.end_orphans()
                    continue
                request, _ = receive(self.control)
                if request is None:
                    return
                poll.register(self.new_init(request["covers"]), select.POLLIN)

    def new_init(self, covers: list[tuple[str, bytes, bytes]]) -> int:
        channel, other = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
        pid = kernel.clone_process(self.settings["namespaces"])
        if pid == 0:
            self.become_init(channel, covers)
        pidfd = os.pidfd_open(pid)
        self.inits[pidfd] = pid
        send(self.control, b"C", fds=(other.fileno(), pidfd))
        channel.close()
        other.close()
        return pidfd

    def become_init(self, channel: _socket.socket, covers: list[tuple[str, bytes, bytes]]) -> None:
        """Run as an init. Never returns."""
        try:
            keep = sorted({0, 1, 2, channel.fileno(), *self.kept_fds()})
            for low, high in zip(keep, (*keep[1:], 1 << 20), strict=True):
                os.closerange(low + 1, high)
            init = Init(self, channel)
            init.prepare(covers)
            init.rehearse()
            init.run()
        except BaseException as error:  # noqa: BLE001  reported to the client, who raises it
            send_failure(channel, error)
        os._exit(0)

    def kept_fds(self) -> list[int]:
        """Return the descriptors that an init needs; the lock has to live as long as the last process that relies on
        it."""
        more = [self.ruleset] if self.ruleset is not None else []
        return [self.lock, *more, *([self.sockets.table] if self.sockets else [])]

    def end_orphans(self) -> None:
        """Without namespaces, end the processes of an init that was killed: they become our children."""
        if not self.settings["namespaces"]:
            for pid in set(children(os.getpid())) - set(self.inits.values()):
                for orphan in (pid, *descendants(pid)):
                    signal_quietly(os.kill, orphan, SIGKILL)
                os.waitpid(pid, 0)

    def end(self) -> None:
        """End every command once the client is gone, then remove the placeholders."""
        for pidfd, pid in self.inits.items():
            _signal.pidfd_send_signal(pidfd, SIGKILL)
            os.waitpid(pid, 0)
        self.inits.clear()
        self.end_orphans()
        for record in self.settings["records"]:
            self.remove_placeholders(record)

    def remove_placeholders(self, record: str) -> None:
        """See `placeholders.remove_placeholders`."""
        place = int(record, 16)
        try:
            for kind in (fcntl.F_UNLCK, fcntl.F_WRLCK):
                fcntl.fcntl(self.lock, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, 0, place, 1, 0))
            fd = os.open(record, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        except OSError:
            return  # another process runs commands there, or has removed them
        busy = False
        for path in read_all(fd).split(b"\0")[:-1]:
            try:
                if not os.lstat(path).st_mode & 0o222:  # a writable one is somebody's by now
                    os.rmdir(path)
            except OSError as error:
                busy = busy or error.errno == errno.EBUSY
        if not busy:
            os.unlink(record, dir_fd=self.folder)


def main(number: int, search: SocketSearch | None) -> None:
    """Serve the control socket with this descriptor until its other end is closed."""
    os.set_inheritable(number, False)
    control = _socket.socket(fileno=number)
    settings, fds = receive(control)
    if settings is None:
        return
    zygote = Zygote(control, settings, fds, search)
    try:
        zygote.start()
        gc.freeze()
        send(control, b"R", bytes((zygote.landlock,)))
        zygote.serve()
    except (OSError, StepError) as error:
        send_failure(control, error)
    zygote.end()
