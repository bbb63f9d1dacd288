"""The Responses API over a WebSocket."""

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.groups.background import LONG
from ferrule.conformance.groups.state import ASK, TELL, WORD, text_of
from ferrule.conformance.server import ENDS, Json, Server, Socket
from ferrule.conformance.shapes import check_response

MISSING = "previous_response_not_found"


def _completed(events: list[Json]) -> Json:
    """Return the response with which the events end well."""
    expect_equal(events[-1].get("type"), "response.completed", "the last event")
    found: Json = events[-1]["response"]
    return found


def _refused(socket: Socket, code: str | None = None, **fields: object) -> None:
    last = socket.create(**fields)[-1]
    expect_equal(last.get("type"), "error", "the last event")
    error = last.get("error")
    expect(isinstance(error, dict), "the error event holds no error object")
    expect(isinstance(last.get("status"), int), "the error event has no status")
    if code is not None:
        expect_equal(last["error"].get("code"), code, "the error's code")


@check
def sequence(server: Server) -> None:
    """Responses follow each other on one connection, each with all its events."""
    with server.socket() as socket:
        for _ in range(2):
            events = socket.create()
            check_response(_completed(events), "the last response")
            expect_equal(events[0]["type"], "response.created", "the first event")
            expect_equal([event["sequence_number"] for event in events], list(range(len(events))), "the numbers")


@check
def continuation(server: Server) -> None:
    """A response that is not stored is continued on its connection."""
    with server.socket() as socket:
        first = _completed(socket.create(input=TELL))
        second = _completed(socket.create(input=ASK, previous_response_id=first["id"]))
    expect_equal(second["previous_response_id"], first["id"], "previous_response_id")
    expect(WORD in text_of(second).lower(), "the model did not see what came before")


@check
def reconnect(server: Server) -> None:
    """On another connection it is not found."""
    with server.socket() as socket:
        first = _completed(socket.create())["id"]
    with server.socket() as other:
        _refused(other, MISSING, previous_response_id=first)


@check
def stored_elsewhere(server: Server) -> None:
    """A stored response is continued on any connection."""
    with server.socket() as socket:
        first = _completed(socket.create(input=TELL, store=True))["id"]
    with server.socket() as other:
        expect(WORD in text_of(_completed(other.create(input=ASK, previous_response_id=first))).lower(), "it is lost")


@check
def eviction(server: Server) -> None:
    """A continuation that fails forgets what it continued."""
    orphan = {"type": "function_call_output", "call_id": "call_nobody_made", "output": "x"}
    with server.socket() as socket:
        first = _completed(socket.create())["id"]
        _refused(socket, previous_response_id=first, input=[orphan])
        _refused(socket, MISSING, previous_response_id=first)


@check
def warm_up(server: Server) -> None:
    """With generate false nothing is said, and the input is kept for what continues it."""
    with server.socket() as socket:
        warm = _completed(socket.create(input=TELL, generate=False))
        expect_equal(warm["output"], [], "the output")
        second = _completed(socket.create(input=ASK, previous_response_id=warm["id"]))
    expect(WORD in text_of(second).lower(), "the model did not see what was kept")


@check
def lanes(server: Server) -> None:
    """Requests that name lanes run beside each other, and each of their events names its lane."""
    with server.socket() as socket:
        for lane in ("a", "b"):
            socket.begin(stream_id=lane)
        events = socket.until(*ENDS)
        events += socket.until(*ENDS)
    for lane in ("a", "b"):
        own = [event for event in events if event.get("stream_id") == lane]
        expect(own, f"no event names the lane {lane!r}")
        check_response(_completed(own), f"the response of the lane {lane!r}")
        expect_equal([event["sequence_number"] for event in own], list(range(len(own))), "the numbers of a lane")
    expect_equal({event.get("stream_id") for event in events}, {"a", "b"}, "the lanes that events name")


@check
def steer(server: Server) -> None:
    """Input is added to a response that runs, and given back where none does."""
    with server.socket() as socket:
        lost = {"previous_response_id": "resp_none", "input": "And now?"}
        socket.tell({"type": "response.steer", **lost})
        failed = socket.until("response.steer.failed")[-1]
        expect_equal(failed.get("type"), "response.steer.failed", "the answer to input for an unknown response")
        expect_equal(failed["error"].get("code"), "response_not_found", "its code")
        expect_equal(failed["steer"], lost, "what it gives back")
        socket.begin(input=LONG)
        running = socket.until("response.created")[-1]["response"]["id"]
        socket.tell({"type": "response.steer", "previous_response_id": running, "input": "And now?"})
        accepted = socket.until("response.steer.accepted")[-1]
        expect_equal(accepted.get("type"), "response.steer.accepted", "the answer to input for one that runs")
        expect_equal(accepted["steer"]["previous_response_id"], running, "the response that it names")


@check
def errors(server: Server) -> None:
    """A wrong message is an error event, and the connection goes on."""
    with server.socket() as socket:
        for message in ("{", {"type": "response.sing"}):
            expect_equal(socket.send(message)[-1].get("type"), "error", f"the answer to {message!r}")
        _refused(socket, temperature="hot")
        _completed(socket.create())
