"""Conversations with a model server over either wire, and the session resumed: what is sent is what is looked at."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ferrule import tool
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.events import Event, WarningEvent
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess
from ferrule.protocol.settings import ModelSettings, ProviderSettings, Settings
from ferrule.protocol.specs import Wire
from ferrule.session.opening import open_session
from ferrule.session.result import TurnResult
from ferrule.session.resuming import Given, resume_settings
from ferrule.session.rollout import StoredSession
from ferrule.session.sources import ToolLike
from ferrule.testing import ScriptedModel
from ferrule.testing.steps import Raw, raw
from ferrule.tools.events import ToolEvent

PIXEL = "data:image/png;base64,iVBORw0KGgo="

ALL_GIVEN = Given(cwd=True, sandbox=True, approval=True, provider=True, tools=True)


@tool(read_only=True)
async def look(n: int = 0) -> str:
    return f"seen {n}"


@tool(read_only=True)
async def picture() -> tuple[InputText | InputImage, ...]:
    return (InputText("a picture"), InputImage(image_url=PIXEL))


class Place:
    """A home with sessions in it. `warnings` are those of all turns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warnings: list[str] = []

    can_answer = False

    def on_event(self, event: Event | ToolEvent) -> None:
        if isinstance(event, WarningEvent):
            self.warnings.append(event.message)

    async def talk(
        self,
        server: ScriptedModel,
        wire: Wire,
        *prompts: str,
        profile: str | None = None,
        model: str = "m-1",
        name: str = "server",
        resume: bool = False,
        tools: Sequence[ToolLike] | None = (),
    ) -> TurnResult:
        """Say each of the prompts in one session; `resume` goes on with the last one. `tools` come beside those of
        these tests; None: the model's own. Returns the last result."""
        provider = ProviderSettings(
            name=name, base_url=server.base_url, wire_api=wire, profile=profile, request_max_retries=0,
            stream_max_retries=1, env_key=None, http_headers={"Authorization": "Bearer x", "api-key": "x"},
        )  # fmt: skip
        settings = Settings(
            cwd=str(self.folder), home=str(self.folder / "home"), model=ModelSettings(model=model), provider=provider,
            sandbox_policy=DangerFullAccess(), approval_policy=AskForApproval.NEVER,
        )  # fmt: skip
        stored: StoredSession | None = None
        if resume:
            settings, stored = resume_settings(settings, None, ALL_GIVEN)
        offered = None if tools is None else [look, picture, *tools]
        async with await open_session(settings, self, tools=offered, stored=stored) as session:
            results = [await session.run(prompt) for prompt in prompts]
        return results[-1]


def chunks(*deltas: dict[str, Any], finish: str = "stop") -> Raw:
    """A stream of Chat Completions made of deltas."""
    payloads = [{"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    payloads.append({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return raw("".join(f"data: {json.dumps(payload)}\n\n" for payload in payloads).encode() + b"data: [DONE]\n\n")


def call(
    call_id: str = "call_1", index: int = 0, name: str = "look", arguments: str = "{}", **fields: Any
) -> dict[str, Any]:
    """A delta with one whole call."""
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function, **fields}]}


def items(*said: dict[str, Any], end: str = "response.completed") -> Raw:
    """A stream of the Responses API made of whole items."""
    payloads: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "r1"}}]
    for index, item in enumerate(said):
        payloads.append({"type": "response.output_item.done", "output_index": index, "item": item})
    if end:
        payloads.append(
            {"type": end, "response": {"id": "r1", "output": [], "incomplete_details": {"reason": "max_output_tokens"}}}
        )
    return raw("".join(f"data: {json.dumps(payload)}\n\n" for payload in payloads).encode())


def said(text: str, **fields: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part], **fields}


def function_call(call_id: str = "call_1", name: str = "look", arguments: str = "{}", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": name, "arguments": arguments, **fields}


def thought(item_id: str = "rs_1", secret: str = "gAAA", **fields: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": item_id, "summary": [], "encrypted_content": secret, **fields}


def sent(server: ScriptedModel, number: int = -1) -> list[dict[str, Any]]:
    """The items or messages of a request."""
    return [dict(item) for item in server.requests[number].items]


def assistants(server: ScriptedModel, number: int = -1) -> list[dict[str, Any]]:
    return [message for message in sent(server, number) if message.get("role") == "assistant"]


def kinds(found: Sequence[dict[str, Any]]) -> list[str]:
    return [str(item.get("type", item.get("role"))) for item in found]
