"""Faults: bytes in pieces, stops, cuts, errors; each is what the test asked for and nothing else."""

import http.client
import json
import socket
import threading
import time

import pytest

from ferrule.testing import (
    Edit,
    Failed,
    Framing,
    Gate,
    RandomChunks,
    ScriptedModel,
    Stall,
    StreamError,
    defects,
    function_call,
    hang_up,
    http_error,
    message,
    raw,
    step,
)
from tests.testing.client import USER, Client, events, raw_exchange

REQUEST = b"POST /v1/responses HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"


def http_chunks(model: ScriptedModel) -> list[bytes]:
    """The HTTP chunks of one streamed answer, as they were framed."""
    body = json.dumps({"input": "go", "stream": True}).encode()
    received = raw_exchange(model, REQUEST % (len(body), body))
    head, _, rest = received.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    chunks = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        chunks.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    assert chunks.pop() == b""
    return chunks


def test_one_byte_at_a_time() -> None:
    capture = 'data: {"ü": 1}\n\n'.encode()
    with ScriptedModel(raw(capture, chunks=1)) as model:
        assert http_chunks(model) == [bytes([byte]) for byte in capture]


def test_pieces_of_given_sizes() -> None:
    with ScriptedModel(raw(b"0123456789", chunks=[1, 3])) as model:
        assert http_chunks(model) == [b"0", b"123", b"456789"]


def test_random_pieces_are_the_same_for_the_same_seed() -> None:
    with ScriptedModel([raw(b"x" * 500, chunks=RandomChunks(seed, most=9)) for seed in (7, 7, 8)]) as model:
        first, again, other = (http_chunks(model) for _ in range(3))
    assert first == again != other
    assert b"".join(first) == b"x" * 500 and max(map(len, first)) <= 9


def test_cut_after_a_number_of_bytes() -> None:
    with ScriptedModel(raw(b"0123456789", cut_after=4)) as model, Client(model) as client:
        with pytest.raises(http.client.IncompleteRead) as caught:
            client.stream()
        assert caught.value.partial == b"0123"
        assert not model.last_request.aborted


def test_b077_cut_after_an_event() -> None:
    cut = step(function_call("f", call_id="c1"), cut_after="response.output_item.done")
    with ScriptedModel(cut) as model, Client(model) as client, pytest.raises(http.client.IncompleteRead) as caught:
        client.stream()
    seen = events(caught.value.partial)
    assert seen[-1]["type"] == "response.output_item.done" and seen[-1]["item"]["call_id"] == "c1"
    assert caught.value.partial.endswith(b"\n\n")


def test_a_place_that_does_not_exist_is_a_failure_of_the_test() -> None:
    with ScriptedModel(step("a", cut_after="nowhere")) as model, Client(model) as client:
        assert client.post("responses", {"input": "x"}).status == 400
        assert model.failures == ["step 1: no event of the answer contains 'nowhere'"]


def test_hang_up() -> None:
    with ScriptedModel([hang_up(), "then"]) as model:
        with Client(model) as client, pytest.raises(http.client.RemoteDisconnected):
            client.responses()
        with Client(model) as client:
            client.responses()
        model.check()


def test_stall_until_released() -> None:
    gate = Gate()
    with (
        ScriptedModel(step("hello", stall=Stall(at="response.in_progress", gate=gate))) as model,
        Client(model) as client,
    ):
        response = client.post("responses", {"input": "x", "stream": True})
        assert [event["type"] for event in events(_available(response))] == ["response.created", "response.in_progress"]
        gate.wait_reached()
        assert model.last_request.finished_ns is None
        gate.open()
        assert events(response.read())[-1]["type"] == "response.completed"
        model.wait_for(lambda: model.last_request.finished_ns is not None)


def _available(response: http.client.HTTPResponse) -> bytes:
    """Read up to the end of the `response.in_progress` event, which is where the server stands."""
    received = b""
    while not (b"response.in_progress" in received and received.endswith(b"\n\n")):
        received += response.read1()
    return received


def test_stall_for_seconds_and_slow_start() -> None:
    stall = Stall(at=3, seconds=0.05)
    with ScriptedModel(raw(b"0123456789", delay=0.05, stall=stall)) as model, Client(model) as client:
        assert client.stream() == b"0123456789"
        request = model.last_request
        model.wait_for(lambda: request.finished_ns is not None)  # the client may read the end first
        assert request.finished_ns is not None and request.finished_ns - request.arrived_ns >= 95_000_000


def test_a_client_that_goes_away_is_noticed() -> None:
    with ScriptedModel(step("hello", stall=Stall())) as model:
        body = b'{"input": "x"}'
        with socket.create_connection(("127.0.0.1", model.port)) as connection:
            connection.sendall(REQUEST % (len(body), body))
            model.wait_for_requests(1)
        model.wait_for(lambda: model.last_request.aborted)


