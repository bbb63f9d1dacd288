"""Odd streams on each wire: what they mean is what the next request says, in the same process and after a resume."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from ferrule import tool
from ferrule.model.stream import ModelError
from ferrule.protocol.specs import Wire
from ferrule.session.failures import SameFailure
from ferrule.testing import ScriptedModel
from ferrule.testing.steps import Raw, raw
from tests.session.conversations import Place, assistants, call, chunks, function_call, items, said, sent, thought
from tests.session.wire_events import (
    CALL,
    ONE,
    WIRES,
    WORDS,
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


@pytest.mark.parametrize("finish", ["stop", "length", "tool_calls", ""])
async def test_m003_a_reason_to_finish_in_each_chunk(place: Place, finish: str) -> None:
    parts = [{"content": "Let "}, {"content": "me."}, piece('{"n"', "look", id="i"), piece(":1}")]
    stream = sse(*(chunk(part, finish) for part in parts), "data: [DONE]")
    if finish == "length":
        stream = sse(*(chunk(part, "stop") for part in parts[:-1]), chunk(parts[-1], "tool_calls"))
    await means(place, "chat", [raw(stream)], [("look", '{"n":1}')], ["Let me."])


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
