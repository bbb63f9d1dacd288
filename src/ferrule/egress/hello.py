"""Read the first message of TLS: which server does a client ask for?

Source: RFC 8446 (TLS 1.3, section 4.1.2), RFC 6066 (server_name), RFC 9849 (encrypted_client_hello).
"""

import struct

import msgspec

from ferrule.protocol.errors import FerruleError

RECORD_HEAD = 5
HANDSHAKE, CLIENT_HELLO = 22, 1
MAX_RECORD = 1 << 14
MAX_HELLO = 1 << 16
"""Bytes; real ones have less than 4 KiB."""
MAX_RECORDS = 16
"""That a hello is spread over; real ones take one or two. All are read again with each block that arrives."""
SERVER_NAME, ENCRYPTED_HELLO = 0, 0xFE0D
HOST_NAME = 0


class BadHello(FerruleError):
    """What a client sent does not begin TLS as it should."""


class Hello(msgspec.Struct, frozen=True):
    """The server's name as the client sent it, or None; and whether it may have hidden another one."""

    name: str | None
    hides_a_name: bool


def read_hello(data: bytes) -> Hello | None:
    """Read what a client has sent so far; None if more is needed. Raises `BadHello`."""
    message = _message(data)
    if message is None:
        return None
    try:
        return _read(_Fields(message))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadHello("the TLS hello is malformed") from error


def _message(data: bytes) -> bytes | None:
    """Return the body of the hello, which may be spread over records."""
    message, at = b"", 0
    for _ in range(MAX_RECORDS):
        if data[at : at + 1] not in (b"", bytes([HANDSHAKE])):
            raise BadHello("this is not TLS")
        if len(data) < at + RECORD_HEAD:
            return None
        major, length = data[at + 1], int.from_bytes(data[at + 3 : at + RECORD_HEAD])
        if major != 3 or not 0 < length <= MAX_RECORD:
            raise BadHello("this is not TLS")
        message += data[at + RECORD_HEAD : at + RECORD_HEAD + length]
        at += RECORD_HEAD + length
        if message and message[0] != CLIENT_HELLO:
            raise BadHello("TLS does not begin with a hello")
        if len(message) >= 4:
            whole = int.from_bytes(message[1:4])
            if whole > MAX_HELLO:
                raise BadHello("the TLS hello is too long")
            if len(message) >= 4 + whole:
                return message[4 : 4 + whole]
        if len(data) < at:
            return None
    raise BadHello("the TLS hello is in too many pieces")


class _Fields:
    """Takes fields off the front of a message. Raises `IndexError` where it is too short."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def take(self, count: int) -> bytes:
        if count > len(self.rest):
            raise IndexError
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def counted(self, size: int) -> bytes:
        return self.take(self.number(size))


def _read(hello: _Fields) -> Hello:
    hello.take(2 + 32)  # version, random
    hello.counted(1)  # session
    hello.counted(2)  # ciphers
    hello.counted(1)  # compressions
    extensions = _Fields(hello.counted(2) if hello.rest else b"")
    found: dict[int, bytes] = {}
    while extensions.rest:
        kind, content = extensions.number(2), extensions.counted(2)
        if kind in found:
            raise BadHello("the TLS hello says something twice")
        found[kind] = content
    name = _server_name(found[SERVER_NAME]) if SERVER_NAME in found else None
    return Hello(name, ENCRYPTED_HELLO in found)


def _server_name(content: bytes) -> str:
    names = _Fields(_Fields(content).counted(2))
    kind, name = names.number(1), names.counted(2)
    if kind != HOST_NAME or names.rest:
        raise BadHello("the TLS hello does not name one server")
    return name.decode("ascii")
