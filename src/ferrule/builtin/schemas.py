"""The parameters of the built-in tools as checked-in JSON, so that listing tools needs no pydantic.

`scripts/schemas` writes the file from the `Action` classes; a test compares the two.
"""

from functools import cache
from pathlib import Path

import msgspec

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.specs import ResponsesApiTool

FILE = Path(__file__).with_name("schemas.json")


@cache
def _schemas() -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, msgspec.Raw])


def function_spec(name: str, description: str) -> ResponsesApiTool:
    """The spec of a built-in function tool."""
    return ResponsesApiTool(name=name, description=description, parameters=schema(name))


def schema(name: str) -> JsonSchema:
    """The checked-in schema of a built-in tool's arguments."""
    return JsonSchema(encoded=msgspec.json.format(bytes(_schemas()[name]), indent=-1))
