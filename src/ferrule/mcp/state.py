"""The state of a configured server: start or reach it, ask for its tools, and leave."""

from typing import Literal

import msgspec

from ferrule.mcp.client import MCPClient
from ferrule.mcp.errors import McpFailure
from ferrule.protocol.errors import FerruleError

LONGEST_STATE = 300
"""Characters of a state: one line, whatever a failing server printed."""


class ServerState(msgspec.Struct, frozen=True):
    """`text` is one line. `tools` are those that a session would use, by the server's own names; `left_out` gives the
    reason for each of the others."""

    status: Literal["ready", "login", "failed"]
    text: str
    tools: tuple[str, ...] = ()
    left_out: dict[str, str] = {}


async def state_of(client: MCPClient) -> ServerState:
    """Return the server's state now. Closes the client."""
    try:
        tools = await client.list_tools()
        name = await client.server_name()
    except McpFailure as error:
        return ServerState("login" if error.kind == "login" else "failed", _line(error.said))
    except FerruleError as error:
        return ServerState("failed", _line(str(error)))
    finally:
        await client.close()
    usable = tuple(tool.name for tool in tools if tool.unusable is None)
    left_out = {tool.name: tool.unusable for tool in tools if tool.unusable is not None}
    count = f"{len(usable)} tool{'' if len(usable) == 1 else 's'}"
    more = f" and {len(left_out)} that cannot be used" if left_out else ""
    return ServerState("ready", _line(f"ready, {count}{more}{f' ({name})' if name else ''}"), usable, left_out)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_STATE else f"{line[:LONGEST_STATE]}..."
