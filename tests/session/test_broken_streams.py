"""Streams that fail, end early or say nothing: waited for, asked again, told in words."""

import json
from collections.abc import Mapping, Sequence

import pytest

from ferrule import tool
from ferrule.model.stream import ContextOverflow, ModelError
from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel, http_error
from ferrule.testing.steps import Raw, raw
from tests.session.conversations import Place, call, chunks, function_call, items, said
from tests.session.wire_events import (
    CALL,
    ONE,
    WIRES,
    WORDS,
    Event,
    added,
    chunk,
    created,
    delta,
    done,
    ended,
    means,
    piece,
    sse,
    told,
)


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
