"""The events of a Responses stream, as far as they are read. Any field may be missing or null.

Source: the streaming events of the Responses API.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, get_args

import msgspec

from ferrule.model.payloads import UNREADABLE, Unread, load_odd
from ferrule.protocol.json_text import JsonValue


class Numbered(msgspec.Struct, kw_only=True):
    """An event that may be numbered."""

    sequence_number: int | None = None


class Located(Numbered, kw_only=True):
    """An event about an item."""

    item_id: str | None = None
    output_index: int | None = None


class Delta(Located):
    """A piece of an item."""

    delta: str | None = None


class TextDelta(Delta, tag="response.output_text.delta"):
    """A piece of a message's text."""

    content_index: int | None = None
    logprobs: msgspec.Raw = msgspec.Raw()


class RefusalDelta(Delta, tag="response.refusal.delta"):
    """A piece of a refusal."""

    content_index: int | None = None


class SummaryDelta(Delta, tag="response.reasoning_summary_text.delta"):
    """A piece of a reasoning summary."""

    summary_index: int | None = None


class ReasoningDelta(Delta, tag="response.reasoning_text.delta"):
    """A piece of raw reasoning."""

    content_index: int | None = None


class TextDone(Located, tag="response.output_text.done"):
    """A message's whole text."""

    content_index: int | None = None
    text: str | None = None


class ArgumentsDelta(Delta, tag="response.function_call_arguments.delta"):
    """A piece of a call's arguments; some bridges send them whole, as an object."""

    delta: Any = None


class InputDelta(Delta, tag="response.custom_tool_call_input.delta"):
    """A piece of a custom call's input."""


class ArgumentsDone(Located, tag="response.function_call_arguments.done"):
    """A call's whole arguments."""

    arguments: msgspec.Raw = msgspec.Raw()
    name: str | None = None
    call_id: str | None = None


class InputDone(Located, tag="response.custom_tool_call_input.done"):
    """A custom call's whole input."""

    input: msgspec.Raw = msgspec.Raw()
    name: str | None = None
    call_id: str | None = None


class ItemAdded(Located, tag="response.output_item.added"):
    """An item begins."""

    item: msgspec.Raw = msgspec.Raw()


class ItemDone(Located, tag="response.output_item.done"):
    """A whole item."""

    item: msgspec.Raw = msgspec.Raw()


class Usage(msgspec.Struct):
    """The tokens of a response."""

    input_tokens: int | None = 0
    output_tokens: int | None = 0
    input_tokens_details: dict[str, Any] | None = None
    output_tokens_details: dict[str, Any] | None = None


class Response(msgspec.Struct):
    """A response, as far as it is known."""

    id: str | None = None
    output: list[msgspec.Raw] | None = None
    usage: Usage | None = None
    end_turn: bool | None = None
    incomplete_details: dict[str, Any] | None = None
    error: Any = None
    status: str | None = None
    model: Any = None


class Lifecycle(Numbered, kw_only=True):
    """An event about the response itself."""

    response: Response = msgspec.field(default_factory=Response)


class Created(Lifecycle, tag="response.created"):
    """The response began."""


class Completed(Lifecycle, tag="response.completed"):
    """The response is complete, unless its status says otherwise."""


class Incomplete(Lifecycle, tag="response.incomplete"):
    """The response was cut short."""


class Failed(Lifecycle, tag="response.failed"):
    """The response failed."""


class Cancelled(Lifecycle, tag="response.cancelled"):
    """The response was cancelled."""


class Done(Lifecycle, tag="response.done"):
    """The response ended as its status says; some bridges send this in place of the others."""


Event = (
    TextDelta | RefusalDelta | SummaryDelta | ReasoningDelta | ArgumentsDelta | InputDelta | ArgumentsDone
    | InputDone | ItemAdded | ItemDone | TextDone | Created | Completed | Done | Incomplete | Failed
    | Cancelled
)  # fmt: skip
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)

KINDS: Mapping[str, type[Event]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Event)}


class Other(Located, kw_only=True):
    """An event of a kind that is not read: only its number and its item count, and the rest is not decoded. Servers
    repeat the whole request in some of them."""

    type: str
    object: str = ""

    @property
    def is_passed_over(self) -> bool:
        """True if the kind alone shows that the event can be skipped."""
        return self.type not in KINDS and self.object != "response" and bool(self.type) and not is_error(self.type)


_other_decoder = msgspec.json.Decoder(Other)


def is_error(kind: str) -> bool:
    """Return whether an event is an error by its kind (`error`, `response.error`)."""
    return kind.endswith("error")


def read_event(payload: bytes) -> Event | Other | dict[str, JsonValue] | Unread:
    """Decode an event; one that does not fit its type is the plain object."""
    try:
        return _decoder.decode(payload)
    except UNREADABLE:
        pass
    with suppress(*UNREADABLE):
        other = _other_decoder.decode(payload)
        if other.is_passed_over:
            return other
    return load_odd(payload, _decoder)
