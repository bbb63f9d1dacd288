"""What schemas and arguments cost: sanitising 2,000 foreign tools once, and reading one call's arguments."""

import json
import random
from functools import partial
from typing import Any

import msgspec
from pydantic import BaseModel, TypeAdapter

from benchmarks.measure import bounded, cpu_in_turns
from ferrule.protocol.json_schema import JsonSchema
from ferrule.schemas.sanitize import sanitize
from ferrule.schemas.writer import schema_of_model
from ferrule.tools.arguments import ModelValidator, read_arguments

TOOLS = 2_000
_WORDS = ["query", "owner", "repo", "page", "per_page", "sort", "labels", "body", "title", "state", "path", "ref"]


def foreign_tools(count: int, seed: int = 7) -> list[dict[str, Any]]:
    """Tool schemas as MCP servers write them: three to ten parameters, some nested, some with references and unions."""
    rng = random.Random(seed)
    return [_tool(rng) for _ in range(count)]


def _tool(rng: random.Random) -> dict[str, Any]:
    names = rng.sample(_WORDS, rng.randint(3, 10))
    tool: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {name: _parameter(rng) for name in names},
        "required": names[:2],
        "additionalProperties": False,
    }
    if rng.random() < 0.2:
        tool["definitions"] = {"Filter": {"type": "object", "properties": {"by": {"enum": ["name", 1]}}}}
        tool["properties"]["filter"] = {"$ref": "#/definitions/Filter"}
    return tool


def _parameter(rng: random.Random) -> dict[str, Any]:
    text = "What the parameter is for, in one sentence of the usual length."
    return rng.choice(
        [
            {"type": "string", "description": text},
            {"type": "string", "description": text, "enum": ["open", "closed", "all"]},
            {"type": "integer", "description": text, "minimum": 1, "maximum": 100, "default": 30},
            {"type": "boolean", "description": text, "default": False},
            {"type": "array", "description": text, "items": {"type": "string"}},
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Title", "description": text},
            {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}, "description": text},
            {"description": text},
        ]
    )


class ReadFile(BaseModel):
    """The arguments of a typical call."""

    file_path: str
    offset: int = 1
    limit: int = 2000
    mode: str = "slice"


def main() -> None:
    """Print one line a row."""
    schemas = [JsonSchema(json.loads(json.dumps(tool))) for tool in foreign_tools(TOOLS)]
    floor, ours = cpu_in_turns(
        [
            lambda: [msgspec.json.encode(schema.mapping) for schema in schemas],
            lambda: [sanitize(schema) for schema in schemas],
        ],
        7,
    )
    print(bounded("sanitise 2,000 foreign tools, floor encoding them", ours, 100, "ms", 1e3, floor), flush=True)

    validator = ModelValidator(ReadFile, schema_of_model(ReadFile))
    right = '{"file_path":"/repo/src/main.py","offset":120,"limit":200}'
    wrong = '{"file_path":"/repo/src/main.py","offset":"120","limit":"200"}'
    validate = partial(TypeAdapter(ReadFile).validate_json, right)
    works = [validate, partial(read_arguments, right, validator), partial(read_arguments, wrong, validator)]
    floor, strict, tolerant = cpu_in_turns(works, 9, 2_000)
    print(bounded("read arguments, strict, floor and 1 us", strict, round(floor * 1e6 + 1, 1), "us", 1e6, floor))
    print(bounded("read arguments, tolerant", tolerant, 50, "us", 1e6, floor))


if __name__ == "__main__":
    main()
