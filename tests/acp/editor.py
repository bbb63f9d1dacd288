"""An editor of the tests: the client side of the SDK, with a user who answers as told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from acp.client import ClientSideConnection
from acp.exceptions import RequestError
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileSystemCapabilities,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallUpdate,
    WriteTextFileResponse,
)

from acp import spawn_agent_process
from ferrule.testing import ScriptedModel
from tests.cli.command import COMMAND, Place

WITH_FILES = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=True, write_text_file=True))
WITH_FORMS = ClientCapabilities(elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()))
WITH_TERMINALS = ClientCapabilities.model_validate({"_meta": {"terminal_output": True}})
DEADLINE = 30.0


class Editor:
    """The client's methods. What each test wants of them is set by `reset`."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.asked: list[tuple[ToolCallUpdate, list[PermissionOption]]] = []
        self.forms: list[tuple[str, Any]] = []
        self.choose: Callable[[list[PermissionOption]], str | None] = lambda options: options[0].option_id
        self.hesitates = False
        """The user never answers."""
        self.form_answer: dict[str, Any] = {}
        self.buffers: dict[str, str] = {}
        self.written: dict[str, str] = {}
        self.write_fault = ""
        self._heard = asyncio.Event()

    def on_connect(self, conn: object) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        told = update.model_dump(by_alias=True, exclude_none=True)
        self.updates.append({"session": session_id, **told})
        self._heard.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **more: Any
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, options))
        self._heard.set()
        if self.hesitates:
            await asyncio.Event().wait()
        chosen = self.choose(options)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: Any, **more: Any) -> AcceptElicitationResponse:
        self.forms.append((message, mode))
        return AcceptElicitationResponse(action="accept", content=self.form_answer)

    async def read_text_file(self, session_id: str, path: str, **more: Any) -> ReadTextFileResponse:
        if path not in self.buffers:
            raise RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **more: Any) -> WriteTextFileResponse:
        if self.write_fault:
            raise RequestError(-32603, self.write_fault)
        self.written[path] = self.buffers[path] = content
        return WriteTextFileResponse()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something that it hears makes this true."""
        async with asyncio.timeout(DEADLINE):
            while not condition():
                self._heard.clear()
                await self._heard.wait()

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The updates of a kind."""
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    @property
    def text(self) -> str:
        """What the agent has said."""
        return "".join(update["content"]["text"] for update in self.of("agent_message_chunk"))

    def calls(self) -> dict[str, dict[str, Any]]:
        """The calls as an editor shows them: each update replaces what it has."""
        shown: dict[str, dict[str, Any]] = {}
        for update in self.updates:
            if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
                assert update["sessionUpdate"] == "tool_call" or update["toolCallId"] in shown, update
                shown.setdefault(update["toolCallId"], {}).update(update)
        return shown


class Door:
    """A running `ferrule acp`, its editor and its model."""

    def __init__(self, editor: Editor, conn: ClientSideConnection, place: Place, model: ScriptedModel) -> None:
        self.editor, self.conn, self.place, self.model = editor, conn, place, model

    async def greet(self, able: ClientCapabilities | None = None) -> None:
        """Begin anew, as an editor with these abilities."""
        self.editor.reset()
        await self.conn.initialize(1, client_capabilities=able or ClientCapabilities())

    async def new(self, able: ClientCapabilities | None = None, **more: Any) -> NewSessionResponse:
        await self.greet(able)
        return await self.conn.new_session(cwd=str(self.place.cwd), **{"mcp_servers": [], **more})

    async def say(self, session: Any, *blocks: Any) -> PromptResponse:
        """Say texts, or blocks."""
        said = [TextContentBlock(type="text", text=block) if isinstance(block, str) else block for block in blocks]
        async with asyncio.timeout(DEADLINE):
            return await self.conn.prompt(session_id=getattr(session, "session_id", session), prompt=said)


@asynccontextmanager
async def opened(place: Place, model: ScriptedModel, *flags: str) -> AsyncIterator[Door]:
    """The command, as an editor starts it."""
    editor = Editor()
    command = (*COMMAND, "acp", "-m", "scripted-model", "--base-url", model.base_url, *flags)
    async with spawn_agent_process(
        editor,  # type: ignore[arg-type]  # no terminals
        *command,
        env=place.env(),
        cwd=place.cwd,
        transport_kwargs={"stderr": None, "limit": 64 << 20},
        use_unstable_protocol=True,
    ) as (conn, process):
        yield Door(editor, conn, place, model)
    assert process.returncode == 0
