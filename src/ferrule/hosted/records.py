"""What a conversation remembers beside what the model sees of it: items of types that only this server makes."""

from typing import TypeVar

import msgspec

from ferrule.protocol.items import ResponseItem, kind_of, read_item
from ferrule.protocol.json_text import JsonObject

PREFIX = "ferrule_"
"""How their types begin. A client cannot send such items."""


class HeldCall(msgspec.Struct, frozen=True, tag="ferrule_held"):
    """A call that waits until the client allows it. `call` is the id of the model's call, `function` what it calls, and
    `request` the item that the client was shown."""

    call: str
    function: str
    request: JsonObject

    @property
    def id(self) -> str:
        """The id of the request."""
        return str(self.request.get("id"))


class Answer(msgspec.Struct, frozen=True, tag="ferrule_answer"):
    """The client's answer to such a request."""

    request: str
    approve: bool
    reason: str | None = None


class ToolList(msgspec.Struct, frozen=True, tag="ferrule_tools"):
    """The tools of a server, as the client was shown them. `source` tells which server and which of its tools were
    meant; empty if the client sent it."""

    server: str
    tools: tuple[JsonObject, ...]
    source: str = ""


Record = HeldCall | Answer | ToolList
R = TypeVar("R", bound=msgspec.Struct)


def as_item(record: Record) -> ResponseItem:
    """Return a record as an item."""
    return read_item(msgspec.json.encode(record))


def is_record(item: ResponseItem) -> bool:
    """Return whether an item is a record, which no model is sent."""
    return kind_of(item.view).startswith(PREFIX)


def record_in(item: ResponseItem, kind: type[R]) -> R | None:
    """Return the record of this kind that an item is; None if it is something else."""
    if kind_of(item.view) != kind.__struct_config__.tag:
        return None
    return msgspec.json.decode(item.raw, type=kind)
