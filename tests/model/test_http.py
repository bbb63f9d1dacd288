# ruff: noqa: E501 - answers read better in one line
"""Real sockets: what is asked, what is said when a server fails, when a request is sent again, and cancelling."""

import asyncio
import gzip
import socket
import subprocess
import sys
from contextlib import aclosing
from email.utils import formatdate
from time import time

import httpcore2
import pytest

from ferrule.model import retry
from ferrule.model.provider import open_model
from ferrule.model.stream import Completed, ContentRefused, ContextOverflow, Created, ItemDone, ModelError, Retrying
from ferrule.model.wire import WireModel
from ferrule.protocol.settings import ProviderSettings
from ferrule.protocol.specs import Wire
from tests.model.streams import B089, END, RESPONSES, chunk, created, text, tool
from tests.model.support import HEAD, RawServer, capture, outcome, raw_server, reply, request, sse

ANSWER = HEAD + sse(chunk({"content": "hi"}), chunk({}, "stop"), "[DONE]")


def chat(server: RawServer | str, **settings: object) -> WireModel:
    return opened(server, "chat", **settings)


def opened(server: RawServer | str, wire: Wire, **settings: object) -> WireModel:
    url = server if isinstance(server, str) else server.base_url
    values: dict[str, object] = {"name": "box", "base_url": url, "request_max_retries": 0} | settings
    return open_model(ProviderSettings(**values), wire=wire, env={})  # type: ignore[arg-type]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were slept between attempts, without sleeping."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(retry, "_sleep", sleep)
    return slept


async def failure(*script: bytes | float | None, wire: Wire = "chat", **settings: object) -> ModelError:
    async with raw_server(script) as server:
        model = opened(server, wire, **settings)
        found = await outcome(model, request())
    assert found.error is not None
    return found.error


async def test_an_answer_is_read_and_the_request_is_what_the_wire_asks_for() -> None:
    async with raw_server([ANSWER], [HEAD + capture("responses_turn")]) as server:
        for wire in ("chat", "responses"):
            model = opened(server, wire, query_params={"api-version": "x y"}, http_headers={"X-Team": "a"})
            found = await outcome(model, request())
            assert isinstance(found.events[-1], Completed)
    (head, _), (other, _) = server.requests
    assert head.startswith("POST /v1/chat/completions?api-version=x+y HTTP/1.1")
    assert other.startswith("POST /v1/responses?api-version=x+y HTTP/1.1")
    assert "x-team: a" in head.lower()
    assert "authorization" not in head.lower()


async def test_an_unreachable_server_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        model = chat(f"http://127.0.0.1:{port}/v1")
        found = await outcome(model, request())
    assert found.error is not None
    assert found.error.retryable
    assert f"Cannot connect to box at http://127.0.0.1:{port}/v1" in str(found.error)
    assert "is the server running" in str(found.error)


async def test_an_unknown_host_is_told_in_words() -> None:
    found = await outcome(chat("http://nosuchhost.invalid/v1"), request())
    assert "Cannot connect to box at" in str(found.error) and "Errno" not in str(found.error)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (reply("401 Unauthorized", b'{"error":{"message":"Incorrect API key"}}'), ModelError, "env_key (the variable"),
        (reply("403 Forbidden", b"<html><b>No</b></html>", kind="text/html"), ModelError, "does not allow"),
        (reply("404 Not Found", b'{"error":{"message":"model \'x\' not found"}}'), ModelError, "choose another with -m"),
        (reply("404 Not Found", b"404 page not found", kind="text/plain"), ModelError, "often /v1"),
        (reply("307 Temporary Redirect", headers="location: http://other/v1"), ModelError, "http://other/v1"),
        (reply("400 Bad Request", b'{"error":{"code":"context_length_exceeded","message":"This model\'s maximum context length is 8192 tokens"}}'), ContextOverflow, "context window"),
        (reply("400 Bad Request", b'{"error":{"type":"exceed_context_size_error","message":"the request exceeds the available context size"}}'), ContextOverflow, "context window"),
        (reply("413 Payload Too Large"), ContextOverflow, "context window"),
        (reply("413 Payload Too Large", b'{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}'), ContextOverflow, "context window"),
        (reply("400 Bad Request", b'{"error":{"code":"image_too_large","message":"too big"}}'), ContentRefused, "too big"),
        (reply("400 Bad Request", b'{"detail":"This model does not support image input"}'), ContentRefused, "image"),
        (reply("402 Payment Required", b'{"error":{"message":"Insufficient credits"}}'), ModelError, "usage limit"),
        (reply("400 Bad Request", b'{"object":"error","message":"bad thing","code":400}'), ModelError, "bad thing"),
        (reply("200 OK", b"<!doctype html><title>Welcome</title>", kind="text/html"), ModelError, "not its API"),
        (reply("200 OK", b"pong", kind="text/plain"), ModelError, "closed the stream"),
    ],
)  # fmt: skip
async def test_a_refusal_is_one_sentence_that_says_what_to_do(
    answer: bytes, kind: type[ModelError], words: str
) -> None:
    error = await failure(answer)
    assert type(error) is kind
    assert words in str(error)
    assert "\n" not in str(error)


