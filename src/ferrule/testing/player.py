"""The script player: takes a request, returns an answer's bytes. No I/O."""

import traceback
from collections.abc import Iterable

import msgspec

from ferrule.testing import chat_wire, messages_wire, responses_wire
from ferrule.testing.delivery import AT_ONCE, Delivery, Place
from ferrule.testing.expectations import unmet
from ferrule.testing.items import Item, complete
from ferrule.testing.plain import json_text
from ferrule.testing.request import Output, Request
from ferrule.testing.rules import complaint
from ferrule.testing.script import Script
from ferrule.testing.steps import Raw, ScriptError, Step, StreamError, Usage, as_step

# Characters per token, to estimate the usage of a step that gives none.
_BYTES_PER_TOKEN = 4
MODEL_WIRES = ("responses", "chat", "messages")
"""The wires over which a script is played."""
_BLANKS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class Answer(msgspec.Struct, frozen=True):
    """A whole HTTP answer. `stall_at` and `cut_at` are the delivery's places as offsets into the body."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"
    delivery: Delivery = AT_ONCE
    stall_at: int | None = None
    cut_at: int | None = None


def is_about_server(request: Request) -> bool:
    """Return whether a client asks what kind of server this is, as ours does: no test means to see that."""
    return request.method == "GET" and request.path.partition("?")[0] == "/props"


class Refused(Exception):
    """The request does not fit the script; the text is written for the test's author."""


class Lane(msgspec.Struct):
    """One script and how far it has been played. `when` selects the conversations that it answers."""

    script: Script
    when: str | None = None
    position: int = 0
    seen: tuple[Output, ...] = ()

    @property
    def name(self) -> str:
        """The prefix of this lane's steps in messages."""
        return "step" if self.when is None else f"lane {self.when!r}, step"


class Player:
    """The lanes of a script, and the numbering of everything that needs an id."""

    def __init__(self, models: Iterable[str], *, strict: bool) -> None:
        self.failures: list[str] = []
        self.lanes = [Lane(Script())]
        self._models = tuple(models)
        self._strict = strict
        self._counts: dict[str, int] = {}

    def unplayed(self) -> list[str]:
        """Return a line for each lane whose script was not played to its end."""
        return [
            f"{lane.name} {lane.position + 1} of {len(lane.script.steps)} was never asked for"
            for lane in self.lanes
            if lane.position < len(lane.script.steps)
        ]

    def answer(self, request: Request) -> Answer:
        """Answer a request and advance the script by one step, unless the request is refused."""
        if request.wire == "models" and request.method == "GET":
            return _json(_listed(self._models, request))
        if is_about_server(request):
            return _error(request, 501, "A scripted model says nothing of itself.", "not_implemented")
        if request.wire not in MODEL_WIRES or request.method != "POST":
            return _error(request, 404, f"Unknown request URL: {request.method} {request.path}", "unknown_url")
        lane = self._lane(request)
        try:
            return self._play(request, lane)
        except (Refused, ScriptError) as error:
            reason = str(error)
        except Exception:  # noqa: BLE001 - the author's functions and edits: `check` shows it, the client gets an answer
            reason = traceback.format_exc()
        failure = f"{lane.name} {lane.position + 1}: {reason}"
        self.failures.append(failure)
        return _error(request, 400, failure, "script_failed")

    def new_id(self, prefix: str) -> str:
        """Return `PREFIX_1`, `PREFIX_2`, ...: the same ids in every run of a test."""
        self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}_{self._counts[prefix]}"

    def _play(self, request: Request, lane: Lane) -> Answer:
        if not request.body:
            raise Refused("the request's body is not a JSON object")
        wrong = complaint(request) if self._strict else None
        if wrong:
            raise Refused(wrong)
        chosen = self._next(lane, request)
        reason = None if chosen.expect is None else unmet(chosen.expect, _unseen(request.outputs, lane.seen))
        if reason:
            raise Refused(reason)
        answer = self._render(chosen, request)
        request.step = lane.position
        lane.position += 1
        if isinstance(chosen, Step) and answer.cut_at is None:
            lane.seen = request.outputs
        return answer

    def _lane(self, request: Request) -> Lane:
        text = request.user_text if len(self.lanes) > 1 else ""
        chosen = (lane for lane in self.lanes if lane.when is not None and lane.when in text)
        return next(chosen, self.lanes[0])

    def _next(self, lane: Lane, request: Request) -> Step | Raw:
        steps = lane.script.steps
        if not steps or (lane.position >= len(steps) and not lane.script.repeat):
            raise Refused(f"the script has only {len(steps)} steps")
        entry = steps[lane.position % len(steps)]
        if not callable(entry):
            return as_step(entry)
        return as_step(entry(request))

    def _render(self, chosen: Step | Raw, request: Request) -> Answer:
        if isinstance(chosen, Raw):
            body = chosen.body
            status, headers, content_type = chosen.status, chosen.headers, chosen.content_type
        elif isinstance(chosen.end, StreamError) and not request.stream:
            return _failed(request, 500, chosen.end.fields())
        else:
            status, headers = 200, ()
            body = self._said(chosen, request)
            content_type = "text/event-stream; charset=utf-8" if request.stream else "application/json"
        delivery = chosen.delivery
        stall_at = None if delivery.stall is None else _offset(delivery.stall.at, body)
        cut_at = None if delivery.cut_after is None else _offset(delivery.cut_after, body)
        return Answer(body, status, headers, content_type, delivery, stall_at, cut_at)

    def _said(self, chosen: Step, request: Request) -> bytes:
        cut_short = chosen.end in ("max_output_tokens", "content_filter")
        output = complete(chosen.items, self.new_id, cut_short=cut_short)
        usage = chosen.usage or _usage(request, output)
        if request.wire == "chat":
            completion_id = self.new_id("chatcmpl")
            if not request.stream:
                return json_text(chat_wire.completion(request.body, completion_id, chosen, output, usage)).encode()
            events = chat_wire.stream(request.body, completion_id, chosen, output, usage)
        elif request.wire == "messages":
            whole = messages_wire.message(request.body, self.new_id("msg"), chosen, output, usage)
            if not request.stream:
                return json_text(whole).encode()
            events = messages_wire.stream(whole, chosen, output)
        else:
            final = responses_wire.response_object(request.body, self.new_id("resp"), chosen, output, usage)
            if not request.stream:
                return json_text(final).encode()
            events = responses_wire.stream(final, chosen)
        for edit in chosen.edits:
            events = list(edit(events))
        return chosen.framing.encode(events)


