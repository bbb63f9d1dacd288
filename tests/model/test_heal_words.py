"""What is left out after a refusal, in the words of many servers."""

import pytest

from ferrule.model.heal import heal
from ferrule.model.http import Endpoint, Server
from ferrule.model.refusals import as_model_error, read_error
from ferrule.protocol.content import InputImage, InputText, ReasoningText
from ferrule.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Message,
    Reasoning,
    ResponseItem,
    WebSearchCall,
    make_item,
)
from ferrule.protocol.settings import ModelSettings
from ferrule.protocol.specs import Wire
from tests.model.support import request, user, wire_model

IMAGE = InputImage(image_url="data:image/png;base64,iVBORw0KGgo=")
HISTORY: tuple[ResponseItem, ...] = (
    make_item(Message(role="developer", content="be brief")),
    user("hi"),
    make_item(Reasoning(id="rs_1", summary=(), encrypted_content="gAAA")),
    make_item(Reasoning(id="rs_2", summary=(), content=(ReasoningText("Hm"),), chat_field="reasoning_content")),
    make_item(FunctionCall(call_id="c1", name="shell", arguments="{}", id="fc_1")),
    make_item(FunctionCallOutput(call_id="c1", output=(InputText("x"), IMAGE))),
    make_item(WebSearchCall(id="ws_1", status="completed")),
    user("more"),
)
SETTINGS = ModelSettings(
    reasoning_effort="medium", verbosity="low", temperature=0.2, max_output_tokens=99, reasoning_summary="auto"
)


def left_out(wire: Wire, words: str, status: int = 400) -> str:
    """What goes out after this refusal; nothing if the turn ends."""
    server = Server(Endpoint(name="T", base_url="http://t", params={}, headers=dict, idle_timeout_ms=1))
    model = wire_model(wire, server, "openai")
    asked = request(*HISTORY, settings=SETTINGS, session_id="s")
    body = model.body(asked)
    error = read_error({"error": {"message": words}})
    assert error is not None
    healed = heal(as_model_error(error, "T", status=status), asked, model._asked(asked).recipient, body)
    return "" if healed is None else healed.what


@pytest.mark.parametrize("wire", ["chat", "responses"])
@pytest.mark.parametrize(
    "words",
    [
        "The model does not support multimodal inputs.",
        "this model is not a multimodal model",
        "vision is not enabled for this model",
        "Image inputs are disabled for this model",
        "model x does not have vision capabilities",
        "image_url is not allowed for this model",
        "At most 0 image(s) may be provided in one request.",
        "unsupported content type: image_url",
    ],
)
def test_m025_other_words_about_images(wire: Wire, words: str) -> None:
    assert left_out(wire, words) == "its image input"


@pytest.mark.parametrize(
    "words",
    [
        "Failed to deserialize the JSON body: messages[2].content: invalid type: sequence, expected a string",
        "messages[4].content must be a string",
        "Value error, tool message content must be a string",
        "This endpoint only accepts text",
    ],
)
def test_m025_a_server_that_knows_no_parts_of_content(words: str) -> None:
    assert left_out("chat", words) == "content beside text"


@pytest.mark.parametrize("words", ["At most 5 images may be sent", "image too large: at most 20 MB", "no such file"])
def test_m025_words_about_one_image_leave_the_others(words: str) -> None:
    assert left_out("chat", words) == ""


@pytest.mark.parametrize(
    "words",
    [
        "thinking_signature verification failed",
        "encrypted_content is invalid or expired",
        "Failed to decrypt reasoning",
    ],
)
def test_m016_other_words_about_reasoning(words: str) -> None:
    assert left_out("responses", words).startswith("the reasoning of earlier answers")


def test_f03_reasoning_that_is_named_without_quotes() -> None:
    assert left_out("responses", "Error: reasoning item rs_1 was not found") == "reasoning without what followed it"


@pytest.mark.parametrize(
    ("wire", "words", "what"),
    [
        ("chat", "Model does not support parallel tool calls", "`parallel_tool_calls`"),
        ("chat", "Parallel tool calls are not supported for this model", "`parallel_tool_calls`"),
        ("chat", "`reasoning_effort` must be one of `none` or `default`", "`reasoning_effort`"),
        ("chat", "tool_choice must be auto", "`tool_choice`"),
        ("chat", "verbosity: unknown field", "`verbosity`"),
        ("responses", "verbosity: unknown field", "`text.verbosity`"),
        ("responses", "tools.0.function.strict: Extra inputs are not permitted", "`strict` of tools"),
        ("responses", "input[5]: unsupported item", "items and tools of the kind 'web_search_call'"),
        ("responses", "Unsupported tool type: custom", "freeform tools"),
        ("responses", "tools[5].type must be 'function'", "freeform tools"),
        ("chat", "messages[3]: missing field `content`", "`content: null`"),
        ("chat", "temperature must be between 0 and 1", ""),
        ("chat", "max_tokens must be at most 8192", ""),
        ("chat", "messages: must be an array", ""),
        ("chat", "model: not found", ""),
    ],
)
def test_other_words_about_parameters(wire: Wire, words: str, what: str) -> None:
    assert left_out(wire, words) == what