async def test_a_key_that_was_sent_is_refused() -> None:
    refused = reply("401 Unauthorized", b'{"error":{"message":"Incorrect API key"}}')
    error = await failure(refused, http_headers={"Authorization": "Bearer wrong"})
    assert "refuses the key" in str(error) and "Incorrect API key" in str(error)


async def test_a_request_that_failed_to_the_last_repetition_is_not_begun_anew(pauses: list[float]) -> None:
    error = await failure(*[reply("500 Internal Server Error")] * 3, request_max_retries=2)
    assert len(pauses) == 2 and not error.retryable
    assert (await failure(reply("500 Internal Server Error"))).retryable


async def test_a_refused_tool_is_named() -> None:
    body = b'{"error":{"message":"Invalid schema","param":"tools[1].parameters"}}'
    assert "'shell'" in str(await failure(reply("400 Bad Request", body), wire="responses"))


async def test_one_json_body_is_read_like_a_stream() -> None:
    body = B089["one JSON body instead of a stream"].removeprefix(b"data: ").strip()
    async with raw_server([reply("200 OK", body)]) as server:
        found = await outcome(opened(server, "responses"), request())
    assert found.error is None
    assert len(found.items) == 2


async def test_a_stream_is_one_whatever_its_type_and_encoding_say() -> None:
    stream = sse(chunk({"content": "hi"}), chunk({}, "stop"), "[DONE]")
    plain = reply("200 OK", stream, kind="application/json")
    packed = reply("200 OK", gzip.compress(stream), headers="content-encoding: gzip", kind="text/event-stream")
    async with raw_server([plain], [packed]) as server:
        for _ in range(2):
            assert len((await outcome(chat(server), request())).items) == 1


async def test_silence_ends_with_the_idle_timeout() -> None:
    error = await failure(HEAD + sse(chunk({"content": "Half"})), 30.0, stream_idle_timeout_ms=500)
    assert "sent nothing for 0.5 s" in str(error)
    assert error.retryable
    assert error.partial is not None
    assert b"Half" in error.partial.raw


async def test_comments_keep_a_slow_stream_alive() -> None:
    script: list[bytes | float] = [HEAD]
    for _ in range(9):
        script += [b": busy\n\n", 0.1]
    async with raw_server([*script, ANSWER.removeprefix(HEAD)]) as server:
        assert (await outcome(chat(server, stream_idle_timeout_ms=700), request())).error is None


async def test_closing_the_stream_hangs_up() -> None:
    async with raw_server([HEAD + sse(chunk({"content": "Half"})), 30.0]) as server:
        model = chat(server)
        async with aclosing(model.stream(request())) as events:
            async for event in events:
                if not isinstance(event, Created):
                    break
        async with asyncio.timeout(30):
            await server.closed.wait()
        await model.aclose()


