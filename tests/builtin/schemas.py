"""The checked-in schemas of the built-in tools, made from their Action classes."""

from pathlib import Path

import msgspec

from ferrule.builtin import BUILTINS
from ferrule.builtin.schemas import FILE
from ferrule.tools.schema_writer import schema_of_model
from tests.builtin.states import conversation


def generate() -> bytes:
    """The content of `schemas.json`."""
    state = conversation(Path.cwd())
    parameters = {
        made.name: msgspec.Raw(schema_of_model(made.action_type).encoded)
        for tool in BUILTINS.values()
        for made in tool.create(state)
        if tool.namespace is None
    }
    return msgspec.json.format(msgspec.json.encode(parameters, order="sorted"), indent=1) + b"\n"


if __name__ == "__main__":
    FILE.write_bytes(generate())
