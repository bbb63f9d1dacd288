"""Responses that go on without their client."""

import time

from ferrule.conformance.checks import check
from ferrule.conformance.failures import Failed, expect, expect_equal
from ferrule.conformance.server import TERMINAL, Json, Server, Stream

POLL_S = 0.05
LONG = "Count from 1 to 2000 in words, one number a line. Do not stop early."
"""Takes any model longer than a check needs to cancel it."""


def _ended(server: Server, response_id: str) -> Json:
    """Wait for the end of a response."""
    deadline = time.monotonic() + server.wait_s
    while time.monotonic() < deadline:
        found = server.get(f"/responses/{response_id}")
        if found["status"] in TERMINAL:
            return found
        time.sleep(POLL_S)
    raise Failed(f"the response did not end within {server.wait_s:g} seconds")


@check
def poll(server: Server) -> None:
    """It is answered at once, runs on, and ends completed."""
    made = server.create(background=True)
    expect(made["status"] in ("queued", "in_progress"), f"it is {made['status']} at once")
    expect_equal(made["background"], True, "background")
    ended = _ended(server, made["id"])
    expect_equal(ended["status"], "completed", "the status")
    expect(ended["output"], "the output is empty")


@check
def stream(server: Server) -> None:
    """Its stream is that of any response, and can be read again after its end."""
    first = server.stream(background=True)
    again = server.follow(first.final["id"])
    expect_equal(_told(again), _told(first), "the events")


def _told(stream: Stream) -> list[Json]:
    """Return what the events say, without their padding, which is random."""
    return [{name: value for name, value in event.data.items() if name != "obfuscation"} for event in stream.events]


@check
def starting_after(server: Server) -> None:
    """A stream goes on after any number."""
    whole = server.stream(background=True)
    for number in (0, len(whole.events) // 2):
        rest = server.follow(whole.final["id"], starting_after=number)
        expect_equal(
            [event.data["sequence_number"] for event in rest.events],
            list(range(number + 1, len(whole.events))),
            f"the numbers after {number}",
        )


@check
def client_leaves(server: Server) -> None:
    """It goes on when the client of its stream leaves."""
    with server.events("POST", "/responses", server.body(stream=True, background=True)) as events:
        first = next(events, None)
    expect(first is not None, "the stream is empty")
    made = first.data["response"]["id"] if first else ""
    expect_equal(_ended(server, made)["status"], "completed", "the status")


@check
def cancel(server: Server) -> None:
    """It is cancelled; cancelling it again changes nothing."""
    path = f"/responses/{server.create(input=LONG, background=True)['id']}"
    first = server.post(f"{path}/cancel")
    expect_equal(first["status"], "cancelled", "the status")
    expect_equal(server.post(f"{path}/cancel"), first, "the response after cancelling again")
    expect_equal(server.get(path), first, "the stored response")


@check
def cancel_foreground(server: Server) -> None:
    """Any other response cannot be cancelled."""
    answer = server.send("POST", f"/responses/{server.answered['id']}/cancel")
    expect_equal(answer.status, 400, "the status")
    expect(answer.error, "there is no error")


@check
def must_be_stored(server: Server) -> None:
    """Without being stored it is refused."""
    expect_equal(server.ask(background=True, store=False).status, 400, "the status")


@check
def cancelled_stream(server: Server) -> None:
    """The stream of one that is cancelled ends, without an event of a made-up type."""
    made = server.create(input=LONG, background=True)["id"]
    with server.events("GET", f"/responses/{made}", stream="true") as events:
        expect(next(events, None) is not None, "the stream is empty")
        server.post(f"/responses/{made}/cancel")
        rest = [event.type for event in events if event is not None]
    expect("response.cancelled" not in rest, "there is an event response.cancelled, which the API does not know")
    expect("response.completed" not in rest, "a cancelled response says that it is completed")
