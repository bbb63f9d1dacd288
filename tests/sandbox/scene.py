"""The host side of the escape suite: folders, victims, sockets and listeners, and what became of them."""

import ctypes
import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from ferrule.sandbox.plan import ConfinementPlan, Root

ATTACKS = Path(__file__).parent / "attacks"
ENTRY = "import sys; sys.path.insert(0, sys.argv[1]); from attacks.run import main; main(sys.argv[2])"
SYSTEM_PYTHON = "/usr/bin/python3"
DAEMON_SECONDS = f"98765.{os.getpid():07}"
PROCESSES = 400
"""The bound of the attacking command; a fork bomb of the default 2048 takes seconds."""


@dataclass
class Scene:
    """Everything belongs to `user` (a uid), so that only the sandbox stands between an attack and its target.

    The folders lie in `/var/tmp`, which is no root; one socket lies in `/tmp`, which is.
    """

    user: int
    home_in_root: bool = True
    base: Path = field(init=False)
    values: dict[str, object] = field(init=False)
    listeners: dict[str, socket.socket] = field(default_factory=dict)
    victim: subprocess.Popen[bytes] = field(init=False)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.base = self._stack.enter_context(temporary_folder())
        self._folders()
        self._victim()
        self._listeners()
        self._terminal()
        self._shared()
        self.values |= {
            "victim_pid": self.victim.pid,
            "agent_pid": os.getpid(),
            "daemon_seconds": DAEMON_SECONDS,
            "process_bound": PROCESSES if self.user or _kernel() >= (6, 14) else 0,
        }
        shutil.copytree(ATTACKS, self.base / "attacks", ignore=shutil.ignore_patterns("__pycache__"))
        (self.base / "scene.json").write_text(json.dumps(self.values))
        self._own_everything()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def home(self) -> Path:
        """Ferrule's own folder."""
        return self.base / ("outer/house" if self.home_in_root else "out") / ".ferrule"

    @property
    def plan(self) -> ConfinementPlan:
        names = ("ws", "nogit", "second", "worktree", "symlinked", "outer", "outer/a/inner")
        roots = [Root("/tmp", reserve=False, scan=False), *(Root(str(self.base / name)) for name in names)]
        return ConfinementPlan(tuple(roots), read_only=(str(self.home),))

    @property
    def interpreter(self) -> tuple[str, ...]:
        """What the zygote runs as: for another user the system's Python, as ours may lie in a closed folder."""
        prefix = as_user(self.user)
        return (*prefix, SYSTEM_PYTHON) if prefix else ()

    @property
    def command(self) -> list[str]:
        return [SYSTEM_PYTHON, "-c", ENTRY, str(self.base), str(self.base / "scene.json")]

    def _folders(self) -> None:
        base = self.base
        for name in ("ws/vendor/s", "second"):
            _repository(base / name)
        for name in ("nogit", "outer/a/inner", "out", "worktree/meta", "symlinked/meta"):
            (base / name).mkdir(parents=True)
        _repository(base / "worktree" / "common", "../meta/common.git")
        shutil.rmtree(base / "worktree" / "common")
        gitdir = base / "worktree" / "meta" / "wt.git"
        gitdir.mkdir()
        (gitdir / "commondir").write_text("../common.git\n")
        (gitdir / "HEAD").write_text("ref: refs/heads/main\n")
        (gitdir / "gitdir").write_text(f"{base}/worktree/.git\n")
        (gitdir / "config").write_text("")
        (base / "worktree" / ".git").write_text(f"gitdir: {gitdir}\n")
        _repository(base / "symlinked" / "x", "../meta/p.git")
        shutil.rmtree(base / "symlinked" / "x")
        (base / "symlinked" / ".git").symlink_to("meta/p.git")
        _repository(base / "ws")
        (self.home / "rules").mkdir(parents=True)
        (self.home / "sandbox").mkdir(mode=0o700)
        (self.home / "sandbox" / "lock").touch(0o600)
        victim = base / "out" / "victim"
        victim.write_text("original")
        victim.chmod(0o644)
        setuid = base / "id-setuid"
        shutil.copy("/usr/bin/id", setuid)
        setuid.chmod(0o4755)
        paths = {name: str(base / name) for name in ("ws", "nogit", "second", "worktree", "symlinked", "outer", "out")}
        self.values = {
            **paths,
            "victim": str(victim),
            "home": str(self.home),
            "state": str(self.home / "sandbox"),
            "setuid_id": str(setuid) if os.getuid() == 0 else "",
        }

    def _victim(self) -> None:
        """A process of the same user that has a secret in its environment."""
        prefix = as_user(self.user)
        self.victim = subprocess.Popen([*prefix, "sleep", "300"], env={**os.environ, "SECRET": "SECRET"})
        self._stack.callback(self.victim.wait)
        self._stack.callback(self.victim.kill)

    def _listeners(self) -> None:
        token = secrets.token_hex(4)
        in_tmp = Path(tempfile.mkdtemp(prefix="ferrule-escape-", dir="/tmp"))
        self._stack.callback(shutil.rmtree, in_tmp, ignore_errors=True)
        os.chown(in_tmp, self.user, self.user)
        named = {
            "unix_out": f"{self.base}/out/docker.sock",
            "unix_tmp": f"{in_tmp}/host.sock",
            "unix_again": f"{self.base}/out/again.sock",
        }
        for name, path in named.items():
            self.listen_unix(name, path)
        # The table of sockets has other names for these: renamed after the bind, outside of the roots and inside.
        for name, folder in (("unix_moved_out", f"{self.base}/out"), ("unix_moved_in", f"{self.base}/ws/deep")):
            os.makedirs(folder, exist_ok=True)
            self.listen_unix(name, f"{folder}/bound.sock")
            named[name] = f"{folder}/moved.sock"
            os.rename(f"{folder}/bound.sock", named[name])
        named["unix_elsewhere"] = f"{self.base}/ws/deep/elsewhere.sock"
        self._listen_in_another_network(named["unix_elsewhere"])
        # The user cannot reach this one; covering the others must not stop at it.
        locked = self.base / "locked"
        locked.mkdir(mode=0o700)
        self.listeners["locked"] = _listening(socket.AF_UNIX, str(locked / "private.sock"))
        self.listeners["abstract"] = _listening(socket.AF_UNIX, f"\0ferrule-{token}")
        self.listeners["tcp"] = _listening(socket.AF_INET, ("127.0.0.1", 0))
        log = f"{self.base}/out/log.sock"
        self.listeners["unix_log"] = _bound(socket.AF_UNIX, log)
        os.chown(log, self.user, self.user)
        self.listeners["udp"] = _bound(socket.AF_INET, ("127.0.0.1", 0))
        self.values |= named | {
            "unix_log": log,
            "shared_memory": f"ferrule-{token}",
            "abstract": f"ferrule-{token}",
            "tcp_port": self.listeners["tcp"].getsockname()[1],
            "udp_port": self.listeners["udp"].getsockname()[1],
        }
        self._stack.callback(self._close_listeners)

    def _listen_in_another_network(self, path: str) -> None:
        """As a container does whose folder is shared. The listener comes back to us, so that we hear who calls."""
        ours, theirs = socket.socketpair()
        script = (
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n"
            "socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b'x'], [s.fileno()])"
        )
        unshare = ["unshare", "--net"] if os.getuid() == 0 else ["unshare", "--net", "--map-root-user"]
        command = [*unshare, SYSTEM_PYTHON, "-c", script, path, str(theirs.fileno())]
        subprocess.run(command, check=True, pass_fds=[theirs.fileno()])
        listener = socket.socket(fileno=socket.recv_fds(ours, 1, 1)[1][0])
        listener.setblocking(False)
        self.listeners["unix_elsewhere"] = listener
        ours.close()
        theirs.close()

    def _close_listeners(self) -> None:
        for listener in self.listeners.values():
            listener.close()

    def listen_unix(self, name: str, path: str) -> None:
        """Listen at a path; a second time, at a new socket file in the place of the old one."""
        if name in self.listeners:
            self.listeners[name].close()
            os.unlink(path)
        self.listeners[name] = _listening(socket.AF_UNIX, path)
        os.chown(path, self.user, self.user)

    def _terminal(self) -> None:
        master, slave = os.openpty()
        self.values["host_pty"] = os.ttyname(slave)
        self._stack.callback(os.close, master)
        self._stack.callback(os.close, slave)

    def _shared(self) -> None:
        """Objects of other programs, found by number or name. Everybody may use them, but for the sandbox."""
        libc, private, create = ctypes.CDLL(None), 0, 0o1666
        name = f"/ferrule-{secrets.token_hex(4)}"
        segment, semaphore = libc.shmget(private, 4096, create), libc.semget(private, 1, create)
        queue, posix = libc.msgget(private, create), libc.mq_open(name.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
        assert min(segment, semaphore, queue, posix) >= 0
        self._stack.callback(libc.shmctl, segment, 0, None)
        self._stack.callback(libc.semctl, semaphore, 0, 0)
        self._stack.callback(libc.msgctl, queue, 0, None)
        self._stack.callback(libc.mq_unlink, name.encode())
        os.close(posix)
        self.values |= {
            "shared_segment": segment, "semaphore": semaphore, "message_queue": queue, "posix_queue": name,
        }  # fmt: skip

    def _own_everything(self) -> None:
        if os.getuid() == 0 and self.user != 0:
            subprocess.run(["chown", "-hR", f"{self.user}:{self.user}", str(self.base)], check=True)
            setuid = self.base / "id-setuid"
            os.chown(self.base / "locked", 0, 0)
            os.chown(setuid, 0, 0)
            setuid.chmod(0o4755)

    def reached(self) -> list[str]:
        """The listeners of the host that heard from somebody."""
        return [name for name, listener in self.listeners.items() if _heard(listener)]

    def leaked_shared_memory(self) -> bool:
        path = Path("/dev/shm", str(self.values["shared_memory"]))
        found = path.exists()
        path.unlink(missing_ok=True)
        return found

    def snapshot(self) -> dict[str, str]:
        """Path -> what it is, of everything below the base that no command may change."""
        protected = {".git", ".ferrule", ".codex", ".agents", "out", "meta", "house", "common.git", "p.git", "wt.git"}
        found = {}
        for path in sorted(self.base.rglob("*")):
            relative = path.relative_to(self.base)
            if protected & set(relative.parts):
                found[str(relative)] = _fingerprint(path)
        return found


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """In `/var/tmp`, readable for everybody."""
    folder = Path(tempfile.mkdtemp(prefix="ferrule-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_user(user: int) -> tuple[str, ...]:
    """What comes before a command so that it runs as this user."""
    if user == os.getuid():
        return ()
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")


def _repository(folder: Path, separate: str | None = None) -> None:
    command = ["git", "init", "-q", "-b", "main", str(folder)]
    if separate:
        folder.mkdir(parents=True)
        command += ["--separate-git-dir", str(folder / separate)]
    subprocess.run(command, check=True, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})


def _bound(family: int, address: str | tuple[str, int]) -> socket.socket:
    receiver = socket.socket(family, socket.SOCK_DGRAM)
    receiver.bind(address)
    receiver.setblocking(False)
    return receiver


def _listening(family: int, address: str | tuple[str, int]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen()
    listener.setblocking(False)
    return listener


def _heard(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(100)
    except BlockingIOError:
        return False
    return True


def _fingerprint(path: Path) -> str:
    status = path.lstat()
    if path.is_symlink():
        return f"link {path.readlink()}"
    attributes = os.listxattr(path, follow_symlinks=False)
    content = path.read_bytes() if path.is_file() else b""
    times = int(status.st_mtime) if path.is_file() else 0
    return f"{status.st_mode:o} {status.st_uid} {times} {attributes} {content[:80]!r}"


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in os.uname().release.split(".")[:2])
