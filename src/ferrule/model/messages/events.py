"""The events of a Messages stream, as far as they are read. Any field may be missing or null.

Source: the stream events of the Messages API, as typed by its Python SDK 2.14.
"""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec


class Usage(msgspec.Struct):
    """The tokens of a message. `input_tokens` are those that were neither written to the cache nor read from it."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: dict[str, Any] | None = None


class Message(msgspec.Struct):
    """A message: only begun, or whole, as the answer of a server that does not stream."""

    id: str | None = None
    model: Any = None
    content: list[msgspec.Raw] | None = None
    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None
    usage: Usage | None = None


class MessageStart(msgspec.Struct, tag="message_start"):
    """The message began."""

    message: Message = msgspec.field(default_factory=Message)


class BlockStart(msgspec.Struct, tag="content_block_start"):
    """A block began."""

    index: int | None = None
    content_block: msgspec.Raw = msgspec.Raw()


class Delta(msgspec.Struct):
    """A piece of a block."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    citation: msgspec.Raw = msgspec.Raw()


class BlockDelta(msgspec.Struct, tag="content_block_delta"):
    """A block goes on."""

    index: int | None = None
    delta: Delta = msgspec.field(default_factory=Delta)


class BlockStop(msgspec.Struct, tag="content_block_stop"):
    """A block is whole."""

    index: int | None = None


class Stop(msgspec.Struct):
    """Why a message ends."""

    stop_reason: str | None = None
    stop_details: dict[str, Any] | None = None


class MessageDelta(msgspec.Struct, tag="message_delta"):
    """The message is about to end."""

    delta: Stop = msgspec.field(default_factory=Stop)
    usage: Usage | None = None


class MessageStop(msgspec.Struct, tag="message_stop"):
    """The message ended."""


class Whole(Message, tag="message"):
    """A message in one piece, from a server that does not stream."""


class Ping(msgspec.Struct, tag="ping"):
    """A sign of life."""


Event = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Whole | Ping
decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)

KINDS: Mapping[str, type[Event]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Event)}


class Head(msgspec.Struct):
    """The part of a block that is read when it begins."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    citations: list[msgspec.Raw] | None = None
    input: msgspec.Raw = msgspec.Raw()


read_head = msgspec.json.Decoder(Head).decode
read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
