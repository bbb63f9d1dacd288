"""The way out of a network namespace that has only `lo`: sockets that listen inside, passed to whoever serves them.

Nothing inside takes their place: while they listen the kernel gives no other socket their ports, and commands have no
right to ports below 1024. Part of our helper processes: standard library only. `way_out.Listeners` is the other end.
"""

import _socket
import struct

from . import kernel

ADDRESS = b"\x7f\x40\x00\x00"
"""Of `lo` as well. Libraries that look for IPv4 addresses only where the machine has one do not count 127.0.0.1."""
PLACES = (("0.0.0.0", 3128), ("0.0.0.0", 443), ("0.0.0.0", 80))
"""An HTTP proxy, at each loopback address: which one is used tells whose program it is. And for programs that use none,
what looks like any server of the web."""
BACKLOG = 1024
"""Connections that wait to be accepted: more than programs open at once."""


def listen() -> list[int]:
    """Return listening sockets in the network namespace that we own."""
    kernel.interface_request(kernel.SIOCSIFADDR, struct.pack("16sHH4s16x", b"lo:0", _socket.AF_INET, 0, ADDRESS))
    return [listening(place) for place in PLACES]


def listening(place: tuple[str, int]) -> int:
    made = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    made.bind(place)
    made.listen(BACKLOG)
    return made.detach()
