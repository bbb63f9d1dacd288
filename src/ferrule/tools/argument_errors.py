"""Refusals of arguments, as the model reads them: the JSON path, the value, what is right, the nearest valid name."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import PARSE_ERROR, JsonValue, encodable
from ferrule.schemas.walk import (
    ANY_TYPE,
    Node,
    accepted_types,
    applicable,
    item_nodes,
    property_names,
    property_nodes,
    type_of,
)

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

Path = tuple[str | int, ...]

_LOOKED_AT = 200
"""Names compared with a missing one."""

_SHOWN = 2
"""Problems named in a refusal: models fix what they read, and they read one or two lines."""

_EXCERPT = 60
"""Characters of a wrong value quoted in a refusal."""

_LINE = 400
"""Characters of one problem: foreign names and messages can have any length."""

_CHOICES = 12
"""Valid values or names listed in a refusal."""


class Problem(NamedTuple):
    """One error: its place and description; `got` is the offending value if showing it helps."""

    path: Path
    text: str
    got: JsonValue = ...
    hint: str = ""


def explain(problems: Sequence[Problem]) -> str:
    """Return the refusal, one problem per line."""
    lines = [_line(problem) for problem in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        lines[-1] += f" (and {len(problems) - _SHOWN} more)"
    return encodable(PARSE_ERROR + "\n".join(lines))


def _line(problem: Problem) -> str:
    path, text, got, hint = problem
    line = " ".join(f"{json_path(path)}: {text}{_quoted(got)}{hint}".split())
    return line if len(line) <= _LINE else f"{line[:_LINE]}..."


def json_path(path: Path) -> str:
    """Format a path as `$.a[0]["odd name"]`."""
    return "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" if part.isidentifier() else f"[{json.dumps(part)}]"
        for part in path
    )


def _quoted(got: JsonValue) -> str:
    if got is ...:
        return ""
    text = json.dumps(got, ensure_ascii=False)
    return f", got {text if len(text) <= _EXCERPT else text[:_EXCERPT] + '...'}"


def _nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"; did you mean {json.dumps(close[0], ensure_ascii=False)}?" if close else ""


class _Place:
    """The schemas at one path of a value."""

    def __init__(self, nodes: list[JsonValue], root: Node) -> None:
        self.nodes = nodes
        self.root = root

    @classmethod
    def at(cls, schema: JsonSchema, path: Path) -> "_Place":
        """Return the place at `path` from the root of `schema`."""
        place = cls([schema.mapping], schema.mapping)
        for part in path:
            place = place.below(part)
        return place

    def below(self, part: str | int) -> "_Place":
        """Return the place of a property or an element."""
        if isinstance(part, int):
            return _Place(item_nodes(self.nodes, part, self.root), self.root)
        return _Place(property_nodes(self.nodes, part, self.root), self.root)

    def choices(self) -> list[JsonValue]:
        """Return the values of the enums here."""
        found: list[JsonValue] = []
        for node in applicable(self.nodes, self.root):
            if isinstance(members := node.get("enum"), list):
                found += [member for member in members if member not in found]
        return found

    def expectation(self) -> str:
        """Return `expected an integer`, `expected one of "a", "b" or null`; empty if the schema accepts any type."""
        types = frozenset[str]().union(*(accepted_types(node, self.root) for node in self.nodes))
        if not self.nodes or types == ANY_TYPE:
            return ""
        choices = self.choices()
        names = types - {type_of(choice) for choice in choices}
        names -= {"integer"} if "number" in names else set()
        parts = [_ARTICLES[name] for name in sorted(names, key=list(_ARTICLES).index)]
        if choices:
            shown = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices[:_CHOICES])
            parts.insert(0, f"one of {shown}{', ...' if len(choices) > _CHOICES else ''}")
        return f"expected {' or '.join(parts)}"

    def wrong(self, path: Path, got: JsonValue, message: str) -> Problem:
        """Build the problem of a value of the wrong type or outside an enum; `message` if the schema does not say
        why."""
        names = [choice for choice in self.choices() if isinstance(choice, str)]
        return Problem(path, self.expectation() or message, got, _nearest(got, names) if isinstance(got, str) else "")

    def missing(self, name: str, value: JsonValue, path: Path) -> Problem:
        """Build the problem of a missing required property; name what came instead."""
        text = f"missing, {self.below(name).expectation() or 'required'}"
        known = property_names(self.nodes, self.root)
        unknown = [key for key in value if key not in known][:_LOOKED_AT] if isinstance(value, Mapping) else []
        if close := difflib.get_close_matches(name, unknown, n=1, cutoff=0.5):
            text += f"; you sent {json.dumps(close[0], ensure_ascii=False)}"
        return Problem((*path, name), text)

    def unknown(self, name: str, path: Path) -> Problem:
        """Build the problem of an undeclared property."""
        names = list(property_names(self.nodes, self.root))
        near = _nearest(name, names)
        if not near and names:
            near = f"; known: {', '.join(names[:_CHOICES])}{', ...' if len(names) > _CHOICES else ''}"
        return Problem((*path, name), f"no such property{near}")


_ARTICLES = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def _at(value: JsonValue, path: Iterable[str | int]) -> tuple[Path, JsonValue]:
    """Return the longest prefix of `path` that exists in `value`, and the value there. Missing steps are skipped:
    pydantic puts the names of union branches between those of properties."""
    walked: list[str | int] = []
    for part in path:
        if isinstance(value, Mapping) and part in value:
            value = value[cast(str, part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        walked.append(part)
    return tuple(walked), value


def pydantic_problems(refusal: Exception, value: JsonValue, schema: JsonSchema) -> list[Problem]:
    """Return the problems of a pydantic `ValidationError`; one per place, although a union fails once per branch."""
    from pydantic import ValidationError

    found: dict[Path, Problem] = {}
    for error in cast(ValidationError, refusal).errors(include_url=False):
        problem = _pydantic_problem(cast(dict[str, Any], error), value, schema)
        found.setdefault(problem.path, problem)
    return list(found.values())


def _pydantic_problem(error: dict[str, Any], value: JsonValue, schema: JsonSchema) -> Problem:
    kind, location = error["type"], error["loc"]
    if kind in ("missing", "extra_forbidden"):
        path, parent = _at(value, location[:-1])
        place = _Place.at(schema, path)
        return place.missing(location[-1], parent, path) if kind == "missing" else place.unknown(location[-1], path)
    path, got = _at(value, location)
    message = re.sub(r"^Input should ", "must ", error["msg"]).removeprefix("Value error, ")
    if kind.endswith("_type") or kind in ("enum", "literal_error", "int_from_float"):
        return _Place.at(schema, path).wrong(path, got, message)
    return Problem(path, message, got)


def struct_problems(refusal: Exception, value: JsonValue, schema: JsonSchema) -> list[Problem]:
    """Return the problem of a msgspec `ValidationError`: it names only the first one, with a path at its end."""
    message, _, where = str(refusal).partition(" - at `")
    steps = re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", where)
    path, got = _at(value, [name or int(index) for name, index in steps])
    if missing := re.search(r"missing required field `(.+)`", message):
        return [_Place.at(schema, path).missing(missing[1], got, path)]
    return [_Place.at(schema, path).wrong(path, got, message)]


def foreign_problems(errors: Iterable["ValidationError"], value: JsonValue, schema: JsonSchema) -> list[Problem]:
    """Return the problems of jsonschema-rs errors on `value`."""
    found: dict[Path, Problem] = {}
    for error in errors:
        for problem in _foreign(error, value, schema):
            found.setdefault(problem.path, problem)
    return list(found.values())


def _foreign(error: "ValidationError", value: JsonValue, schema: JsonSchema) -> list[Problem]:
    kind: Any = error.kind
    path, got = _at(value, error.instance_path)
    place = _Place.at(schema, path)
    match kind.name:
        case "required":
            return [place.missing(kind.property, got, path)]
        case "additionalProperties" | "unevaluatedProperties":
            return [place.unknown(name, path) for name in kind.unexpected]
        case "type" | "enum" | "const":
            return [place.wrong(path, got, error.message)]
        case "anyOf" | "oneOf" if hasattr(kind, "context"):
            branch: list[ValidationError] = max(
                kind.context, key=lambda errors: max((len(e.instance_path) for e in errors), default=0), default=[]
            )
            if any(len(inner.instance_path) > len(path) for inner in branch):
                return [problem for inner in branch for problem in _foreign(inner, value, schema)]
            return [place.wrong(path, got, error.message)]
    return [Problem(path, error.message)]