def _unseen(outputs: tuple[Output, ...], seen: tuple[Output, ...]) -> tuple[Output, ...]:
    """Return the new outputs: a history that is sent again starts with those already seen."""
    return outputs[len(seen) :] if outputs[: len(seen)] == seen else outputs


def _usage(request: Request, output: list[Item]) -> Usage:
    return Usage(len(request.raw) // _BYTES_PER_TOKEN, len(json_text(output)) // _BYTES_PER_TOKEN)


def _offset(place: Place, body: bytes) -> int:
    if isinstance(place, int):
        return min(place, len(body))
    at = body.find(place.encode())
    if at < 0:
        raise ScriptError(f"no event of the answer contains {place!r}")
    ends = [end + len(blank) for blank in _BLANKS if (end := body.find(blank, at)) >= 0]
    return min(ends, default=len(body))


def _listed(names: tuple[str, ...], request: Request) -> Item:
    """Return the list of models; both APIs have one, at the same place."""
    if "anthropic-version" in request.headers:
        created = "1970-01-01T00:00:00Z"
        data = [{"type": "model", "id": name, "display_name": name, "created_at": created} for name in names]
        return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}
    listed = [{"id": name, "object": "model", "created": 0, "owned_by": "ferrule"} for name in names]
    return {"object": "list", "data": listed}


def _json(value: Item, status: int = 200) -> Answer:
    return Answer(json_text(value).encode(), status)


def _error(request: Request, status: int, text: str, code: str) -> Answer:
    return _failed(request, status, {"message": text, "type": "invalid_request_error", "param": None, "code": code})


def _failed(request: Request, status: int, error: Item) -> Answer:
    """Return an answer with an error object, in the envelope of the request's API."""
    return _json({"type": "error", "error": error} if request.wire == "messages" else {"error": error}, status)