async def test_cancelling_hangs_up() -> None:
    async with raw_server([HEAD, 30.0]) as server:
        task = asyncio.create_task(outcome(chat(server), request()))
        async with asyncio.timeout(30):
            await server.asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.closed.wait()


async def test_a_pause_between_attempts_can_be_cancelled() -> None:
    async with raw_server([reply("503 Busy", headers="retry-after: 60")]) as server:
        task = asyncio.create_task(outcome(chat(server, request_max_retries=3), request()))
        async with asyncio.timeout(30):
            await server.asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_b077_nothing_is_sent_again_after_an_item(pauses: list[float]) -> None:
    broken = [HEAD + RESPONSES["b077"], None]
    async with raw_server(broken, broken) as server:
        found = await outcome(opened(server, "responses", request_max_retries=4), request())
    assert len(server.requests) == 1
    assert len(found.items) == 1
    assert found.error is not None
    assert found.error.retryable
    assert pauses == []


async def test_a_break_before_the_first_item_is_repaired(pauses: list[float]) -> None:
    scripts = ([None], [HEAD + sse(created()), None], [reply("502 Bad Gateway")], [HEAD + B089["deltas alone"]])
    async with raw_server(*scripts) as server:
        found = await outcome(opened(server, "responses", request_max_retries=4), request())
    assert found.error is None
    assert len(found.items) == 2
    assert [event.delay_ms > 0 for event in found.of(Retrying)] == [True, True, True]
    assert len(pauses) == 3
    assert {body for _, body in server.requests} == {server.requests[0][1]}


async def test_attempts_are_bounded_and_the_last_error_is_told(pauses: list[float]) -> None:
    async with raw_server(*[[reply("500 Oops", b'{"error":{"message":"no luck"}}')]] * 9) as server:
        found = await outcome(chat(server, request_max_retries=2), request())
    assert len(server.requests) == 3
    assert "no luck" in str(found.error)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (reply("429 Too Many Requests", headers="Retry-After: 7"), 7),
        (reply("429 Too Many Requests", headers="retry-after-ms: 350"), 0.35),
        (reply("503 Busy", headers="retry-after: 0.5"), 0.5),
        (reply("429 Too Many Requests", b'{"error":{"message":"Rate limit reached. Please try again in 1.5s."}}'), 1.5),
        (reply("429 Too Many Requests", b'{"error":{"message":"Please try again in 20ms."}}'), 0.02),
        (HEAD + sse({"error": {"code": 429, "message": "busy", "retry_after": 3}}), 3),
        (HEAD + sse({"error": {"code": "rate_limit_exceeded", "message": "retry after 2 seconds"}}), 2),
    ],
)
async def test_b079_the_stated_pause_is_kept(answer: bytes, seconds: float, pauses: list[float]) -> None:
    async with raw_server([answer], [ANSWER]) as server:
        found = await outcome(chat(server, request_max_retries=1), request())
    assert found.error is None
    assert seconds <= pauses[0] <= seconds * 1.1 + 0.001


async def test_b079_the_stated_pause_may_be_a_date(pauses: list[float]) -> None:
    answer = reply("429 Too Many Requests", headers=f"retry-after: {formatdate(time() + 20, usegmt=True)}")
    async with raw_server([answer], [ANSWER]) as server:
        await outcome(chat(server, request_max_retries=1), request())
    assert 15 < pauses[0] < 22.1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply("429 Too Many", b'{"error":{"type":"usage_limit_reached","message":"limit","resets_in_seconds":9568}}'), "2 h 39 min"),
        (reply("429 Too Many", b'{"error":{"code":"insufficient_quota","message":"You exceeded your quota"}}'), "exceeded your quota"),
        (reply("429 Too Many", b"{}", headers="retry-after: 7200"), "asks to wait 2 h"),
    ],
)  # fmt: skip
async def test_b079_a_limit_is_shown_and_not_waited_for(answer: bytes, words: str, pauses: list[float]) -> None:
    async with raw_server([answer], [ANSWER]) as server:
        found = await outcome(chat(server, request_max_retries=4), request())
    assert words in str(found.error)
    assert len(server.requests) == 1
    assert pauses == []


