"""What must work inside."""
# ruff: noqa: PTH123

import asyncio
import multiprocessing
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable

from .common import Scene, attack, write


@attack
def ok_write_workspace(s: Scene) -> str:
    return write(s["ws"] + "/fine")


@attack
def ok_write_temporary(s: Scene) -> str:
    with tempfile.TemporaryFile() as file:  # B137
        file.write(b"x")
    return "OPEN"


@attack
def ok_socketpair(s: Scene) -> str:
    left, right = socket.socketpair()
    left.send(b"x")
    return "OPEN" if right.recv(1) == b"x" else "other"


@attack
def ok_asyncio(s: Scene) -> str:

    asyncio.run(asyncio.sleep(0))
    return "OPEN"


def talk(listener: socket.socket, connect: Callable[[], socket.socket]) -> str:
    thread = threading.Thread(target=lambda: listener.accept()[0].send(b"hi"), daemon=True)
    thread.start()
    with connect() as client:
        return "OPEN" if client.recv(2) == b"hi" else "other"


@attack
def ok_unix_inside(s: Scene) -> str:
    path = s["ws"] + "/s.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def connect() -> socket.socket:
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            return client

        return talk(listener, connect)


@attack
def ok_tcp_inside(s: Scene) -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return talk(listener, lambda: socket.create_connection(listener.getsockname(), 2))


@attack
def ok_multiprocessing(s: Scene) -> str:

    queue = multiprocessing.get_context("fork").Queue()
    process = multiprocessing.get_context("fork").Process(target=queue.put, args=("x",))
    process.start()
    answer = queue.get(timeout=5)
    process.join()
    queue.close()
    return "OPEN" if answer == "x" else "other"


@attack
def ok_git_status(s: Scene) -> str:
    for place in ("ws", "worktree", "symlinked"):
        command = ["git", "-c", "safe.directory=*", "-C", s[place], "status", "--short"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{place}: {done.stderr}"
    return "OPEN"


@attack
def ok_own_pid(s: Scene) -> str:
    return "OPEN" if os.path.exists(f"/proc/{os.getpid()}/stat") else "other"


@attack
def ok_read_disk(s: Scene) -> str:
    return "OPEN" if open(s["victim"]).read() == "original" else "other"


@attack
def ok_daemon_is_started(s: Scene) -> str:
    """The test looks for it afterwards: it must be gone."""
    subprocess.Popen(["sleep", s["daemon_seconds"]], start_new_session=True)
    return "OPEN"
