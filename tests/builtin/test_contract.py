"""The parameters that models were trained on: names, types and what is required, tool by tool."""

from typing import Any

import msgspec
import pytest

from ferrule.builtin import BUILTINS

NUMBER, STRING, BOOLEAN = {"type": "number"}, {"type": "string"}, {"type": "boolean"}


def closed(required: list[str], **properties: object) -> dict[str, object]:
    """An object that takes these properties and no others."""
    shape: dict[str, object] = {"type": "object", "properties": properties, "additionalProperties": False}
    return shape | {"required": required} if required else shape


INDENTATION = closed(
    [],
    anchor_line=NUMBER,
    max_levels=NUMBER,
    include_siblings=BOOLEAN,
    include_header=BOOLEAN,
    max_lines=NUMBER,
)
STATUS = {"type": "string", "enum": ["pending", "in_progress", "completed"]}
CONTRACT = {
    "apply_patch": closed(["input"], input=STRING),
    "read_file": closed(
        ["file_path"], file_path=STRING, offset=NUMBER, limit=NUMBER, mode=STRING, indentation=INDENTATION
    ),
    "list_dir": closed(["dir_path"], dir_path=STRING, offset=NUMBER, limit=NUMBER, depth=NUMBER),
    "grep_files": closed(["pattern"], pattern=STRING, include=STRING, path=STRING, limit=NUMBER),
    "update_plan": closed(
        ["plan"],
        explanation=STRING,
        plan={"type": "array", "items": closed(["step", "status"], step=STRING, status=STATUS)},
    ),
    "view_image": closed(["path"], path=STRING),
    "js_repl_reset": closed([]),
}


def shape(node: Any, named: bool = False) -> Any:
    """The schema without its descriptions; in a map of properties a key is a name, whatever it says."""
    if isinstance(node, list):
        return [shape(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: shape(value, named=key == "properties" and not named)
        for key, value in node.items()
        if named or key != "description"
    }


@pytest.mark.parametrize("name", CONTRACT)
def test_parameters_are_the_contract(name: str) -> None:
    assert shape(msgspec.json.decode(BUILTINS[name].parameters)) == CONTRACT[name]
