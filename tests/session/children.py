"""A parent and its children over a real server, and what they say to each other."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ferrule import tool
from ferrule.dispatch.front_end import Callbacks
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
)
from ferrule.protocol.settings import AgentRole, Features, ModelSettings, ProviderSettings, Settings
from ferrule.protocol.specs import Wire
from ferrule.session.opening import open_session
from ferrule.session.resuming import Given, resume_settings
from ferrule.session.rollout import find_rollout, read_rollout
from ferrule.session.session import Session
from ferrule.testing import ScriptedModel, function_call
from ferrule.tools.answering import Approver, Questioned

WIRES: list[Wire] = ["responses", "chat", "messages"]
CHILD = "CHILD TASK"
PIXEL = "data:image/png;base64,iVBORw0KGgo="


class Stage:
    """A parent whose script is the server's main one; children say `CHILD TASK` in their first message."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Any] = []

    async def open(
        self,
        url: str,
        wire: Wire = "responses",
        *,
        roles: dict[str, AgentRole] | None = None,
        tools: Sequence[Any] | None = (),
        limit: int = 6,
        depth: int = 1,
        approve: Approver | None = None,
        answer: Questioned | None = None,
        ephemeral: bool = False,
        resume: str | None = None,
        **fields: Any,
    ) -> Session:
        settings = Settings(
            cwd=str(self.folder),
            home=str(self.folder / "home"),
            model=ModelSettings(model="m-1"),
            provider=ProviderSettings(name="server", base_url=url, wire_api=wire, request_max_retries=0,
                                      stream_max_retries=0),
            sandbox_policy=fields.pop("sandbox", DangerFullAccess()),
            approval_policy=AskForApproval.NEVER if approve is None else AskForApproval.UNTRUSTED,
            features=Features(multi_agent=True),
            agents=roles or {},
            agent_max_threads=limit,
            agent_max_depth=depth,
            ephemeral=ephemeral,
            **fields,
        )  # fmt: skip
        stored = None
        if resume is not None:
            settings, stored = resume_settings(settings, resume, Given(tools=True, provider=True))
        front_end = Callbacks(self.events.append, approve, answer)
        return await open_session(settings, front_end, tools=tools, stored=stored)

    def rollout(self, session_id: str) -> Any:
        return read_rollout(find_rollout(str(self.folder / "home"), session_id))


def spawn(text: str = CHILD, **fields: Any) -> dict[str, Any]:
    return function_call("spawn_agent", {"message": text, **fields})


def outputs(server: ScriptedModel) -> list[Any]:
    """What tools have answered in the last request, decoded where it is JSON."""
    texts = [output.text for output in server.last_request.outputs]
    return [json.loads(text) if text.startswith("{") else text for text in texts]


def agent_id(request: Any, at: int = 0) -> str:
    """The id in the answer of the `at`-th spawn that the model has read."""
    found = [json.loads(output.text) for output in request.outputs if '"agent_id"' in output.text]
    return str([one for one in found if "agent_id" in one][at]["agent_id"])


def waiting(name: str = "wait", key: str = "ids", at: int = 0) -> Any:
    return lambda request: [function_call(name, {key: [agent_id(request, at)]})]


def to(name: str, **fields: Any) -> Any:
    return lambda request: [function_call(name, {"id": agent_id(request), **fields})]


class Gate:
    """A tool that waits until it is opened."""

    def __init__(self) -> None:
        self.began, self.opened = asyncio.Event(), asyncio.Event()

    @property
    def tool(self) -> Any:
        @tool(read_only=True)
        async def hold() -> str:
            self.began.set()
            await self.opened.wait()
            return "held"

        return hold


def held_children(gate: Gate, count: int = 1) -> ScriptedModel:
    server = ScriptedModel([])
    server.play(*[[function_call("hold", {})]] * count, when=CHILD)
    return server