def test_an_answer_ends_with_its_connection() -> None:
    gate = Gate()
    body = b'{"input": "x"}'
    with ScriptedModel([step("hello", stall=Stall(gate=gate)), "next"]) as model:
        with socket.create_connection(("127.0.0.1", model.port)) as connection:
            connection.sendall(REQUEST % (len(body), body))
            gate.wait_reached()
        model.wait_for(lambda: model.last_request.aborted)
        gate.open()
        with Client(model) as client:
            client.responses()
        assert model.requests[0].finished_ns is None


def test_waiting_for_a_request_that_stays_unanswered() -> None:
    tried = threading.Event()

    def one_arrived() -> bool:
        tried.set()
        return len(model.requests) == 1

    with ScriptedModel(step("hello", stall=Stall())) as model:
        waiter = threading.Thread(target=model.wait_for, args=(one_arrived, 10))
        waiter.start()
        assert tried.wait(10)
        with socket.create_connection(("127.0.0.1", model.port)) as connection:
            connection.sendall(REQUEST % (14, b'{"input": "x"}'))
            waiter.join(30)
            assert not waiter.is_alive()


def test_waiting_has_an_end() -> None:
    with ScriptedModel() as model, pytest.raises(TimeoutError, match="0 requests arrived"):
        model.wait_for_requests(1, timeout=0.01)
    with pytest.raises(TimeoutError, match="no response reached the gate"):
        Gate().wait_reached(timeout=0.01)


def test_close_ends_a_stalled_answer() -> None:
    with ScriptedModel(step("hello", stall=Stall())) as model:
        thread = threading.Thread(target=_swallow, args=(model,))
        thread.start()
        model.wait_for_requests(1)
        started = time.monotonic()
    thread.join(30)
    assert not thread.is_alive() and time.monotonic() - started < 30


def _swallow(model: ScriptedModel) -> None:
    with Client(model) as client, pytest.raises((ConnectionError, http.client.HTTPException)):
        client.stream()


def test_b079_status_and_headers() -> None:
    limited = http_error(
        429, "slow down", code="rate_limit_exceeded", headers={"Retry-After": "7"}, resets_in_seconds=9
    )
    with ScriptedModel([limited, "then"]) as model, Client(model) as client:
        response = client.post("responses", {"input": "x"})
        assert (response.status, response.headers["retry-after"]) == (429, "7")
        assert json.loads(response.read())["error"] == {
            "message": "slow down",
            "type": "scripted_error",
            "param": None,
            "code": "rate_limit_exceeded",
            "resets_in_seconds": 9,
        }
        client.responses()
        model.check()


@pytest.mark.parametrize("nested", [False, True])
def test_b079_error_event(nested: bool) -> None:
    end = StreamError("limit", type="usage_limit_reached", nested=nested, more={"resets_in_seconds": 9568})
    with ScriptedModel(step("partial", end=end)) as model, Client(model) as client:
        last = events(client.stream())[-1]
    assert last["type"] == "error"
    assert (last["error"] if nested else last)["resets_in_seconds"] == 9568
    assert not nested or last["error"]["type"] == "usage_limit_reached"


def test_b076_error_object_in_a_chat_stream() -> None:
    with ScriptedModel(step("partial", end=StreamError("queue full", code=429))) as model, Client(model) as client:
        body = client.stream("chat/completions")
    assert events(body)[-1] == {"error": {"code": 429, "message": "queue full"}}
    assert body.endswith(b"data: [DONE]\n\n")


