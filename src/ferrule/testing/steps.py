"""One step of a script: the answer to one request."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Unpack

import msgspec

from ferrule.testing.delivery import AT_ONCE, Delivery, DeliveryOptions
from ferrule.testing.items import Item, message
from ferrule.testing.plain import JsonObject, json_text
from ferrule.testing.request import Request
from ferrule.testing.sse import OPENAI_FRAMING, Edit, Framing

# Characters of text in one delta: a few tokens, so that short arguments already arrive in several pieces.
DELTA_CHARS = 16


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one response. `cached_tokens` and `written_tokens` (to the cache) are part of the input,
    `reasoning_tokens` of the output."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    written_tokens: int = 0


class Failed(msgspec.Struct, frozen=True):
    """The response ends with `response.failed`; on the other wires with an error in the stream."""

    message: str = "The model failed to generate a response."
    code: str = "server_error"


class StreamError(msgspec.Struct, frozen=True):
    """The stream ends with an error event after the items.

    `nested` wraps the fields in `error` on the Responses wire as gateways do; flat is OpenAI's form there. `more` are
    further fields, such as `resets_in_seconds`.
    """

    message: str = "The server had an error while processing your request."
    code: str | int | None = None
    type: str | None = None
    nested: bool = False
    more: Mapping[str, object] = msgspec.field(default_factory=dict)

    def fields(self) -> Item:
        """Return the error object; a missing `type` is left out."""
        return (
            {"code": self.code, "message": self.message} | ({"type": self.type} if self.type else {}) | dict(self.more)
        )


# `missing`: the stream ends normally, but without its last event and without `[DONE]`.
End = Literal["completed", "max_output_tokens", "content_filter", "missing"] | Failed | StreamError


Outputs = Mapping[str, str]
# A text that an output contains, a pattern found in one, a test of all of them, or one of these for a given call id.
Matcher = str | re.Pattern[str] | Callable[[Outputs], object]
Expectation = Matcher | Mapping[str, Matcher] | Sequence[Matcher]


class Step(msgspec.Struct, frozen=True):
    """The output items of one response."""

    items: tuple[JsonObject, ...] = ()
    expect: Expectation | None = None
    usage: Usage | None = None
    end: End = "completed"
    delta_chars: int = DELTA_CHARS
    edits: tuple[Edit, ...] = ()
    framing: Framing = OPENAI_FRAMING
    delivery: Delivery = AT_ONCE


class Raw(msgspec.Struct, frozen=True):
    """A whole answer, byte for byte."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "text/event-stream"
    expect: Expectation | None = None
    delivery: Delivery = AT_ONCE


# The entries of a script: a text is a message, a mapping one item, a sequence several items of one response.
Simple = Step | Raw | str | JsonObject | Sequence[JsonObject]
StepLike = Simple | Callable[[Request], Simple]


class ScriptError(ValueError):
    """A script that cannot be played; the text names the place and the error."""


def step(
    *items: JsonObject | str,
    expect: Expectation | None = None,
    usage: Usage | None = None,
    end: End = "completed",
    delta_chars: int = DELTA_CHARS,
    edits: Edit | Sequence[Edit] = (),
    framing: Framing = OPENAI_FRAMING,
    **delivery: Unpack[DeliveryOptions],
) -> Step:
    """Build a step with all its options; a plain text among the items is a message."""
    said = tuple(message(item) if isinstance(item, str) else item for item in items)
    changes = (edits,) if callable(edits) else tuple(edits)
    return Step(said, expect, usage, end, delta_chars, changes, framing, Delivery(**delivery))


def raw(
    body: bytes,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    content_type: str = "text/event-stream",
    expect: Expectation | None = None,
    **delivery: Unpack[DeliveryOptions],
) -> Raw:
    """Build a whole response body as bytes, for frozen captures."""
    return Raw(body, status, tuple((headers or {}).items()), content_type, expect, Delivery(**delivery))


def http_error(
    status: int,
    message: str = "scripted error",
    *,
    code: str | None = None,
    type: str = "scripted_error",  # noqa: A002 (the wire's name)
    headers: Mapping[str, str] | None = None,
    delay: float = 0.0,
    **more: object,
) -> Raw:
    """Build an answer with this status and OpenAI's error object; `more` are further fields of it."""
    body = json_text({"error": {"message": message, "type": type, "param": None, "code": code, **more}})
    return raw(body.encode(), status=status, headers=headers, content_type="application/json", delay=delay)


def hang_up(*, delay: float = 0.0) -> Raw:
    """Close the connection without answering."""
    return Raw(b"", delivery=Delivery(delay=delay, hang_up=True))


def as_step(given: object) -> Step | Raw:
    """Convert a script's entry to a step. Raises ScriptError."""
    match given:
        case Step() | Raw():
            found: Step | Raw = given
        case str() | Mapping():
            found = step(given)
        case Sequence():
            found = step(*given)
        case _:
            raise ScriptError(f"a step is items, a text, step(...), raw(...) or a function, not {given!r}")
    given_items: tuple[object, ...] = found.items if isinstance(found, Step) else ()
    for item in given_items:
        if not isinstance(item, Mapping) or not isinstance(item.get("type"), str):
            raise ScriptError(f"an item is an object with a `type`, not {item!r}")
    return found
