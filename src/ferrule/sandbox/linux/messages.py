"""Messages between our helper processes and their client: SEQPACKET datagrams with descriptors.

Those to a helper are `I` and a `marshal`led dict, or `M` with the dict in a memfd, the first descriptor. Those from one
are a letter and a body, read by `client.py`. Standard library only.
"""
# ruff: noqa: SIM105 - `contextlib` is not imported
# Messages are bare dicts (type-arg), because `typing` is not imported.

import _socket
import errno
import marshal
import os
import struct

from .kernel import StepError
from .socket_search import read_all

LARGEST_MESSAGE = 40_000
"""Bytes: more than `client.LARGEST_INLINE` allows, and less than takes pages of its own from the kernel each time."""


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