def test_failed_and_incomplete_responses() -> None:
    cut = step(function_call("f", '{"cmd":"echo'), end="max_output_tokens")
    with ScriptedModel([step(end=Failed("boom")), cut, cut]) as model, Client(model) as client:
        failed = events(client.stream())[-1]
        assert failed["type"] == "response.failed"
        assert failed["response"]["error"] == {"code": "server_error", "message": "boom"}
        short = events(client.stream())[-1]
        assert short["type"] == "response.incomplete"
        assert short["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
        assert short["response"]["output"][0]["status"] == "incomplete"
        assert client.chat([USER])["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("path", ["responses", "chat/completions"])
def test_a_stream_without_its_end(path: str) -> None:
    with ScriptedModel(step("hello", end="missing")) as model, Client(model) as client:
        body = client.stream(path)
    assert b"[DONE]" not in body and b"response.completed" not in body and b'"stop"' not in body
    assert b"hello" in body


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_b073_framing(newline: str) -> None:
    framing = Framing(newline=newline, space=False, bom=True, last_blank=False)
    with ScriptedModel(step("hé", framing=framing)) as model, Client(model) as client:
        body = client.stream()
    assert body.startswith(b"\xef\xbb\xbfevent:response.created" + newline.encode() + b'data:{"type"')
    assert body.endswith(b"data:[DONE]" + newline.encode()) and not body.endswith(newline.encode() * 2)
    assert "hé".encode() in body


TWO_CALLS = (function_call("a", '{"p":"a"}', call_id="c1"), function_call("b", '{"p":"b"}', call_id="c2"))


def chat_deltas(edit: Edit) -> list[dict[str, object]]:
    with ScriptedModel(step(*TWO_CALLS, edits=edit)) as model, Client(model) as client:
        chunks = events(client.stream("chat/completions"))
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return [call for choice in choices for call in choice["delta"].get("tool_calls", [])]


def test_b061_same_index() -> None:
    calls = chat_deltas(defects.same_index)
    assert {call["index"] for call in calls} == {0}
    assert [call["id"] for call in calls if "id" in call] == ["c1", "c2"]


def test_b062_null_arguments() -> None:
    functions = [call["function"] for call in chat_deltas(defects.null_arguments)]
    assert functions == [
        {"name": "a", "arguments": None},
        {"arguments": '{"p":"a"}'},
        {"name": "b", "arguments": None},
        {"arguments": '{"p":"b"}'},
    ]


def test_b085_repeated_names_and_ids_in_function() -> None:
    assert [call["id"] for call in chat_deltas(defects.repeated_names)] == ["c1", "c1", "c2", "c2"]
    inside = chat_deltas(defects.ids_in_function)
    assert inside[0] == {"index": 0, "type": "function", "function": {"id": "c1", "name": "a", "arguments": ""}}


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (defects.double_finish, [None, "stop", "stop"]),
        (defects.finish_reason("tool_calls"), [None, "tool_calls"]),
        (defects.drop("finish"), [None]),
    ],
)
def test_b071_b070_finish_reasons(edit: Edit, expected: list[str | None]) -> None:
    with ScriptedModel(step("hi", edits=edit)) as model, Client(model) as client:
        chunks = events(client.stream("chat/completions"))
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][1:] == expected


def test_b088_azure_frames() -> None:
    with ScriptedModel(step("hi", edits=defects.azure_frames)) as model, Client(model) as client:
        chunks = events(client.stream("chat/completions"))
    assert chunks[0]["choices"] == chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {"total_tokens": 5}


@pytest.mark.parametrize(
    ("edit", "gone"),
    [
        (defects.without_deltas, "response.function_call_arguments.delta"),
        (defects.without_item_done, "response.output_item.done"),
        (defects.without_item_added, "response.output_item.added"),
        (defects.drop("response.completed"), "response.completed"),
    ],
)
def test_b089_left_out_events(edit: Edit, gone: str) -> None:
    steps = [step(message("x"), *TWO_CALLS), step(message("x"), *TWO_CALLS, edits=edit)]
    with ScriptedModel(steps) as model, Client(model) as client:
        whole, damaged = (events(client.stream()) for _ in range(2))
    assert gone in [event["type"] for event in whole]
    assert gone not in [event["type"] for event in damaged]


def test_b089_empty_deltas_and_missing_ids() -> None:
    edits = [defects.empty_deltas, defects.without_response_id]
    with ScriptedModel(step(*TWO_CALLS, edits=edits)) as model, Client(model) as client:
        seen = events(client.stream())
    assert [event["delta"] for event in seen if "delta" in event] == ["", '{"p":"a"}', "", '{"p":"b"}']
    assert "id" not in seen[0]["response"] and "id" not in seen[-1]["response"]


def test_an_inserted_event_and_a_changed_one() -> None:
    edits = [
        defects.insert({"type": "response.future", "x": 1}, before="response.completed"),
        defects.insert(": not json", before="response.in_progress"),
        defects.change("response.output_text.delta", lambda data: {**data, "delta": "changed"}),
    ]
    with ScriptedModel(step("hi", edits=edits)) as model, Client(model) as client:
        body = client.stream()
    assert b'event: response.future\ndata: {"type":"response.future","x":1}\n\nevent: response.completed' in body
    assert b"data: : not json\n\nevent: response.in_progress" in body
    assert b'"delta":"changed"' in body


def test_lone_surrogates_travel_as_escapes() -> None:
    with ScriptedModel(function_call("f", "é\ud800")) as model, Client(model) as client:
        assert client.responses()["output"][0]["arguments"] == "é\ud800"


def test_broken_http_is_answered_and_closed() -> None:
    with ScriptedModel() as model:
        assert raw_exchange(model, b"NONSENSE\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_pipelined_requests_and_100_continue() -> None:
    first = b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\nexpect: 100-continue\r\n\r\n"
    body = b'{"input":"x"}'
    with ScriptedModel([step("one", chunks=5), "two"]) as model:
        received = raw_exchange(model, first + body + REQUEST % (len(body), body))
    assert received.startswith(b"HTTP/1.1 100 ")
    assert received.count(b"HTTP/1.1 200") == 2 and b"two" in received
