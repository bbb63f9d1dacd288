"""Every document of a public collection of functions passes through without losing a property.

Run by `scripts/compat`, with folders of JSON files: a function is any object with a name and parameters. The data stays
where it is.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue
from ferrule.schemas.plain import plain_schema
from ferrule.schemas.sanitize import sanitize


def functions(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """Every function in a document."""
    if isinstance(value, Mapping):
        if isinstance(value.get("name"), str) and isinstance(value.get("parameters"), Mapping):
            yield value
            return
        for below in value.values():
            yield from functions(below)
    elif isinstance(value, list):
        for below in value:
            yield from functions(below)


def documents(file: Path) -> Iterator[JsonValue]:
    """The JSON documents of a file: one, or one a line."""
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        yield json.loads(text)
    except ValueError:
        for line in filter(None, text.splitlines()):
            try:
                yield json.loads(line)
            except ValueError:
                return


def properties(node: JsonValue, at: str = "") -> Iterator[str]:
    """The paths of all properties that a schema declares."""
    if not isinstance(node, Mapping):
        return
    declared = node.get("properties")
    for name, below in declared.items() if isinstance(declared, Mapping) else ():
        yield f"{at}/{name}"
        yield from properties(below, f"{at}/{name}")
    if isinstance(node.get("items"), Mapping):
        yield from properties(node["items"], f"{at}/[]")


def lost(parameters: Mapping[str, JsonValue]) -> list[str]:
    """The properties that do not come through, in the usual form or in the plain one."""
    told = sanitize(JsonSchema(parameters)).schema
    declared = set(properties(parameters))
    return sorted(declared - set(properties(told.mapping)) | declared - set(properties(plain_schema(told).mapping)))


def main(folders: list[str]) -> int:
    """Print what is lost and how many functions there were."""
    count = 0
    broken: list[str] = []
    for folder in folders:
        for file in sorted(Path(folder).rglob("*.json")):
            for document in documents(file):
                for function in functions(document):
                    count += 1
                    if missing := lost(function["parameters"]):
                        broken.append(f"{file.name}: {function['name']}: {', '.join(missing)}")
    print("\n".join(broken[:20]))
    print(f"{count} functions, {len(broken)} of them lose a property")
    return 1 if broken or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
