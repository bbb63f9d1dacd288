"""The outcome of a call: as the client is shown it, and as the model reads it."""

import msgspec

from ferrule.hosted.mcp.declared import RemoteServer
from ferrule.hosted.mcp.remote import Failure
from ferrule.mcp.content import parts_of
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.items import OutputBody
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.truncation import OutputBudget, truncate_text

BUDGET = OutputBudget(10_000)
"""Of the text of a result: as of a command of a session."""
ERROR_BYTES = 64 << 10
"""Of the blocks in which a tool tells its error; more become one text, cut to `BUDGET`."""
IMAGE = "[an image, which the model sees]"


class Outcome(msgspec.Struct, frozen=True):
    """The final fields of a call's item, and what the model reads."""

    fields: JsonObject
    told: OutputBody

    @property
    def is_failed(self) -> bool:
        """Whether the call failed."""
        return bool(self.fields["status"] == "failed")


def outcome_of(result: JsonObject | Failure, server: RemoteServer) -> Outcome:
    """Return the outcome of a call. A server that sends its credentials back shows them to nobody."""
    if isinstance(result, Failure):
        return Outcome(_failed(result.error), f"The call failed: {result.text}")
    cleared = server.cleared(result)
    parts = parts_of(cleared)
    text = truncate_text(_text(parts), BUDGET)
    told: OutputBody = text
    if images := [part for part in parts if isinstance(part, InputImage)]:
        body: tuple[ContentPart, ...] = (InputText(text), *images)
        told = body
    if cleared.get("isError") is True:
        content = _content(cleared.get("content"), text)
        return Outcome(_failed({"type": "mcp_tool_execution_error", "content": content}), told)
    return Outcome({"status": "completed", "output": text, "error": None}, told)


def _failed(error: JsonObject) -> JsonObject:
    return {"status": "failed", "output": None, "error": error}


def _content(blocks: JsonValue, text: str) -> JsonValue:
    """Return the blocks of an error, unless they are too many, or none."""
    given = [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    fits = given and len(msgspec.json.encode(given)) <= ERROR_BYTES
    return given if fits else [{"type": "text", "text": text}]


def _text(parts: tuple[ContentPart, ...]) -> str:
    return "\n".join(part.text if isinstance(part, InputText) else IMAGE for part in parts)


def kept_output(item: JsonObject) -> str:
    """Return what the model read of a call that the client sends back."""
    output, error = item.get("output"), item.get("error")
    if isinstance(output, str):
        return output
    if isinstance(error, dict) and error.get("type") == "mcp_tool_execution_error":
        blocks = error.get("content")
        return truncate_text(_text(parts_of({"content": blocks, "isError": True})), BUDGET)
    said = error.get("message") if isinstance(error, dict) else error
    return f"The call failed: {said}" if said else "(its output is not kept)"
