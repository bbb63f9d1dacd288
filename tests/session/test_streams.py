"""Odd streams on each wire: what they mean is what the next request says, in the same process and after a resume."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ferrule.builtin.apply_patch  # noqa: F401 - pytest compiles imports, which CPython 3.11 fails at in two threads
from ferrule import tool
from ferrule.model.stream import ContextOverflow, ModelError
from ferrule.protocol.specs import Wire
from ferrule.session.failures import SameFailure
from ferrule.testing import ScriptedModel, http_error
from ferrule.testing.steps import Raw, StepLike, raw
from tests.session.conversations import Place, assistants, call, chunks, function_call, items, said, sent, thought

WIRES: tuple[Wire, ...] = ("chat", "responses")
WORDS: Mapping[Wire, Raw] = {"chat": chunks({"content": "Done."}), "responses": items(said("Done."))}
CALL: Mapping[Wire, Raw] = {"chat": chunks(call()), "responses": items(function_call())}
ONE = [("look", "{}")]

Event = dict[str, Any]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def sse(*payloads: Event | str) -> bytes:
    """Events; a string is a block as it stands."""
    blocks = [each if isinstance(each, str) else f"data: {json.dumps(each)}" for each in payloads]
    return "".join(f"{block}\n\n" for block in blocks).encode()


def chunk(delta: Event | None, finish: str | None = None, index: int = 0, **more: Any) -> Event:
    return {"id": "c1", "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}


def piece(arguments: str | None = None, name: str | None = None, **fields: Any) -> Event:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"tool_calls": [{"index": 0, "function": function, **fields}]}


def created() -> Event:
    return {"type": "response.created", "response": {"id": "r1"}}


def added(at: int, item: Event) -> Event:
    return {"type": "response.output_item.added", "output_index": at, "item": item}


def done(at: int, item: Event) -> Event:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


def delta(kind: str, text: str, item_id: str = "fc_1", at: int = 0) -> Event:
    return {"type": f"response.{kind}.delta", "item_id": item_id, "output_index": at, "delta": text}


def ended(kind: str = "completed", **response: Any) -> Event:
    return {"type": f"response.{kind}", "response": {"id": "r1", "output": [], **response}}


Calls = list[tuple[str, str]]


def told(server: ScriptedModel, wire: Wire, number: int = -1) -> tuple[Calls, list[str]]:
    """The calls and the model's words that a request repeats. Each call has its answer, in the same order."""
    if wire == "chat":
        asked = [entry for message in assistants(server, number) for entry in message.get("tool_calls", [])]
        answers = [message["tool_call_id"] for message in sent(server, number) if message["role"] == "tool"]
        assert answers == [entry["id"] for entry in asked]
        words = [message["content"] for message in assistants(server, number) if message["content"]]
        return [(entry["function"]["name"], entry["function"]["arguments"]) for entry in asked], words
    listed = sent(server, number)
    asked = [item for item in listed if item.get("type") in ("function_call", "custom_tool_call")]
    answers = [item["call_id"] for item in listed if str(item.get("type")).endswith("_call_output")]
    assert answers == [item["call_id"] for item in asked]
    words = ["".join(part["text"] for part in item["content"]) for item in listed if item.get("role") == "assistant"]
    return [(item["name"], item.get("arguments", item.get("input", ""))) for item in asked], words


async def means(
    place: Place, wire: Wire, answers: Sequence[StepLike], calls: Calls, words: Sequence[str] = (), **options: Any
) -> ScriptedModel:
    """Play the answers, end the turn with words if one is missing, and resume: both say these calls and words."""
    ends = [WORDS[wire]] if calls else []
    with ScriptedModel([*answers, *ends, WORDS[wire]]) as server:
        await place.talk(server, wire, "go", **options)
        count = len(server.requests)
        assert count == len(answers) + len(ends)
        if calls:
            assert told(server, wire) == (calls, list(words))
        await place.talk(server, wire, "more", **options, resume=True)
        assert told(server, wire) == (calls, [*words, *(["Done."] if calls else [])])
        assert len(server.requests) == count + 1
        return server


