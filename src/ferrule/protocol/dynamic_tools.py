"""Tools supplied by a client at run time: the client describes them, receives their calls, and answers."""

import msgspec

from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.json_text import JsonValue

CALL_TIMEOUT = 600.0
"""Seconds a client has to answer a call: it may have to ask a person."""

DynamicToolCallOutputContentItem = InputText | InputImage


class DynamicToolSpec(msgspec.Struct, frozen=True):
    """A tool supplied by the client. `input_schema` is any JSON Schema. Tools of one `namespace` are a group, which has
    the description that the first of them gives."""

    name: str
    description: str
    input_schema: JsonValue
    namespace: str | None = None
    namespace_description: str = ""


class DynamicToolResponse(msgspec.Struct, frozen=True):
    """The client's answer to a call: texts and images, and whether the tool succeeded."""

    content_items: tuple[DynamicToolCallOutputContentItem, ...]
    success: bool = True
