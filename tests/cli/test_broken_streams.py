"""Streams that break in any way, read by the real command: its last two lines, its file, and the session resumed."""

import gzip
import json
from collections.abc import Mapping

import pytest

from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel, http_error, raw, step
from ferrule.testing.steps import Raw
from tests.cli.command import FULL_ACCESS, Done, Place


def sse(*payloads: object) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(payload).encode() for payload in payloads)


def delta(**fields: object) -> dict[str, object]:
    return {"id": "c1", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


ITEM = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "shell_command", "arguments": ""}
PART = {"item_id": "fc_1", "output_index": 0, "delta": '{"comma'}
TEXT: Mapping[Wire, bytes] = {
    "chat": sse(delta(content="Half of ")),
    "responses": sse({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": "Half of "}),
}
CALL: Mapping[Wire, bytes] = {
    "chat": sse(
        delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "shell_command", "arguments": '{"comma'}}])
    ),
    "responses": sse(
        {"type": "response.output_item.added", "output_index": 0, "item": ITEM},
        {"type": "response.function_call_arguments.delta", **PART},
    ),
}
FAILED: Mapping[Wire, bytes] = {
    "chat": sse({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]}),
    "responses": sse({"type": "response.failed", "response": {"id": "r", "error": {"code": "x", "message": "no"}}}),
}
THOUGHT: Mapping[Wire, bytes] = {
    "chat": sse(delta(reasoning_content="Hm.")),
    "responses": sse({"type": "response.output_item.done", "output_index": 0, "item": {
        "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}}),
}  # fmt: skip


def broken(wire: Wire) -> dict[str, Raw]:
    """Answers after which a turn has failed."""
    text, call = TEXT[wire], CALL[wire]
    return {
        "nothing": raw(b""),
        "cut after words": raw(text + text, cut_after=len(text)),
        "ends after words": raw(text),
        "ends in a call": raw(call),
        "ends after a thought": raw(THOUGHT[wire]),
        "ends in an event": raw(text + b'data: {"id":"c1","choi'),
        "error event": raw(text + b"event: error\ndata: the model crashed\n\n"),
        "error field": raw(text + b'error: {"code":500,"message":"it crashed"}\n\n'),
        "failed": raw(text + FAILED[wire]),
        "torn part of a call": raw(call + b'data: {"choices":[{"delta":{"tool_calls":[{"ind\n\n'),
        "no JSON": raw(b"data: {\n\ndata: [1]\n\ndata: null\n\n"),
        "too deep": raw(b"data: " + b'{"a":' * 100_000 + b"\n\n"),
        "a page": raw(b"<html>hello</html>", content_type="text/html"),
        "half of a gzip": raw(gzip.compress(text * 99)[:40], headers={"content-encoding": "gzip"}),
        "halves of characters": raw(text + b'event: error\ndata: {"error":{"message":"\\ud83d crashed"}}\n\n'),
        "a refusal": http_error(400, "something is wrong with it"),
    }


def run(place: Place, model: ScriptedModel, wire: Wire, *arguments: str) -> Done:
    place.home.mkdir(parents=True, exist_ok=True)
    (place.home / "config.toml").write_text(
        f'model_provider = "mine"\n[model_providers.mine]\nbase_url = "{model.base_url}"\nwire_api = "{wire}"\n'
        "request_max_retries = 0\nstream_max_retries = 0\n"
    )
    return place.run("exec", "-m", "m", "--json", *FULL_ACCESS, *arguments)


ROWS = 4


@pytest.mark.parametrize("wire", ["responses", "chat"])
@pytest.mark.parametrize("first", range(0, len(broken("chat")), ROWS))
def test_f01_json_ends_with_its_two_lines_and_the_session_goes_on(place: Place, wire: Wire, first: int) -> None:
    """One process after the other goes on with the session of the one before."""
    row = dict(list(broken(wire).items())[first : first + ROWS])
    with ScriptedModel([*row.values(), step("Going on.")]) as model:
        resume: tuple[str, ...] = ()
        for name in row:
            done = run(place, model, wire, *resume, "go")
            assert done.code == 1, name
            error, failed = done.lines[-2:]
            assert [error["type"], failed["type"]] == ["error", "turn.failed"], name
            assert failed["error"] == {"message": error["message"]}
            assert "internal error" not in error["message"] and "Traceback" not in done.err, name
            resume = ("resume", "--last")
        resumed = run(place, model, wire, *resume, "more")
        model.check()
    assert resumed.code == 0, resumed.err
    assert resumed.lines[-1]["type"] == "turn.completed"
    assert [item["text"] for item in resumed.items() if item["type"] == "agent_message"] == ["Going on."]


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_f02_what_is_passed_over_does_not_end_the_turn(place: Place, wire: Wire) -> None:
    noise = b": hello\n\nevent: ping\ndata: keep-alive\n\ndata: {\n\ndata: [1]\n\n"
    end: Mapping[Wire, bytes] = {
        "chat": sse({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        "responses": sse({"type": "response.completed", "response": {"id": "r", "output": []}}),
    }
    with ScriptedModel([raw(noise + TEXT[wire] + noise + end[wire])]) as model:
        done = run(place, model, wire, "go")
        assert len(model.requests) == 1
    assert done.code == 0 and done.lines[-1]["type"] == "turn.completed"
    kinds = [item["type"] for item in done.items()]
    assert kinds.count("agent_message") == 1 and kinds.count("error") == 2, "each kind is told once"
