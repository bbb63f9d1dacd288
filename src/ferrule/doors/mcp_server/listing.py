"""A session's tools as an MCP client lists them. Pure."""

from typing import Any

from mcp_types import Tool, ToolAnnotations

from ferrule.protocol.json_text import JsonObject
from ferrule.session.toolset import Toolset
from ferrule.tools import annotations as hints
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.handler import ToolHandler

TEXT = "text"
"""The field of structured content that holds the text alone, where the other fields cannot."""

_PICTURES = frozenset({"images", "image_url"})
_TEXT_FIELD = {
    "type": "string",
    "description": "Instead of the other fields, where a call was answered otherwise or they would be too long: its "
    "text",
}


def tools_of(toolset: Toolset) -> list[Tool]:
    """Return every tool that a client can call, by the name of its function form."""
    registry = toolset.current()[1]
    listed = []
    for spec in toolset.specs("chat"):
        function = spec["function"]
        found = registry.find(function["name"])
        listed.append(
            Tool(
                name=function["name"],
                description=function.get("description"),
                input_schema=_object(function.get("parameters") or {}),
                output_schema=None if found is None else output_schema(found.handler),
                annotations=shown(hints.ToolAnnotations() if found is None else found.handler.annotations),
            )
        )
    return listed


def shown(annotations: hints.ToolAnnotations) -> ToolAnnotations:
    """Return the hints with nothing left to the protocol's defaults, which few clients know."""
    may_destroy = annotations.destructiveHint is not False and not annotations.readOnlyHint
    return ToolAnnotations(
        title=annotations.title,
        read_only_hint=annotations.readOnlyHint,
        destructive_hint=may_destroy,
        idempotent_hint=annotations.idempotentHint,
        open_world_hint=annotations.openWorldHint,
    )


def output_schema(handler: ToolHandler) -> JsonObject | None:
    """Return the schema of structured content: the fields of the tool's observation, none of which must be there.

    None for a tool whose observation has no fields or holds pictures: clients show the structured content instead of
    the text and the pictures.
    """
    fields: dict[str, Any] = {}
    observed = handler.observation_type if isinstance(handler, ToolDefinition) else None
    if observed is not None:
        fields = observed.model_fields
    if observed is None or not fields or not _PICTURES.isdisjoint(fields):
        return None
    schema: JsonObject = observed.model_json_schema(mode="serialization")
    schema.pop("required", None)
    return schema | {"properties": {TEXT: _TEXT_FIELD} | schema["properties"]}


def _object(schema: JsonObject) -> JsonObject:
    return schema if schema.get("type") == "object" else {"type": "object", **schema}
