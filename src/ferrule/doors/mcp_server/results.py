"""What a tool answered as the result of an MCP call, and what of it is kept for later."""

import json
from base64 import b64decode
from binascii import Error as NoBase64

from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent

from ferrule.doors.mcp_server.listing import TEXT, output_schema
from ferrule.doors.mcp_server.shelf import Shelf
from ferrule.protocol.content import ContentPart, InputImage, text_of
from ferrule.protocol.json_text import JsonObject, encodable
from ferrule.protocol.payload import NO_OUTPUT, ToolOutput
from ferrule.tools.action import Observation
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.handler import ToolHandler

MAX_STRUCTURED = 40_000
"""Characters of structured content: what most models' budget for one output leaves of a text (10,000 tokens)."""

_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


def result_of(
    output: ToolOutput, observation: Observation | None, handler: ToolHandler | None, call_id: str, shelf: Shelf
) -> CallToolResult:
    """Return the result of a call. Its pictures, and its whole text where that was cut, are put on the shelf."""
    body = output.body
    parts = body if isinstance(body, tuple) else ()
    content = [_block(part, f"{call_id}-{number}", shelf) for number, part in enumerate(parts, 1)]
    if not parts:
        content = [TextContent(text=output.text if output.text.strip() else NO_OUTPUT)]
    keep_whole(observation, output, call_id, shelf)
    content += [kept.link for kept in shelf if kept.name == text_name(call_id) and len(kept.body) > len(output.text)]
    return CallToolResult(
        content=content,
        structured_content=_structured(handler, observation, output),
        is_error=output.success is False,
    )


def text_name(call_id: str) -> str:
    """Return the name under which the whole text of a call is kept."""
    return f"{call_id}.txt"


def keep_whole(observation: Observation | None, output: ToolOutput, call_id: str, shelf: Shelf) -> None:
    """Keep the whole text of an observation that was cut afterwards."""
    if observation is None or observation.bounded:
        return
    whole = observation.to_llm_content
    text = encodable(whole if isinstance(whole, str) else text_of(tuple(whole)))
    if len(text) > len(output.text):
        shelf.put(text_name(call_id), "The whole output, which the result holds only in part", "text/plain", text)


def failure(text: str) -> CallToolResult:
    """Return the result of a call that could not be done."""
    return CallToolResult(content=[TextContent(text=encodable(text))], is_error=True)


def _block(part: ContentPart, name: str, shelf: Shelf) -> ContentBlock:
    if not isinstance(part, InputImage):
        return TextContent(text=encodable(text_of((part,))) or f"[content of the kind {type(part).__name__}]")
    head, comma, data = (part.image_url or "").partition(",")
    mime = head.removeprefix("data:").partition(";")[0]
    if not (head.startswith("data:") and comma):
        return TextContent(text=f"[image: {encodable(part.image_url or part.file_id or '')}]")
    try:
        shelf.put(f"{name}.{_SUFFIXES.get(mime, 'bin')}", "A picture that a call returned", mime, b64decode(data))
    except NoBase64:
        return TextContent(text="[image whose data is not base64, left out]")
    return ImageContent(data=data, mime_type=mime)


def _structured(handler: ToolHandler | None, observation: Observation | None, output: ToolOutput) -> JsonObject | None:
    """Return the fields of the tool's own observation; the text alone where there is none (a command that was a patch),
    or it would be too long."""
    if not isinstance(handler, ToolDefinition) or output_schema(handler) is None:
        return None
    if handler.observation_type is not None and isinstance(observation, handler.observation_type):
        text = json.dumps(observation.model_dump(mode="python", by_alias=True), default=str, ensure_ascii=False)
        if len(text) <= MAX_STRUCTURED:
            fields: JsonObject = json.loads(encodable(text))
            return fields
    return {TEXT: encodable(output.text)}