@pytest.mark.parametrize("finish", ["stop", "length", "tool_calls", ""])
async def test_m003_a_reason_to_finish_in_each_chunk(place: Place, finish: str) -> None:
    parts = [{"content": "Let "}, {"content": "me."}, piece('{"n"', "look", id="i"), piece(":1}")]
    stream = sse(*(chunk(part, finish) for part in parts), "data: [DONE]")
    if finish == "length":
        stream = sse(*(chunk(part, "stop") for part in parts[:-1]), chunk(parts[-1], "tool_calls"))
    await means(place, "chat", [raw(stream)], [("look", '{"n":1}')], ["Let me."])


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", ["header", "body", "stream"])
async def test_m006_the_wait_that_the_server_names(place: Place, wire: Wire, form: str) -> None:
    error = {"code": "rate_limit_exceeded", "message": "Please try again in 0.3s."}
    refusal = {
        "header": http_error(429, "slow down", headers={"retry-after-ms": "300"}),
        "body": http_error(429, error["message"], code=error["code"]),
        "stream": raw(sse({"type": "error", **error}) if wire == "responses" else sse({"error": error})),
    }[form]
    server = await means(place, wire, [refusal, CALL[wire]], ONE)
    first, second = server.requests[:2]
    assert first.finished_ns is not None and second.arrived_ns - first.finished_ns >= 0.3e9


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("event", [True, False])
async def test_m007_a_call_that_the_server_could_not_read(place: Place, wire: Wire, event: bool) -> None:
    error = {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "<look>{"}
    begun = sse(chunk({"reasoning": "Hm."}) if wire == "chat" else delta("reasoning_text", "Hm.", "rs_1"))
    failed = raw(begun + sse(f"event: error\ndata: {json.dumps({'error': error})}"))
    refused = http_error(400, error["message"], code=error["code"], failed_generation="<look>{")
    server = await means(place, wire, [failed if event else refused, CALL[wire]], ONE)
    assert "<look>{" in server.requests[1].user_text and "Failed to call" in server.requests[1].user_text
    assert "<look>{" in server.requests[-1].user_text


