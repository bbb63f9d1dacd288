"""The host side of the escape suite: folders, victims, sockets and listeners, and what became of them."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

ATTACKS = Path(__file__).parent / "attacks" / "attacks.py"
DAEMON_SECONDS = "98765"
PID_BOUND = 2048


@dataclass
class Scene:
    """Everything belongs to `user` (a uid), so that only the sandbox stands between an attack and its target.

    The folders lie in `/var/tmp`, which is no root; one socket lies in `/tmp`, which is.
    """

    user: int
    base: Path = field(init=False)
    values: dict[str, object] = field(init=False)
    listeners: dict[str, socket.socket] = field(default_factory=dict)
    victim: subprocess.Popen[bytes] = field(init=False)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.base = Path(tempfile.mkdtemp(prefix="ferrule-escape-", dir="/var/tmp"))
        self._stack.callback(shutil.rmtree, self.base, ignore_errors=True)
        self.base.chmod(0o755)
        self._folders()
        self._victim()
        self._listeners()
        self._terminal()
        self.values |= {
            "victim_pid": self.victim.pid,
            "agent_pid": os.getpid(),
            "daemon_seconds": DAEMON_SECONDS,
            "pid_bound": PID_BOUND if _kernel() >= (6, 14) else 0,
        }
        shutil.copy(ATTACKS, self.base / "attacks.py")
        (self.base / "scene.json").write_text(json.dumps(self.values))
        self._own_everything()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def home(self) -> Path:
        return self.base / "outer" / "house" / ".ferrule"

    @property
    def roots(self) -> list[str]:
        names = ("ws", "nogit", "second", "worktree", "symlinked", "outer", "outer/a/inner")
        return [str(self.base / name) for name in names]

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
        self.listeners["abstract"] = _listening(socket.AF_UNIX, f"\0ferrule-{token}")
        self.listeners["tcp"] = _listening(socket.AF_INET, ("127.0.0.1", 0))
        log = f"{self.base}/out/log.sock"
        self.listeners["unix_log"] = _bound(socket.AF_UNIX, log)
        os.chown(log, self.user, self.user)
        self.listeners["udp"] = _bound(socket.AF_INET, ("127.0.0.1", 0))
        self.values |= named | {
            "unix_log": log,
            "abstract": f"ferrule-{token}",
            "tcp_port": self.listeners["tcp"].getsockname()[1],
            "udp_port": self.listeners["udp"].getsockname()[1],
        }
        self._stack.callback(lambda: [listener.close() for listener in self.listeners.values()])

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

    def _own_everything(self) -> None:
        if os.getuid() == 0 and self.user != 0:
            subprocess.run(["chown", "-hR", f"{self.user}:{self.user}", str(self.base)], check=True)
            setuid = self.base / "id-setuid"
            os.chown(setuid, 0, 0)
            setuid.chmod(0o4755)

    def reached(self) -> list[str]:
        """The listeners of the host that heard from somebody."""
        return [name for name, listener in self.listeners.items() if _heard(listener)]

    def snapshot(self) -> dict[str, str]:
        """Path -> what it is, of everything below the base that no command may change."""
        protected = {".git", ".ferrule", ".codex", ".agents", "out", "meta", "house", "common.git", "p.git", "wt.git"}
        found = {}
        for path in sorted(self.base.rglob("*")):
            relative = path.relative_to(self.base)
            if protected & set(relative.parts):
                found[str(relative)] = _fingerprint(path)
        return found


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


def _bound(family: int, address: object) -> socket.socket:
    receiver = socket.socket(family, socket.SOCK_DGRAM)
    receiver.bind(address)
    receiver.setblocking(False)
    return receiver


def _listening(family: int, address: object) -> socket.socket:
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
