"""A refusal that would come again: what it names is left out for the session, and the session file keeps it."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from ferrule import tool
from ferrule.model.stream import ModelError
from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel
from ferrule.testing.request import Request
from ferrule.testing.steps import Raw, http_error, raw
from tests.session.conversations import (
    PIXEL,
    Place,
    assistants,
    call,
    chunks,
    function_call,
    items,
    said,
    sent,
    thought,
)

Answer = Callable[[Request], Raw]
WORDS = {"chat": chunks({"content": "Ok."}), "responses": items(said("Ok."))}


def stored(place: Place) -> str:
    return next(place.folder.glob("home/sessions/*/*/*/*.jsonl")).read_text()


def refusing(wire: Wire, held: Callable[[str, dict[str, Any]], bool], refusal: Raw, *first: Raw) -> list[Any]:
    """Answers: `first`, then words, but the refusal for each request that holds something."""

    def answer(request: Request) -> Raw:
        return refusal if held(request.raw.decode(), dict(request.body)) else WORDS[wire]

    return [*first, *[answer] * 8]


SECRET = http_error(
    400,
    "The encrypted content gAAA... could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
    code="invalid_encrypted_content",
)


async def test_m016_reasoning_that_the_server_cannot_read_is_left_out(place: Place) -> None:
    with ScriptedModel([items(thought(), function_call()), items(thought("rs_2", "gBBB"), said("Ok."))]) as server:
        await place.talk(server, "responses", "go", model="gpt-5.5")
    kept = stored(place)
    for refused in ([400], []):
        place.warnings.clear()
        script = refusing("responses", lambda text, _: "gAAA" in text or "gBBB" in text, SECRET)
        with ScriptedModel(script) as server:
            await place.talk(server, "responses", "more", "and more", model="gpt-5.5", resume=True)
            assert [request.status for request in server.requests] == [*refused, 200, 200]
            assert "function_call_output" in server.requests[-1].raw.decode()
        assert len([warning for warning in place.warnings if "cannot read" in warning]) == len(refused)
    assert stored(place).startswith(kept)


async def test_m016_a_signature_that_the_server_cannot_read_is_left_out(place: Place) -> None:
    signed = chunks(call(extra_content={"google": {"thought_signature": "SIGxyz"}}))
    refusal = http_error(400, "Invalid thought_signature: it is not valid for this model.")
    with ScriptedModel(refusing("chat", lambda text, _: "SIGxyz" in text, refusal, signed)) as server:
        await place.talk(server, "chat", "go", "more", profile="gemini", model="gemini-3-pro")
        await place.talk(server, "chat", "and more", profile="gemini", model="gemini-3-pro", resume=True)
        assert [request.status for request in server.requests] == [200, 400, 200, 200, 200]
    assert "SIGxyz" in stored(place) and len([text for text in place.warnings if "cannot read" in text]) == 1


async def test_m016_reasoning_that_comes_later_is_sent(place: Place) -> None:
    late = items(thought("rs_9", "gNEW"), said("Ok."))
    with ScriptedModel([items(thought(), said("Ok.")), SECRET, late, WORDS["responses"]]) as server:
        await place.talk(server, "responses", "go", "more", "and more", model="gpt-5.5")
        assert "gNEW" in json.dumps(sent(server)) and "gAAA" not in json.dumps(sent(server))


async def test_m016_as_an_event_of_the_stream(place: Place) -> None:
    error = {"type": "error", "code": "invalid_encrypted_content", "message": "could not be verified", "param": None}
    event = raw(f"data: {json.dumps(error)}\n\n".encode())
    with ScriptedModel([items(thought(), said("Ok.")), event, WORDS["responses"]]) as server:
        await place.talk(server, "responses", "go", "more", model="gpt-5.5")
        assert "gAAA" not in json.dumps(sent(server))


@pytest.mark.parametrize("wire", ["responses", "chat"])
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "No endpoints found that support image input"),
        (400, "This model does not support image inputs"),
        (400, "Invalid content type. image_url is only supported by certain models."),
        (422, "messages[2]: unknown variant `image_url`, expected `text`"),
        (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
        (400, "At most 0 image(s) may be provided in one prompt. The model is text-only and takes no image"),
    ],
)
async def test_m025_a_model_that_refuses_images_goes_on_without_them(
    place: Place, wire: Wire, status: int, words: str
) -> None:
    first = items(function_call(name="picture")) if wire == "responses" else chunks(call(name="picture"))
    script = refusing(wire, lambda text, _: PIXEL in text, http_error(status, words), first, first)
    with ScriptedModel(script[:1] + script[2:]) as server:
        await place.talk(server, wire, "go", "more", model="gpt-5.5")
        assert [request.status for request in server.requests] == [200, status, 200, 200]
        assert "left out because the server refused it" in json.dumps(sent(server))
        assert len([warning for warning in place.warnings if "image" in warning]) == 1
        await place.talk(server, wire, "more", model="gpt-5.5", resume=True)
        assert server.requests[-1].status == 200 and len(server.requests) == 5
    assert PIXEL in stored(place)


CHAT_FIELDS = [
    (400, "Unrecognized request argument supplied: stream_options", "stream_options"),
    (400, "Unsupported parameter: 'parallel_tool_calls'", "parallel_tool_calls"),
    (422, '[{"type":"extra_forbidden","loc":["body","parallel_tool_calls"],"msg":"Extra inputs are not permitted"}]',
     "parallel_tool_calls"),
    (400, "json: unknown field \"tool_choice\"", "tool_choice"),
    (400, "The parallel_tool_calls parameter does not support being set in thinking mode", "parallel_tool_calls"),
    (400, "parallel_tool_calls: Extra inputs are not permitted", "parallel_tool_calls"),
    (500, "TypeError: create() got an unexpected keyword argument 'parallel_tool_calls'", "parallel_tool_calls"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "words", "field"), CHAT_FIELDS)
async def test_a_parameter_that_the_server_does_not_know_is_left_out(
    place: Place, status: int, words: str, field: str
) -> None:
    script = refusing("chat", lambda _, body: field in body, http_error(status, words))
    with ScriptedModel(script) as server:
        await place.talk(server, "chat", "go", "more")
        assert [request.status for request in server.requests] == [status, 200, 200]
        assert len(place.warnings) == 1 and field in place.warnings[0]


@pytest.mark.parametrize("wire", ["responses", "chat"])
@pytest.mark.parametrize(
    "words",
    [
        "max_tokens is too large: 16384. This model supports at most 8192 completion tokens.",
        "'max_tokens' or 'max_completion_tokens' is too large: 16384. The maximum context length is 8192 tokens",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        "This model's maximum context length is 8192 tokens. However, you requested 17384 (16384 in the completion).",
        "Unsupported parameter: 'max_output_tokens' is not supported.",
        "ValueError: max_new_tokens must be <= 4096. Given: 16384",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 16384 `max_new_tokens`",
    ],
)
async def test_a_limit_that_the_user_did_not_set_is_left_out(place: Place, wire: Wire, words: str) -> None:
    field = "max_output_tokens" if wire == "responses" else "max_tokens"
    script = refusing(wire, lambda _, body: field in body, http_error(400, words))
    with ScriptedModel(script) as server:
        await place.talk(server, wire, "go", "more")
        assert [request.status for request in server.requests] == [400, 200, 200]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("property 'reasoning_content' is unsupported", "reasoning_content"),
        ("Unknown name \"extra_content\" at 'messages[2].tool_calls[0]': Cannot find field.", "extra_content"),
        ('[{"loc":["body","messages",2,"assistant","reasoning_content"],"msg":"Extra inputs are not permitted"}]',
         "reasoning_content"),
    ],
)  # fmt: skip
async def test_a_field_of_messages_that_the_server_does_not_know_is_left_out(
    place: Place, words: str, field: str
) -> None:
    first = chunks({"reasoning_content": "Hm."}, call(extra_content={"google": {"thought_signature": "S"}}))
    script = refusing("chat", lambda text, _: f'"{field}"' in text, http_error(400, words), first)
    with ScriptedModel(script) as server:
        await place.talk(server, "chat", "go", "more")
        assert [request.status for request in server.requests] == [200, 400, 200, 200]
        assert "tool_calls" in assistants(server)[0]


@pytest.mark.parametrize(
    ("param", "words", "path"),
    [
        ("include[0]", "Invalid value: 'reasoning.encrypted_content'. Encrypted content is not supported", "include"),
        ("text.verbosity", "Unsupported value: 'low' is not supported with this model. Supported values are: 'medium'.",
         "text"),
        ("prompt_cache_key", "Unknown parameter: 'prompt_cache_key'.", "prompt_cache_key"),
        ("reasoning.effort", "Unsupported value: 'medium' is not supported", "reasoning"),
    ],
)  # fmt: skip
async def test_a_parameter_inside_another_is_left_out(place: Place, param: str, words: str, path: str | None) -> None:
    if path is None:
        pytest.skip("no summary is asked for by this profile")
    script = refusing("responses", lambda _, body: path in body, http_error(400, words, param=param))
    with ScriptedModel(script) as server:
        await place.talk(server, "responses", "go", "more", model="gpt-5.5")
        assert [request.status for request in server.requests] == [400, 200, 200]


@pytest.mark.parametrize(
    ("words", "param"),
    [
        ("Invalid value: 'web_search_call'. Supported values are: 'message', 'function_call'.", "input[3].type"),
        ("unknown item type 'web_search_call'", ""),
    ],
)
async def test_an_item_of_a_kind_that_the_server_does_not_know_is_left_out(
    place: Place, words: str, param: str
) -> None:
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    refusal = http_error(400, words, param=param)
    script = refusing("responses", lambda text, _: "web_search_call" in text, refusal, items(searched, said("Ok.")))
    with ScriptedModel(script) as server:
        await place.talk(server, "responses", "go", "more", model="gpt-5.5")
        assert [request.status for request in server.requests] == [200, 400, 200]
    assert "web_search_call" in stored(place)


async def test_neither_a_call_nor_its_output_goes_alone(place: Place) -> None:
    called = {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "c9",
        "status": "completed",
        "pending_safety_checks": [],
    }
    shown = {"type": "computer_call_output", "call_id": "c9", "output": {"type": "computer_screenshot"}}
    words = "Invalid value: 'computer_call_output'. Supported values are: 'message'."
    first = items({**called, "action": {"type": "screenshot"}}, shown, said("Ok."))
    script = refusing("responses", lambda text, _: "computer_call_output" in text, http_error(400, words), first)
    with ScriptedModel(script) as server:
        await place.talk(server, "responses", "go", "more", model="gpt-5.5")
        assert "computer_call" not in server.requests[-1].raw.decode()


async def test_what_a_request_cannot_do_without_ends_the_turn(place: Place) -> None:
    for words in ("Unknown parameter: 'messages'", "registry/x does not support tools", "Invalid model 'm-1'"):
        with ScriptedModel([http_error(400, words)]) as server:
            with pytest.raises(ModelError):
                await place.talk(server, "chat", "go")
            assert len(server.requests) == 1


async def test_a_server_that_refuses_the_same_again_is_not_asked_for_ever(place: Place) -> None:
    with ScriptedModel([http_error(400, "Unsupported parameter: 'parallel_tool_calls'")] * 3) as server:
        with pytest.raises(ModelError):
            await place.talk(server, "chat", "go")
        assert len(server.requests) == 2


async def test_m036_a_server_that_takes_plain_schemas_only_gets_them(place: Place) -> None:
    words = "tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'properties.n'>"
    script = refusing("chat", lambda text, _: '"type":["' in text, http_error(400, words))

    @tool(read_only=True)
    async def count(n: Any) -> str:
        return str(n)

    with ScriptedModel(script) as server:
        await place.talk(server, "chat", "go", "more", tools=(count,))
        assert [request.status for request in server.requests] == [400, 200, 200]


@pytest.mark.parametrize(
    ("words", "param"),
    [
        ("Invalid schema for function 'picture': In context=(), array schema missing items.", "tools[1].parameters"),
        ("Invalid schema for function 'picture': schema must have a 'type' key.", ""),
    ],
)
@pytest.mark.parametrize("wire", ["responses", "chat"])
async def test_a_tool_whose_schema_is_refused_is_left_out(place: Place, wire: Wire, words: str, param: str) -> None:
    script = refusing(wire, lambda text, _: '"picture"' in text, http_error(400, words, param=param))
    with ScriptedModel(script) as server:
        await place.talk(server, wire, "go", "more")
        assert [request.status for request in server.requests] == [400, 400, 200, 200]
        assert server.requests[-1].tool_names == ["look"]
        assert any("'picture', whose schema" in warning for warning in place.warnings)


async def test_what_was_left_out_in_vain_is_sent_again(place: Place) -> None:
    refused = http_error(400, "Unsupported parameter: 'parallel_tool_calls'")
    with ScriptedModel([refused, http_error(400, "The model has gone."), WORDS["chat"]]) as server:
        with pytest.raises(ModelError, match="gone"):
            await place.talk(server, "chat", "go")
        await place.talk(server, "chat", "again", resume=True)
        assert "parallel_tool_calls" in server.requests[-1].body


@pytest.mark.parametrize("wire", ["responses", "chat"])
async def test_what_was_refused_is_not_asked_for_again_by_a_resumed_session(place: Place, wire: Wire) -> None:
    refusals = RESPONSES_REFUSALS[4:] if wire == "responses" else CHAT_REFUSALS

    def answer(request: Request) -> Raw:
        for held, words in refusals:
            if held(request.raw.decode(), dict(request.body)):
                return http_error(400, words)
        return WORDS[wire]

    with ScriptedModel(answer) as server:
        await place.talk(server, wire, "go", model="gpt-5.5")
        before = len(server.requests)
        assert before > 2
        for prompt in ("more", "and more"):
            await place.talk(server, wire, prompt, model="gpt-5.5", resume=True)
        assert [request.status for request in server.requests[before:]] == [200, 200]
        await place.talk(server, wire, "and now?", model="gpt-5.5", name="another", resume=True)
        assert server.requests[before + 2].status == 400


async def test_a_lesson_that_cannot_be_read_is_passed_over(place: Place) -> None:
    refused = http_error(400, "Unsupported parameter: 'parallel_tool_calls'")
    with ScriptedModel([refused, WORDS["chat"], refused, WORDS["chat"], WORDS["chat"]]) as server:
        await place.talk(server, "chat", "go")
        path = next(place.folder.glob("home/sessions/*/*/*/*.jsonl"))
        whole = path.read_text()
        for omitted in ('{"fields":5}', '{"fields":["parallel_tool_calls"],"later":{}}'):
            path.write_text(re.sub(r'"omitted":\{[^}]*\}', f'"omitted":{omitted},"profile":{{"later":1}}', whole))
            await place.talk(server, "chat", "more", resume=True)
        assert [request.status for request in server.requests] == [400, 200, 400, 200, 200]
    assert len([warning for warning in place.warnings if "1 line could not be read" in warning]) == 1


@pytest.mark.parametrize("wire", ["responses", "chat"])
async def test_one_image_that_was_refused_stays_out_after_resume(place: Place, wire: Wire) -> None:
    first = items(function_call(name="picture")) if wire == "responses" else chunks(call(name="picture"))
    refusal = http_error(400, "The image is too large", code="image_too_large")
    script = refusing(wire, lambda text, _: PIXEL in text, refusal, first)
    with ScriptedModel(script) as server:
        await place.talk(server, wire, "go", model="gpt-5.5")
        await place.talk(server, wire, "more", model="gpt-5.5", resume=True)
        assert [request.status for request in server.requests] == [200, 400, 200, 200]
        await place.talk(server, wire, "more", model="gpt-5.5", name="another", resume=True)
        assert [request.status for request in server.requests[4:]] == [400, 200]
    assert PIXEL in stored(place)


async def test_a_quoted_request_names_nothing(place: Place) -> None:
    quoted = json.dumps({"tool_choice": "auto", "parallel_tool_calls": True, "stream_options": {}})
    words = '[{"type":"value_error","loc":["body","messages",0,"role"],"msg":"invalid role","input":' + quoted + "}]"
    with ScriptedModel([http_error(422, words)]) as server:
        with pytest.raises(ModelError):
            await place.talk(server, "chat", "go")
        assert len(server.requests) == 1


async def test_a_server_that_wants_reasoning_gets_it_with_every_call(place: Place) -> None:
    words = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"

    def held(_: str, body: dict[str, Any]) -> bool:
        return any(not message.get("reasoning_content") for message in body["messages"] if message.get("tool_calls"))

    with ScriptedModel(refusing("chat", held, http_error(400, words), chunks(call()))) as server:
        await place.talk(server, "chat", "go", "more")
        assert [request.status for request in server.requests] == [200, 400, 200, 200]


async def test_content_that_may_not_be_null(place: Place) -> None:
    words = "[{'loc': ('body', 'messages', 1, 'content'), 'msg': 'none is not an allowed value'}]"
    script = refusing("chat", lambda text, _: '"content":null' in text, http_error(422, words), chunks(call()))
    with ScriptedModel(script) as server:
        await place.talk(server, "chat", "go", "more")
        assert [request.status for request in server.requests] == [200, 422, 200, 200]


async def test_an_unsigned_call_is_sent_with_the_mark_that_gemini_takes(place: Place) -> None:
    words = "Function call is missing a thought_signature in functionCall parts."

    def held(_: str, body: dict[str, Any]) -> bool:
        calls = [call for message in body["messages"] for call in message.get("tool_calls", [])]
        return any("extra_content" not in call for call in calls)

    with ScriptedModel(refusing("chat", held, http_error(400, words), chunks(call()))) as server:
        await place.talk(server, "chat", "go", profile="gemini")
        assert [request.status for request in server.requests] == [200, 400, 200]


@pytest.mark.parametrize(
    "words",
    [
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
    ],
)
async def test_f03_reasoning_that_the_server_names_is_left_out(place: Place, words: str) -> None:
    first = items(thought(), function_call())
    script = refusing("responses", lambda text, _: "gAAA" in text, http_error(400, words), first)
    with ScriptedModel(script) as server:
        await place.talk(server, "responses", "go", model="gpt-5.5")
        assert [request.status for request in server.requests] == [200, 400, 200]


async def test_f03_items_whose_reasoning_is_asked_for_go_without_their_ids(place: Place) -> None:
    words = "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_7'."
    script = refusing("responses", lambda text, _: '"fc_1"' in text, http_error(400, words), items(function_call()))
    with ScriptedModel(script) as server:
        await place.talk(server, "responses", "go", model="gpt-5.5")
        assert [request.status for request in server.requests] == [200, 400, 200]
        assert [item["call_id"] for item in sent(server) if "call_id" in item] == ["call_1", "call_1"]


Held = Callable[[str, dict[str, Any]], bool]


def has(*texts: str) -> Held:
    return lambda text, _: any(part in text for part in texts)


def unknown(field: str) -> tuple[Held, str]:
    return lambda _, body: field in body, f"Unsupported parameter: '{field}'"


CHAT_REFUSALS: list[tuple[Held, str]] = [
    unknown("stream_options"),
    (has(PIXEL), "image_url is not supported by this model"),
    unknown("parallel_tool_calls"),
    (has('"reasoning_content":"Hm'), "property 'reasoning_content' is unsupported"),
    (has('"extra_content"'), "Unknown name 'extra_content' at 'messages[4].tool_calls[0]': Cannot find field."),
    unknown("tool_choice"),
    (has('"content":null'), "content: none is not an allowed value"),
]
RESPONSES_REFUSALS: list[tuple[Held, str]] = [
    (has("gAAA"), "invalid_encrypted_content"),
    unknown("include"),
    (has(PIXEL), "No endpoints found that support image input"),
    (has('"type":"custom"'), "Invalid value: 'custom'. Supported values are: 'function'."),
    unknown("prompt_cache_key"),
    (has('"phase"'), "Unknown parameter: 'input[5].phase'."),
    (has('"verbosity"'), "Unknown parameter: 'text.verbosity'."),
    (has("web_search_call"), "Invalid value: 'web_search_call'. Supported values are: 'message'."),
    unknown("reasoning"),
    (has('"role":"developer"'), "'developer' is not one of ['system', 'user', 'assistant'] - 'input[0].role'"),
    unknown("parallel_tool_calls"),
]


@pytest.mark.parametrize("wire", ["responses", "chat"])
async def test_soak_a_server_that_refuses_something_new_every_few_turns(place: Place, wire: Wire) -> None:
    refusals = RESPONSES_REFUSALS if wire == "responses" else CHAT_REFUSALS
    turns = 3 * len(refusals) + 3
    chat = [
        chunks({"reasoning_content": "Hm."}, call(extra_content={"google": {"thought_signature": "S"}})),
        chunks(call(name="picture")),
    ]
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    responses = [
        items(thought(), searched, said("Look.", phase="commentary"), function_call()),
        items(function_call(name="picture")),
    ]
    calls = responses if wire == "responses" else chat

    def answer(request: Request) -> Raw:
        asked = sum(item.get("role") == "user" for item in request.items)
        known = refusals[: max(0, asked - 2) // 3]
        body = dict(request.body)
        for held, words in known:
            if held(request.raw.decode(), body):
                return http_error(400, words)
        last = request.items[-1]
        return calls[asked % 2] if last.get("role") == "user" else WORDS[wire]

    with ScriptedModel(answer) as server:
        await place.talk(server, wire, *(f"turn {number}" for number in range(turns)), model="gpt-5.5")
        refused = sum(request.status == 400 for request in server.requests)
        assert len(refusals) - 3 <= refused <= len(refusals)
        before, warned = len(server.requests), len(place.warnings)
        await place.talk(server, wire, "after all", model="gpt-5.5", resume=True)
        assert {request.status for request in server.requests[before:]} == {200}, place.warnings[warned:]
