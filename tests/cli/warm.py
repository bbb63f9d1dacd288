"""The real command in a process of its own, without the seconds that imports and the interpreter's end take.

One process imports what commands import and forks for each: descriptors, environment, directory and exit code are the
command's own. Tests that run many commands use it; how a command starts and ends by itself is tested elsewhere.
"""

import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from tests.cli.command import SOURCE, Done, Place

ROOT = Path(__file__).parents[2]
STANDARD = 3
"""Descriptors of a command: input, output, errors."""
DEADLINE = 50
SLOW = ("ferrule.cli.commands.exec", "ferrule.session.opening")
"""Imported before the first command; of the rest each command tells."""


class Warm:
    """The process that forks. Not for several threads."""

    def __init__(self, process: "subprocess.Popen[bytes]", channel: socket.socket) -> None:
        self._process = process
        self._channel = channel
        self._orders = 0

    def run(
        self, arguments: tuple[str, ...], stdin: bytes | int, env: Mapping[str, str], cwd: Path, before: str = ""
    ) -> Done:
        """Run `ferrule ARGUMENTS` in a new process and wait. `stdin`: what it reads, or a descriptor of it. `before`:
        Python that the process runs first."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            if isinstance(stdin, bytes):
                given.write(stdin)
                given.seek(0)
            files = [given.fileno() if isinstance(stdin, bytes) else stdin, out.fileno(), err.fileno()]
            self._orders += 1
            order = {
                "number": self._orders,
                "arguments": arguments,
                "env": dict(env),
                "cwd": str(cwd),
                "before": before,
            }
            socket.send_fds(self._channel, [json.dumps(order).encode()], files)
            number, code = 0, 1
            while number != self._orders:  # an earlier command may have taken longer than its test waited
                number, code = json.loads(self._channel.recv(64))
            out.seek(0)
            err.seek(0)
            return Done(code, out.read().decode(), err.read().decode())


@contextmanager
def warm() -> Iterator[Warm]:
    """Start the process that forks; it ends with the block."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        ours.settimeout(DEADLINE)
        with theirs:
            environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{SOURCE}"}
            argv = [sys.executable, "-m", "tests.cli.warm", str(theirs.fileno())]
            process = subprocess.Popen(argv, env=environment, pass_fds=[theirs.fileno()])
        yield Warm(process, ours)
    assert process.wait(20) == 0


@dataclass(frozen=True, slots=True)
class WarmPlace(Place):
    """A `Place` whose commands are forked."""

    warm: Warm

    def run(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Done:
        return self.warm.run(arguments, stdin, self.env(env), cwd or self.cwd)


def _serve(channel: socket.socket) -> int:
    """Fork for each order until the channel ends."""
    gc.disable()  # all that is imported stays
    for name in SLOW:
        import_module(name)
    while True:
        order, files, _, _ = socket.recv_fds(channel, 1 << 20, STANDARD)
        if not order:
            return 0
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            channel.close()
            os.close(read)
            _command(json.loads(order), files, write)
        for fd in (*files, write):
            os.close(fd)
        with os.fdopen(read) as told:
            names = told.read().split()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        channel.send(json.dumps([json.loads(order)["number"], code]).encode())
        for name in names:
            import_module(name)


def _command(order: dict[str, Any], files: list[int], tell: int) -> NoReturn:
    """Be `ferrule ARGUMENTS`, and tell the modules that it took, so that the next one has them."""
    gc.enable()
    for number, fd in enumerate(files):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    had = set(sys.modules)
    from ferrule.cli.main import main

    code: int | str | None = 1
    try:
        exec(order["before"], {})
        code = main(order["arguments"])
    except SystemExit as left:
        code = left.code
    except BaseException:  # noqa: BLE001 - shown as the interpreter would
        traceback.print_exc()
    new = [name for name in sys.modules.keys() - had if name.startswith(("ferrule.", "mcp.", "acp."))]
    os.write(tell, " ".join(new).encode())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    os._exit(_serve(socket.socket(fileno=int(sys.argv[1]))))  # the interpreter's end would take 0.2 s
