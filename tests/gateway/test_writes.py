"""What a connection writes within two turns of the loop goes out together."""

import asyncio
import socket

import pytest

from ferrule.doors.gateway.protocol import MOST_WAITING, JoinedWrites


@pytest.fixture
async def both() -> "tuple[JoinedWrites, socket.socket]":
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    return JoinedWrites(transport, loop), theirs


async def test_a_head_and_its_first_part_are_sent_together(both: tuple[JoinedWrites, socket.socket]) -> None:
    ours, theirs = both
    ours.write(b"head ")
    await asyncio.sleep(0)
    ours.write(b"part")
    with pytest.raises(BlockingIOError):
        theirs.recv(100)
    await asyncio.sleep(0)
    assert theirs.recv(100) == b"head part"
    ours.abort()
    theirs.close()


async def test_much_is_sent_at_once_so_that_a_slow_client_is_felt(both: tuple[JoinedWrites, socket.socket]) -> None:
    ours, theirs = both
    ours.write(bytes(MOST_WAITING))
    ours.write(b"end")
    assert len(theirs.recv(2 * MOST_WAITING)) == MOST_WAITING + 3
    ours.abort()
    theirs.close()


async def test_closing_sends_what_waits_and_aborting_does_not(both: tuple[JoinedWrites, socket.socket]) -> None:
    ours, theirs = both
    ours.write(b"last words")
    ours.close()
    assert theirs.recv(100) == b"last words" and ours.is_closing()
    ours.write(b"too late")
    await asyncio.sleep(0)
    assert theirs.recv(100) == b""
    theirs.close()
