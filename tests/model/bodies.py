# ruff: noqa: E501 - items read better in one line
"""Requests to servers of the Responses API and of Chat Completions, as they are sent."""

import json
from typing import Any

import msgspec
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter, ValidationError

from ferrule.model.http import Endpoint, Server
from ferrule.model.stream import ModelRequest
from ferrule.model.wire import WireModel
from ferrule.protocol.content import OutputText
from ferrule.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Message,
    ResponseItem,
    make_item,
    read_item,
)
from ferrule.protocol.specs import Wire
from tests.model.support import user, wire_model

PIXEL = "data:image/png;base64,iVBORw0KGgo="
RESPONSES_TYPE = TypeAdapter(ResponseCreateParamsStreaming)
CHAT_TYPE = TypeAdapter(CompletionCreateParamsStreaming)


def offline(wire: Wire, accepts: str | None = None, **changes: object) -> WireModel:
    server = Server(Endpoint(name="Test", base_url="http://test", params={}, headers=dict, idle_timeout_ms=1000))
    model = wire_model(wire, server, accepts)
    if changes:
        model = wire_model(wire, server, msgspec.structs.replace(model.accepts, **changes))
    return model


def body(wire: Wire, asked: ModelRequest, accepts: str | None = None, **changes: object) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(offline(wire, accepts, **changes).body(asked))
    kind = RESPONSES_TYPE if wire == "responses" else CHAT_TYPE
    try:
        kind.validate_python(sent)
    except ValidationError as error:
        places = {".".join(str(step)[:40] for step in problem["loc"][:4]) for problem in error.errors()}
        raise AssertionError(f"openai does not take this body: {sorted(places)[:8]}") from None
    return sent


def said(text: str) -> ResponseItem:
    return make_item(
        Message(id="msg_1", status="completed", role="assistant", content=(OutputText(text, annotations=()),))
    )


def called(call_id: str, arguments: str = '{"cmd":"ls"}', **fields: Any) -> ResponseItem:
    return make_item(FunctionCall(call_id=call_id, name="exec_command", arguments=arguments, **fields))


def answered(call_id: str, output: Any = "ok") -> ResponseItem:
    return make_item(FunctionCallOutput(call_id=call_id, output=output))


THOUGHT = read_item('{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}')
SHOWN = read_item('{"type":"reasoning","id":"rs_2","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]}')
PATCH = make_item(CustomToolCall(call_id="p1", name="apply_patch", input='*** "x"\n'))
HISTORY = (
    make_item(Message(role="developer", content="Rules.")), user("Fix it"), THOUGHT, said("Looking."), called("c1"), PATCH,
    answered("c1"), make_item(CustomToolCallOutput(call_id="p1", output="Done!")), said("All done."), user("Thanks"),
)  # fmt: skip
