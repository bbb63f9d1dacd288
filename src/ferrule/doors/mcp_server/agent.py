"""An agent as two tools: one that does a task, and one that goes on with it."""

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from mcp_types import CallToolResult, TextContent, Tool
from pydantic import AliasChoices, Field

from ferrule.doors.mcp_server.calls import Call
from ferrule.doors.mcp_server.desk import Desk
from ferrule.doors.mcp_server.listing import shown
from ferrule.doors.mcp_server.offer import Asking, unknown
from ferrule.doors.mcp_server.roots import place_in
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.json_text import JsonObject, JsonValue, encodable
from ferrule.protocol.payload import NO_OUTPUT
from ferrule.protocol.permissions import AskForApproval, SandboxMode
from ferrule.protocol.settings import Settings
from ferrule.schemas.writer import schema_of_model
from ferrule.session.child_settings import narrower_approval, narrower_sandbox
from ferrule.session.opening import open_session
from ferrule.session.resuming import Given, resume_settings
from ferrule.session.rollout import StoredSession
from ferrule.session.session import Session
from ferrule.tools.action import Action
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.arguments import ModelValidator, validate_value

TASK, REPLY = "ferrule", "ferrule-reply"

MAX_THREADS = 16
"""Open threads of one client: each may have a shell. The one that rested longest is closed, and opened when it goes on.
"""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HINTS = shown(ToolAnnotations(readOnlyHint=False, destructiveHint=True, openWorldHint=True))
_OUTPUT: JsonObject = {
    "type": "object",
    "properties": {
        "threadId": {"type": "string", "description": f"Goes on with this task, by {REPLY}"},
        "content": {"type": "string", "description": "The agent's last message"},
    },
    "required": ["threadId", "content"],
}


class Task(Action):
    """Let a coding agent do a whole task: it reads and edits files and runs commands until it is done."""

    prompt: str = Field(description="What to do")
    cwd: str | None = Field(default=None, description="The directory to work in, inside the server's; that by default")
    model: str | None = Field(default=None, description="The model's name")
    sandbox: SandboxMode | None = Field(default=None, description="A narrower sandbox than the server's")
    approval_policy: AskForApproval | None = Field(
        default=None,
        validation_alias=AliasChoices("approval-policy", "approval_policy"),
        description="An approval policy that asks more than the server's",
    )


class Reply(Action):
    """Go on with a task of the agent: it remembers all that was said and done."""

    threadId: str = Field(description="The threadId of the task")  # noqa: N815 - the name of the contract
    prompt: str = Field(description="What to say next")


class _Thread(msgspec.Struct, frozen=True):
    session: Session
    desk: Desk


class AgentOffer:
    """Sessions of an agent for one client: threads. Each is kept on disk, as every session is."""

    def __init__(self, settings: Settings, asking: Asking) -> None:
        self._settings = settings
        self._asking = asking
        self._threads: dict[str, _Thread] = {}  # the one that rested longest first
        self._opening = asyncio.Lock()

    @classmethod
    async def open(cls, settings: Settings, asking: Asking) -> "AgentOffer":
        """Open nothing yet."""
        return cls(settings, asking)

    def tools(self) -> list[Tool]:
        """See `Offer.tools`."""
        return [_tool(TASK, Task), _tool(REPLY, Reply)]

    async def call(self, call: Call, name: str, arguments: Mapping[str, JsonValue]) -> CallToolResult:
        """See `Offer.call`."""
        if name == TASK:
            task = _read(Task, arguments)
            async with self._opening:
                thread = await self._open(self._settings_for(task))
            return await self._run(thread, call, task.prompt)
        if name == REPLY:
            reply = _read(Reply, arguments)
            async with self._opening:
                thread = await self._thread(reply.threadId)
            return await self._run(thread, call, reply.prompt)
        raise unknown(name, {TASK: Task, REPLY: Reply})

    async def aclose(self) -> None:
        """See `Offer.aclose`."""
        await asyncio.gather(*(thread.session.aclose() for thread in self._threads.values()))

    def _settings_for(self, task: Task) -> Settings:
        """Return the settings of a new thread: never with more rights than the server's. Raises `UsageError`."""
        settings = self._settings
        if task.cwd is not None:
            cwd = place_in(settings, os.path.join(settings.cwd, task.cwd))
            settings = msgspec.structs.replace(settings, cwd=cwd)
        if task.model is not None:
            settings = msgspec.structs.replace(
                settings, model=msgspec.structs.replace(settings.model, model=task.model)
            )
        return msgspec.structs.replace(
            settings,
            sandbox_policy=narrower_sandbox(settings.sandbox_policy, task.sandbox),
            approval_policy=narrower_approval(settings.approval_policy, task.approval_policy),
        )

    async def _thread(self, thread_id: str) -> _Thread:
        """Return a thread that is open, or one of an earlier time, with the server's rights. Raises `UsageError`."""
        known = self._threads.get(thread_id)
        if known is not None:
            return known
        if not _ID.fullmatch(thread_id):
            raise UsageError(f"there is no thread {thread_id!r}: `threadId` is that of an earlier result")
        settings, stored = resume_settings(self._settings, thread_id, Given(sandbox=True, approval=True))
        cwd = place_in(self._settings, settings.cwd)
        return await self._open(msgspec.structs.replace(settings, cwd=cwd), stored)

    async def _open(self, settings: Settings, stored: StoredSession | None = None) -> _Thread:
        await self._make_room()
        desk = Desk(self._asking.notes, self._asking.shelf, elicits=self._asking.elicits, in_turns=True)
        session = await open_session(settings, desk, stored=stored)
        thread = self._threads[session.id] = _Thread(session, desk)
        return thread

    async def _make_room(self) -> None:
        resting = [name for name, thread in self._threads.items() if not thread.session.is_running]
        if len(self._threads) >= MAX_THREADS and not resting:
            raise UsageError(f"{MAX_THREADS} tasks run already; wait for one of them")
        for name in resting[: len(self._threads) - MAX_THREADS + 1]:
            await self._threads.pop(name).session.aclose()

    async def _run(self, thread: _Thread, call: Call, prompt: str) -> CallToolResult:
        """Run a turn. What goes wrong is told with the thread, which can go on."""
        session = thread.session
        for other in [other for other in thread.desk.calls.values() if other.is_ending]:
            await other.over()
        self._threads[session.id] = self._threads.pop(session.id)
        thread.desk.calls[call.id] = call
        try:
            return _result(session.id, (await session.run(prompt)).text)
        except FerruleError as error:
            return _result(session.id, str(error), failed=True)
        finally:
            del thread.desk.calls[call.id]


def _tool(name: str, action: type[Action]) -> Tool:
    schema = dict(schema_of_model(action).mapping)
    return Tool(name=name, description=action.__doc__, input_schema=schema, output_schema=_OUTPUT, annotations=_HINTS)


def _read(action: type[Any], arguments: Mapping[str, JsonValue]) -> Any:
    given = validate_value(dict(arguments), ModelValidator(action, schema_of_model(action)))
    if not given.prompt.strip():
        raise UsageError("the prompt is empty: `prompt` says what to do")
    return given


def _result(thread_id: str, text: str, *, failed: bool = False) -> CallToolResult:
    said = encodable(text)
    return CallToolResult(
        content=[TextContent(text=said if said.strip() else NO_OUTPUT)],
        structured_content={"threadId": thread_id, "content": said},
        is_error=failed,
    )
