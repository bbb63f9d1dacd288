"""The pipe from a server."""

import asyncio
import os

from ferrule.mcp.lines import MessageReader
from ferrule.mcp.stdio import _Incoming


async def test_a_closed_pipe_leaves_its_number_to_the_next_one() -> None:
    """The exit of a server is heard after the end of its output; by then another process may have the number."""
    read, write = os.pipe()
    incoming = _Incoming(read, MessageReader("stub"))
    receiving = asyncio.create_task(anext(incoming, None))
    await asyncio.sleep(0)
    os.close(write)
    assert await receiving is None
    again, write = os.pipe()
    assert again == read
    heard = asyncio.Event()
    asyncio.get_running_loop().add_reader(again, heard.set)
    incoming.no_more()
    os.write(write, b"x")
    await asyncio.wait_for(heard.wait(), 30)
    asyncio.get_running_loop().remove_reader(again)
    os.close(again)
    os.close(write)