NOTHING: Mapping[Wire, Sequence[Raw]] = {
    "chat": [chunks({"content": ""}), chunks({"reasoning_content": "Hm."}), chunks({"content": " \n"})],
    "responses": [items(), items({"type": "reasoning", "id": "rs_1", "summary": []}), items(said(""))],
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", range(3))
async def test_m008_m009_nothing_is_no_answer(place: Place, wire: Wire, form: int) -> None:
    nothing = NOTHING[wire][form]
    with ScriptedModel([CALL[wire], nothing, WORDS[wire], *[nothing] * 3, WORDS[wire]]) as server:
        await place.talk(server, wire, "go")
        assert len(server.requests) == 3 and any("answered nothing" in warning for warning in place.warnings)
        with pytest.raises(ModelError, match="answered nothing, asked 3 times"):
            await place.talk(server, wire, "more", resume=True)
        await place.talk(server, wire, "and now?", resume=True)
        assert told(server, wire) == (ONE, ["Done."])


TEXT: Mapping[Wire, bytes] = {
    "chat": sse(chunk({"content": "Part of"})), "responses": sse(delta("output_text", "Part of", "msg_1")),
}  # fmt: skip


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("begun", [True, False])
async def test_m010_an_error_in_words(place: Place, wire: Wire, begun: bool) -> None:
    failed = raw((TEXT[wire] if begun else b"") + b"event: error\ndata: Too many requests, please slow down\n\n")
    await means(place, wire, [failed, CALL[wire]], ONE)
    assert any("Too many requests, please slow down; asking again" in warning for warning in place.warnings)
    with ScriptedModel([failed, failed, WORDS[wire]]) as server:
        with pytest.raises(ModelError, match="Too many requests"):
            await place.talk(server, wire, "go")
        await place.talk(server, wire, "more", resume=True)
        assert told(server, wire) == ([], ["Part of"] if begun else [])


SAID: Mapping[Wire, Sequence[Event]] = {
    "chat": [chunk({"content": "Hi."}), chunk(call()), chunk({}, "tool_calls")],
    "responses": [created(), done(0, said("Hi.")), done(1, function_call()), ended()],
}


@pytest.mark.parametrize("wire", WIRES)
async def test_m011_lines_that_say_nothing(place: Place, wire: Wire) -> None:
    noise: list[Event | str] = [
        "event: ping",
        "data:",
        "data: ",
        "id: 5",
        "retry: 100",
        ": keep",
        "event: ping\ndata: {}",
        "\n",
    ]
    blocks = [each for event in SAID[wire] for each in [*noise, event]]
    await means(place, wire, [raw(sse(*blocks, "data:[DONE]"))], ONE, ["Hi."])
    assert place.warnings == []


@pytest.mark.parametrize("lost", [None, 1, 2, 3, 4])
async def test_m012_events_that_come_twice_or_are_lost(place: Place, lost: int | None) -> None:
    opened = [created(), added(0, function_call(arguments=""))]
    parts = [delta("function_call_arguments", part) for part in ('{"n', '":', "1}")]
    numbered = [{**event, "sequence_number": at} for at, event in enumerate([*opened, *parts, ended()])]
    expected = [("look", '{"n":1}')]
    if lost is None:
        await means(place, "responses", [raw(sse(*[each for event in numbered for each in (event, event)]))], expected)
    else:
        torn = raw(sse(*numbered[:lost], *numbered[lost + 1 :]))
        await means(place, "responses", [torn, raw(sse(*numbered))], expected)
        assert any("asking again" in warning for warning in place.warnings)


CUT: Mapping[Wire, Raw] = {
    "chat": chunks(piece('{"text":"rm -rf /tm', "note", id="i"), finish="length"),
    "responses": raw(sse(
        created(), added(0, function_call(name="note", arguments="")),
        delta("function_call_arguments", '{"text":"rm -rf /tm'),
        done(0, function_call(name="note", arguments='{"text":"rm -rf /tm', status="incomplete")),
        ended("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )),
}  # fmt: skip


@pytest.mark.parametrize("wire", WIRES)
async def test_m013_a_call_that_was_cut_off_is_not_run(place: Place, wire: Wire) -> None:
    noted: list[str] = []

    @tool
    async def note(text: str = "") -> str:
        noted.append(text)
        return "noted"

    with ScriptedModel([CUT[wire], WORDS[wire], WORDS[wire]]) as server:
        await place.talk(server, wire, "go", tools=(note,))
        for number in (1, -1):
            (output,) = server.requests[number].outputs
            assert "cut off?" in output.text and "rm -rf /tm" in output.text
            assert [name for name, _ in told(server, wire, number)[0]] == ["note"]
            await place.talk(server, wire, "more", tools=(note,), resume=True)
            server.add(WORDS[wire])
    assert noted == [] and any("cut short: max_output_tokens" in warning for warning in place.warnings)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("begun", [True, False])
async def test_m018_a_failure_without_a_code(place: Place, wire: Wire, begun: bool) -> None:
    failure: Mapping[Wire, Event] = {
        "chat": {"error": {"message": "something went wrong"}}, "responses": ended("failed", error=None),
    }  # fmt: skip
    await means(place, wire, [raw((TEXT[wire] if begun else b"") + sse(failure[wire])), CALL[wire]], ONE)


NULLS: Mapping[Wire, Raw] = {
    "chat": raw(sse(
        chunk({"role": "assistant", "content": None, "tool_calls": None, "refusal": None, "function_call": None}),
        chunk({"content": "Hi.", "tool_calls": []}, None), chunk({"tool_calls": None}, "tool_calls"),
        chunk(None, "stop"), {"id": "c1", "choices": None, "usage": {"prompt_tokens": 5, "completion_tokens": None}},
        "data: [DONE]",
    )),
    "responses": raw(sse(
        {"type": "response.created", "response": {"id": "r1", "output": None, "usage": None, "error": None}},
        added(0, {"type": "message", "id": "msg_1", "role": "assistant", "content": None, "status": None}),
        {**delta("output_text", "Hi.", "msg_1"), "logprobs": None, "obfuscation": None},
        {"type": "response.output_text.done", "item_id": None, "output_index": None, "text": None},
        {"type": "response.completed", "response": {
            "id": "r1", "output": None, "error": None, "incomplete_details": None,
            "usage": {"input_tokens": 5, "output_tokens": None, "input_tokens_details": None}}},
    )),
}  # fmt: skip


@pytest.mark.parametrize("wire", WIRES)
async def test_m019_null_is_nothing(place: Place, wire: Wire) -> None:
    await means(place, wire, [NULLS[wire]], [], ["Hi."])
    assert place.warnings == []
    with ScriptedModel([NULLS[wire]]) as server:
        result = await place.talk(server, wire, "go")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (5, 0)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("begun", [True, False])
async def test_m020_a_reason_to_finish_that_is_a_failure(place: Place, wire: Wire, begun: bool) -> None:
    broken = {"finish_reason": "error", "native_finish_reason": "MALFORMED_FUNCTION_CALL", "delta": {"content": ""}}
    failed: Mapping[Wire, Event] = {
        "chat": {"id": "c1", "choices": [{"index": 0, **broken}]},
        "responses": ended("failed", error={"code": "MALFORMED_FUNCTION_CALL", "message": None}),
    }
    answer = raw((TEXT[wire] if begun else b"") + sse(failed[wire], "data: [DONE]"))
    await means(place, wire, [answer, CALL[wire]], ONE)
    assert any("asking again" in warning for warning in place.warnings)


@tool(read_only=True)
async def fails(n: int = 0) -> str:
    raise ValueError("boom 17")


@pytest.mark.parametrize("wire", WIRES)
async def test_m021_the_same_failing_call_ends_the_turn_and_not_the_session(place: Place, wire: Wire) -> None:
    def again(number: int) -> Raw:
        if wire == "chat":
            return chunks(call(f"c{number}", name="fails"))
        return items(function_call(f"c{number}", "fails", id=f"fc_{number}"))

    with ScriptedModel([*map(again, range(6)), WORDS[wire]]) as server:
        with pytest.raises(SameFailure, match="same_failure_limit"):
            await place.talk(server, wire, "go", tools=(fails,))
        await place.talk(server, wire, "more", tools=(fails,), resume=True)
        assert told(server, wire) == ([("fails", "{}")] * 6, [])
        hinted = ["same call" in output.text for output in server.requests[-1].outputs]
    assert hinted == [False, False, True, True, True, True]


PATCH = "*** Begin Patch\n*** Add File: made.txt\n+made\n*** End Patch\n"
PATCHES = {
    "plain": PATCH,
    "input": json.dumps({"input": PATCH}),
    "patch": json.dumps({"patch": PATCH}),
    "command": json.dumps({"command": ["apply_patch", PATCH]}),
    "cmd": json.dumps({"cmd": ["apply_patch", PATCH]}),
    "text": json.dumps(PATCH),
    "argv": json.dumps(["apply_patch", PATCH]),
    "fenced JSON": f"```json\n{json.dumps({'input': PATCH})}\n```",
    "here document": f"apply_patch <<'EOF'\n{PATCH}EOF\n",
}


def patch_call(wire: Wire, body: str) -> Raw:
    if wire == "chat":
        return chunks(call(name="apply_patch", arguments=body))
    return items({"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "apply_patch", "input": body})


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", PATCHES)
async def test_m022_a_patch_in_any_wrapping(place: Place, wire: Wire, form: str) -> None:
    with ScriptedModel([patch_call(wire, PATCHES[form]), WORDS[wire], WORDS[wire]]) as server:
        await place.talk(server, wire, "go", model="gpt-5.5", tools=None)
        assert (place.folder / "made.txt").read_text() == "made\n", server.requests[1].outputs
        await place.talk(server, wire, "more", model="gpt-5.5", tools=None, resume=True)
        assert [name for name, _ in told(server, wire)[0]] == ["apply_patch"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("body", "hint"),
    [(f"```diff\n{PATCH}```", "without a code fence"), ('{"todo":"' + PATCH, "It starts with"), ("Sure!", "'Sure!'")],
)
async def test_m022_what_is_no_patch_is_quoted(place: Place, wire: Wire, body: str, hint: str) -> None:
    with ScriptedModel([patch_call(wire, body), WORDS[wire], WORDS[wire]]) as server:
        await place.talk(server, wire, "go", model="gpt-5.5", tools=None)
        await place.talk(server, wire, "more", model="gpt-5.5", tools=None, resume=True)
        for request in server.requests[1:]:
            (output,) = request.outputs
            assert hint in output.text, output


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("status", [429, 200])
async def test_m023_a_rate_limit_that_speaks_of_tokens_is_waited_for(place: Place, wire: Wire, status: int) -> None:
    words = "Bedrock is unable to process your request. Too many tokens, please wait before trying again."
    error = {"message": words, "type": "throttling_error", "code": "429"}
    refusal = raw(sse({"error": error}))
    if status == 429:
        refusal = http_error(429, words, code="429", type="throttling_error")
    await means(place, wire, [refusal, CALL[wire]], ONE)


@pytest.mark.parametrize("wire", WIRES)
async def test_m024_a_name_that_is_too_long_is_no_overflow(place: Place, wire: Wire) -> None:
    words = "Invalid 'input[3].call_id': string too long. Expected a string with maximum length 64."
    refusal = http_error(400, words, code="string_above_max_length", param="input[3].call_id")
    with ScriptedModel([CALL[wire], refusal, WORDS[wire]]) as server:
        with pytest.raises(ModelError, match="string too long") as refused:
            await place.talk(server, wire, "go")
        assert not isinstance(refused.value, ContextOverflow)
        await place.talk(server, wire, "more", resume=True)
        assert told(server, wire) == (ONE, [])


async def test_m027_a_call_in_the_second_choice(place: Place) -> None:
    stream = sse(chunk({"content": "Let me."}, "stop"), chunk(call(), "tool_calls", 1), "data: [DONE]")
    await means(place, "chat", [raw(stream)], ONE, ["Let me."])


def whole_call(name: str, *parts: str, **item: Any) -> Raw:
    """A call over the Responses API in pieces."""
    opened = [created(), added(0, function_call(name=name, arguments=""))]
    whole = function_call(name=name, arguments="".join(parts), **item)
    return raw(sse(*opened, *(delta("function_call_arguments", part) for part in parts), done(0, whole), ended()))


NAMED: Mapping[Wire, Sequence[Raw]] = {
    "chat": [
        chunks(piece(None, "lo", id="i"), piece(None, "ok"), piece('{"n":1}')),
        chunks(piece(None, "lo", id="i"), piece(None, "look", id="i"), piece('{"n":1}', id="i")),
        chunks(piece("", "look", id="i"), piece("", "look"), piece('{"n"', "look"), piece(":1}", "look")),
        chunks(piece("{}", "look", id="i"), piece('{"n":1}')),
        chunks(piece('{"n":1}', "look<|channel|>commentary", id="i")),
        chunks(piece('{"n":1}', "functions.look:0", id="functions.look:0")),
        chunks(piece('{"n":1}', "to=functions.look", id="i")),
    ],
    "responses": [
        whole_call("look<|channel|>commentary", '{"n"', ":1}"),
        whole_call("functions.look:0", '{"n":1}'),
        whole_call("look", "{}", '{"n"', ":1}"),
        whole_call("look", '{"n"', ":1}", extra=None),
    ],
}


@pytest.mark.parametrize(("wire", "form"), [(wire, form) for wire in WIRES for form in range(len(NAMED[wire]))])
async def test_m028_m030_names_and_arguments_in_pieces_with_tokens(place: Place, wire: Wire, form: int) -> None:
    await means(place, wire, [NAMED[wire][form]], [("look", '{"n":1}')])


async def test_m029_a_call_behind_a_reason_to_finish(place: Place) -> None:
    stream = sse(chunk({"content": "Let me."}, "stop"), chunk(call()), chunk({}, "tool_calls"), "data: [DONE]")
    await means(place, "chat", [raw(stream)], ONE, ["Let me."])


async def test_m031_another_id_in_each_event(place: Place) -> None:
    secret = {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    stream = sse(
        created(), added(0, {**secret, "id": "rs_a", "encrypted_content": ""}),
        delta("reasoning_summary_text", "Hm.", "rs_b"), done(0, {**secret, "id": "rs_c"}),
        added(1, function_call(id="fc_a", arguments="")), delta("function_call_arguments", '{"n"', "fc_b", 1),
        delta("function_call_arguments", ":1}", "fc_c", 1), done(1, function_call(id="fc_d", arguments='{"n":1}')),
        ended(output=[{**secret, "id": "rs_z"}, function_call(id="fc_z", arguments='{"n":1}')]),
    )  # fmt: skip
    server = await means(place, "responses", [raw(stream)], [("look", '{"n":1}')], model="gpt-5.5")
    assert place.warnings == []
    for number in (1, 2):
        assert [item["id"] for item in sent(server, number) if item.get("type") == "reasoning"] == ["rs_c"]


@pytest.mark.parametrize("wire", WIRES)
async def test_m032_thoughts_in_the_text_stay_in_history_and_are_not_shown(place: Place, wire: Wire) -> None:
    first, last = "<think>\nplan</think>\n\n", "<think>fine</think>The answer"
    answers = [items(said(first), function_call()), items(said(last))]
    if wire == "chat":
        answers = [chunks({"content": first}, call()), chunks(*({"content": part} for part in (last[:3], last[3:])))]
    with ScriptedModel([*answers, WORDS[wire]]) as server:
        result = await place.talk(server, wire, "go")
        assert result.text == "The answer"
        assert told(server, wire)[1] == [first]
        await place.talk(server, wire, "more", resume=True)
        assert told(server, wire) == (ONE, [first, last])


REFUSED: Mapping[Wire, Raw] = {
    "chat": chunks({"refusal": "I can"}, {"refusal": "not."}),
    "responses": items(said("", content=[{"type": "refusal", "refusal": "I cannot."}])),
}


@pytest.mark.parametrize("wire", WIRES)
async def test_m008_a_refusal_of_the_model_is_its_answer(place: Place, wire: Wire) -> None:
    with ScriptedModel([REFUSED[wire], WORDS[wire]]) as server:
        result = await place.talk(server, wire, "go")
        assert result.text == "I cannot." and len(server.requests) == 1
        await place.talk(server, wire, "more", resume=True)
        assert '"I cannot."' in json.dumps(assistants(server))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("form", ["error: %s\ndata: [DONE]\n\n", '{"error":%s}\n'])
async def test_m058_an_error_that_is_no_event(place: Place, wire: Wire, begun: bool, form: str) -> None:
    error = '{"code":400,"message":"the request exceeds the available context size (8192 tokens)"}'
    failed = raw((TEXT[wire] if begun else b"") + (form % error).encode())
    summary = WORDS[wire]  # is longer than what it would stand for
    with ScriptedModel([CALL[wire], failed, summary, WORDS[wire]]) as server:
        with pytest.raises(ContextOverflow, match="available context size"):
            await place.talk(server, wire, "go")
        await place.talk(server, wire, "more", resume=True)
        assert told(server, wire) == (ONE, ["Part of"] if begun else [])


@pytest.mark.parametrize("wire", WIRES)
async def test_f03_reasoning_alone_goes_back_to_nobody(place: Place, wire: Wire) -> None:
    alone = chunks({"reasoning_content": "Hm."}) if wire == "chat" else items(thought(), end="")
    with ScriptedModel([alone, alone, CALL[wire], *[WORDS[wire]] * 3]) as server:
        with suppress(ModelError):
            await place.talk(server, wire, "go", model="gpt-5.5")
        await place.talk(server, wire, "and now?", model="gpt-5.5", resume=True)
        await place.talk(server, wire, "more", model="gpt-5.5", resume=True)
        calls, words = told(server, wire)
        assert calls == ONE and set(words) == {"Done."}
        assert all(text not in server.requests[-1].raw.decode() for text in ("Hm.", "gAAA"))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("body", ['{"n":', '{"n"', '{"n":1,', '{"n":"17'])
async def test_f10_arguments_that_end_early_are_quoted(place: Place, wire: Wire, body: str) -> None:
    asked = chunks(call(arguments=body)) if wire == "chat" else items(function_call(arguments=body))
    with ScriptedModel([asked, WORDS[wire], WORDS[wire]]) as server:
        await place.talk(server, wire, "go")
        await place.talk(server, wire, "more", resume=True)
        for request in server.requests[1:]:
            (output,) = request.outputs
            assert body in output.text and "cut off?" in output.text and "at at" not in output.text