async def test_a_connection_is_used_again() -> None:
    body = sse(chunk({"content": "hi"}), chunk({}, "stop"), "[DONE]")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    async with raw_server([answer], [answer], [answer]) as server:
        model = chat(server)
        for _ in range(3):
            assert (await outcome(model, request(), keep=True)).error is None
        await model.aclose()
    assert server.connections == 1


async def test_no_trust_store_is_read_and_no_proxy_asked_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise AssertionError("a TLS context was built for http://")

    monkeypatch.setattr(httpcore2, "default_ssl_context", refuse)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with raw_server([ANSWER]) as server:
        assert (await outcome(chat(server), request())).error is None


def test_opening_a_model_imports_no_http_client_and_no_pydantic() -> None:
    code = (
        "import sys; from ferrule.model.provider import open_model; from ferrule.protocol.settings import ProviderSettings;"
        "open_model(ProviderSettings(name='x', base_url='http://127.0.0.1:1/v1'));"
        "print([name for name in ('httpx2', 'pydantic', 'asyncio.windows_events') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_items_come_before_the_end_of_the_stream() -> None:
    before = HEAD + sse(tool(0, "shell", '{"a":1}', id="c1"), tool(1, "shell", '{"a":2}', id="c2"))
    async with raw_server([before, 30.0, sse(*END)]) as server:
        model = chat(server)
        async with asyncio.timeout(30), aclosing(model.stream(request())) as events:
            async for event in events:
                if isinstance(event, ItemDone):
                    break
        await model.aclose()


async def test_a_finished_response_is_not_held_up_by_a_stream_that_stays_open() -> None:
    async with raw_server([HEAD + capture("responses_turn"), 30.0]) as server:
        async with asyncio.timeout(30):
            found = await outcome(opened(server, "responses"), request())
    assert isinstance(found.events[-1], Completed)


async def test_an_error_after_text_is_not_repaired(pauses: list[float]) -> None:
    async with raw_server([HEAD + sse(created(), text(0, "m", "Half")), None], [ANSWER]) as server:
        found = await outcome(opened(server, "responses", request_max_retries=4), request())
    assert len(server.requests) == 1
    assert found.error is not None
    assert found.error.partial is not None


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_a_wait_longer_than_the_user_wants_is_told(pauses: list[float], wire: Wire) -> None:
    limited = reply("429 Too Many Requests", b'{"error":{"message":"slow down"}}', headers="retry-after: 3")
    answer = ANSWER if wire == "chat" else HEAD + capture("responses_turn")
    for longest, waited in ((2999, []), (3000, [3.0])):
        pauses.clear()
        async with raw_server([limited], [answer]) as server:
            found = await outcome(opened(server, wire, request_max_retries=4, longest_wait_ms=longest), request())
        assert [int(pause) for pause in pauses] == waited
        assert (found.error is None) == bool(waited)
        if found.error is not None:
            assert "asks to wait 3 s" in str(found.error) and not found.error.retryable


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_a_wait_in_a_stream_is_bounded_too(pauses: list[float], wire: Wire) -> None:
    error = b'{"error":{"code":"rate_limit_exceeded","message":"Please try again in 3m0.5s."}}'
    found = await failure(HEAD + b"data: %b\n\n" % error, wire=wire, request_max_retries=4)
    assert pauses == [] and "3 min" in str(found) and "longest_wait_ms" in str(found)


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_a_packed_stream_in_any_pieces(wire: Wire) -> None:
    stream = (
        sse(chunk({"content": "ä 🔧"}), chunk({}, "stop"), "[DONE]") if wire == "chat" else capture("responses_turn")
    )
    packed = gzip.compress(stream)
    head = HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    async with raw_server([HEAD, stream], [head, *(packed[at : at + 1] for at in range(len(packed)))]) as server:
        plain, piecewise = [await outcome(opened(server, wire), request()) for _ in range(2)]
    assert piecewise.error is None and piecewise.views == plain.views
