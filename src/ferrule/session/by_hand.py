"""A command that the user gives by hand: it runs as the model's do, but to its end."""

import asyncio
from collections.abc import Callable

from ferrule.builtin.table import COMMAND_FIELDS
from ferrule.process.interactive import Session
from ferrule.process.sessions import UnknownSession
from ferrule.protocol.errors import UsageError
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.payload import ToolOutput
from ferrule.session.toolset import Toolset
from ferrule.sync import uninterrupted
from ferrule.tools.commands import Ongoing

SHELLS = ("exec_command", "shell_command", "execute_bash", "bash", "shell")
"""Tools that run a script, the first that the session has."""
LIMIT_MS = 24 * 60 * 60 * 1000
"""Milliseconds for tools that end a command after ten seconds: the user ends it when they like."""
LIMITED = frozenset({"shell_command", "shell"})


async def run_by_hand(toolset: Toolset, script: str, call_id: str, heard: Callable[[ToolOutput], None]) -> None:
    """Run a script until it has ended. `heard` is told what the model would read of it: when the tool stops waiting,
    and again of the rest. Cancelled, it ends the command. Raises `UsageError` where the session runs none."""
    registry = toolset.current()[1]
    name = next((name for name in SHELLS if (None, name) in registry), None)
    if name is None:
        raise UsageError("this session has no tool that runs commands")
    command: JsonValue = ["/bin/sh", "-c", script] if name == "shell" else script
    limit: dict[str, JsonValue] = {"timeout_ms": LIMIT_MS} if name in LIMITED else {}
    ongoing = toolset.conversation.commands.ongoing
    before = set(ongoing)
    heard(await toolset.call(name, {COMMAND_FIELDS[None, name]: command, **limit}, call_id))
    for left in [one for one, text in ongoing.items() if one not in before and text == script]:
        await _wait_for(left)
        if (rest := await _rest_of(toolset, left)) is not None:
            heard(rest)


async def _wait_for(command: Ongoing) -> None:
    try:
        await command.over()
    except asyncio.CancelledError:
        await uninterrupted(command.end())
        raise


async def _rest_of(toolset: Toolset, command: Ongoing) -> ToolOutput | None:
    """Return what the model would read at the end of a command; None where it has read it, or cannot."""
    from ferrule.builtin.exec_command import SessionOutput, exec_observation

    state = toolset.conversation
    table = state.commands.sessions
    number = next((number for number, session in table.open() if session is command), None)
    if number is None or not isinstance(command, Session):
        return None
    try:
        collected = await table.collect(number, 0)
    except UnknownSession:
        return None
    shown = exec_observation(SessionOutput(collected, number, state.commands.origins.get(command)), state.output_budget)
    return ToolOutput(shown.to_llm_content, success=shown.success)
