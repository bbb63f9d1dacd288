"""A way out that answers by itself and lets nothing out."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from ferrule.sandbox.way_out import Listeners

HOSTS = "/etc/hosts"
GIVEN = b"127.0.0.1 localhost\n::1 localhost\n127.64.0.1 one.example.com\n127.64.0.2 two.example.com\n"


class Answering:
    """Tells whoever connects through which listener, and to which address."""

    def __init__(self, shown: Mapping[str, bytes] | None = None) -> None:
        self._shown = shown or {HOSTS: GIVEN}
        self.served: list[Listeners] = []
        self.stopped: list[Listeners] = []
        self._tasks: list[asyncio.Task[asyncio.Server]] = []

    @property
    def files(self) -> Sequence[tuple[str, bytes]]:
        return [*self._shown.items()]

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HTTPS_PROXY": "http://127.0.0.1:3128"}

    def serve(self, listeners: Listeners) -> None:
        self.served.append(listeners)
        for name in ("proxy", "https", "http"):
            started = asyncio.start_server(partial(_answer, name), sock=getattr(listeners, name))
            self._tasks.append(asyncio.create_task(started))

    def stop(self, listeners: Listeners) -> None:
        self.stopped.append(listeners)
        for task in self._tasks:
            if task.done():
                task.result().close()
        listeners.close()

    def mark(self) -> int:
        return 0

    def remarks(self, since: int) -> Sequence[str]:
        return ()

    async def aclose(self) -> None:
        pass


async def _answer(name: str, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    address, port = writer.get_extra_info("sockname")
    writer.write(f"{name} {address}:{port}\n".encode())
    await writer.drain()
    writer.close()


PLACES = ("127.0.0.1:3128", "one.example.com:443", "two.example.com:443", "two.example.com:80", "127.0.0.1:80")
ANSWERS = [
    "proxy 127.0.0.1:3128", "https 127.64.0.1:443", "https 127.64.0.2:443", "http 127.64.0.2:80", "http 127.0.0.1:80",
]  # fmt: skip
CONNECT = "".join(f"head -n 1 < /dev/tcp/{place.replace(':', '/')}; " for place in PLACES)
TAKE = r"""
import os, socket
for fd in range(3, 100):
    try:
        print("inherited", fd, os.readlink(f"/proc/self/fd/{fd}"))
    except OSError:
        pass
REUSE = [()] + [((socket.SOL_SOCKET, option, 1),) for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT)]
for place in [("127.0.0.1", 3128), ("0.0.0.0", 3128), *((a, p) for p in (80, 443) for a in ("127.64.0.1", "0.0.0.0"))]:
    for options in REUSE:
        taken = socket.socket()
        for option in options:
            taken.setsockopt(*option)
        try:
            taken.bind(place)
            taken.listen()
            print("took", place, options)
        except OSError:
            pass
        taken.close()
for process in filter(str.isdigit, os.listdir("/proc")):
    try:
        kept = [os.readlink(f"/proc/{process}/fd/{fd}") for fd in os.listdir(f"/proc/{process}/fd")]
    except OSError:
        continue
    print("".join(f"{process} {name}\n" for name in kept if name.startswith("socket:")), end="")
for path in ("/etc/hosts",):
    for act in (lambda: open(path, "a"), lambda: os.unlink(path), lambda: os.rename(path, path + "2")):
        try:
            act()
        except OSError:
            continue
        print("changed", path)
"""
"""What a command tries, to stand where the way out is. It prints what it could."""
