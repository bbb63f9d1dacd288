"""What schemas and arguments cost: sanitising 2,000 foreign tools once, and reading one call's arguments.

Run: python benchmarks/bench_schemas.py
"""

import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec
from pydantic import BaseModel, TypeAdapter

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.schema_sanitize import sanitize
from ferrule.tools.arguments import ModelValidator, read_arguments
from ferrule.tools.schema_writer import schema_of_model

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


def _median(work: Callable[[], object], runs: int, repeat: int) -> float:
    """Seconds of one call of `work`, the median of `runs` runs of `repeat` calls."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        for _ in range(repeat):
            work()
        times.append((time.process_time() - start) / repeat)
    return statistics.median(times)


def _row(name: str, ours: float, floor: float, unit: float, suffix: str, aim: str) -> None:
    print(
        f"{name}: ours {ours * unit:.2f} {suffix}, floor {floor * unit:.2f} {suffix}, "
        f"ratio {ours / floor:.1f} (aim {aim})"
    )


def main() -> None:
    """Print one line a row."""
    schemas = [JsonSchema(json.loads(json.dumps(tool))) for tool in foreign_tools(TOOLS)]
    ours = _median(lambda: [sanitize(schema) for schema in schemas], 7, 1)
    floor = _median(lambda: [msgspec.json.encode(schema.mapping) for schema in schemas], 7, 1)
    _row("sanitise 2,000 foreign tools", ours, floor, 1e3, "ms", "100 ms")

    adapter = TypeAdapter(ReadFile)
    validator = ModelValidator(ReadFile, schema_of_model(ReadFile))
    raw = '{"file_path":"/repo/src/main.py","offset":120,"limit":200}'
    floor = _median(lambda: adapter.validate_json(raw), 9, 20_000)
    ours = _median(lambda: read_arguments(raw, validator), 9, 20_000)
    _row("read arguments, strict", ours, floor, 1e6, "us", "floor + 1 us")

    wrong = '{"file_path":"/repo/src/main.py","offset":"120","limit":"200"}'
    ours = _median(lambda: read_arguments(wrong, validator), 9, 2_000)
    _row("read arguments, tolerant", ours, floor, 1e6, "us", "50 us")


if __name__ == "__main__":
    main()
