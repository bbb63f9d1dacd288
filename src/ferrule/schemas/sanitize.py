"""Adapt foreign JSON Schemas to a provider: keep what is sound, repair the rest or drop it with a note.

The result is a copy in the 2020-12 dialect for the model to read. Validation and dispatch keep the original.
"""

import re
from collections.abc import Mapping
from enum import Enum
from functools import partial
from itertools import count, islice
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue, encodable
from ferrule.schemas.alias import NO_ALIASES, Aliases, with_aliases
from ferrule.schemas.root import flat_root
from ferrule.schemas.shape import ANNOTATIONS, Place, is_wanted, shaped
from ferrule.schemas.walk import applicable, resolve, type_of

MAX_LEVELS = 64
"""Nesting of schemas: more than any tool needs, far below Python's recursion limit."""

MAX_NODES = 10_000
"""Schemas in one tool's: more than a model could ever read; bounds the work on hostile input."""


MAX_NOTES = 20
"""Notes for one tool: nobody reads more, and a hostile schema must not fill the log."""


class Note(NamedTuple):
    """Something that the sanitised schema no longer says as the original did."""

    tool: str
    pointer: str
    text: str

    def __str__(self) -> str:
        return f"{self.tool or 'schema'}: {self.pointer}: {self.text}"


class Sanitized(NamedTuple):
    """A schema for the model, notes on what was dropped, and the property names that had to change."""

    schema: JsonSchema
    notes: tuple[Note, ...] = ()
    aliases: Aliases = NO_ALIASES


def sanitize_json_schema(schema: JsonSchema) -> JsonSchema:
    """Sanitise the schema of a tool's parameters for a provider. Never raises; `sanitize` also reports what was
    dropped."""
    return sanitize(schema).schema


def sanitize(schema: JsonSchema, *, tool: str = "", property_names: re.Pattern[str] | None = None) -> Sanitized:
    """Sanitise the schema of a tool's parameters for a provider.

    Notes name `tool`. Property names that do not fully match `property_names` get aliases. Never raises: an unreadable
    schema becomes an object with any properties.
    """
    cleaner = _Cleaner(tool)
    try:
        root = schema.mapping
        if not isinstance(root, Mapping):
            raise TypeError("not a mapping")
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError) as error:
        root = {}
        cleaner.note(_ROOT, f"not a readable schema ({error}): any object is taken")
    clean = cleaner.root(root)
    result = with_aliases(clean, property_names) if property_names else (clean, NO_ALIASES)
    return Sanitized(_encoded(result[0]), tuple(cleaner.notes), result[1])


def _encoded(mapping: dict[str, JsonValue]) -> JsonSchema:
    try:
        return JsonSchema(mapping, encoded=msgspec.json.encode(mapping))
    except (UnicodeEncodeError, TypeError, RecursionError):
        return JsonSchema(_plain(mapping, MAX_LEVELS * 2))


def _plain(value: JsonValue, levels: int) -> JsonValue:
    """Reduce `value` to what JSON can carry: no lone surrogates, no foreign objects, at most `levels` levels."""
    if isinstance(value, str):
        return encodable(value)
    if levels == 0 or not isinstance(value, Mapping | list | tuple | bool | int | float | None):
        return None
    if isinstance(value, Mapping):
        return {encodable(str(key)): _plain(below, levels - 1) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below, levels - 1) for below in value]
    return value


class _At:
    """A location in the schema. The pointer is only built for a note.

    `same` is true while the schemas since the definition's own describe the same value.
    """

    __slots__ = ("above", "depth", "key", "name", "same")

    def __init__(self, above: "_At | None", key: str = "", name: str | int | None = None, same: bool = True) -> None:
        self.above = above
        self.key = key
        self.name = name
        self.depth: int = 0 if above is None else above.depth + 1
        self.same: bool = same and (above is None or above.same)

    def __str__(self) -> str:
        if self.above is None:
            return "#"
        steps = [self.key] if self.name is None else [self.key, str(self.name)]
        return "/".join([str(self.above), *(step.replace("~", "~0").replace("/", "~1") for step in steps)])


_ROOT = _At(None)

_SCALARS = frozenset({"string", "number", "integer", "boolean"})

_HARMLESS = frozenset({"title", "description", "format", "pattern", "minLength", "maxLength", "minimum", "maximum"})
"""Keywords of scalars of which only the value's type needs checking."""

_DROPPED = frozenset(
    {"$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$defs", "definitions"}
)
"""Keywords the model does not need. Definitions come back if something refers to them."""


class _Form(Enum):
    SCHEMA = 1
    LIST = 2
    MAP = 3


class _Below(NamedTuple):
    """The content of a keyword; `same` if it describes the same value as the keyword's own schema."""

    form: _Form
    place: Place
    same: bool = False


_BRANCHES = _Below(_Form.LIST, Place.CONSTRAINT, same=True)
_CONDITION = _Below(_Form.SCHEMA, Place.CONSTRAINT, same=True)
_VALUE = _Below(_Form.SCHEMA, Place.VALUE)

_BELOW = {
    "properties": _Below(_Form.MAP, Place.PROPERTY),
    "patternProperties": _Below(_Form.MAP, Place.VALUE),
    "dependentSchemas": _Below(_Form.MAP, Place.CONSTRAINT, same=True),
    "dependencies": _Below(_Form.MAP, Place.CONSTRAINT, same=True),
    "prefixItems": _Below(_Form.LIST, Place.VALUE),
    "anyOf": _BRANCHES,
    "oneOf": _BRANCHES,
    "allOf": _BRANCHES,
    "not": _CONDITION,
    "if": _CONDITION,
    "then": _CONDITION,
    "else": _CONDITION,
    "items": _VALUE,
    "additionalItems": _VALUE,
    "additionalProperties": _VALUE,
    "unevaluatedItems": _VALUE,
    "unevaluatedProperties": _VALUE,
    "contains": _Below(_Form.SCHEMA, Place.CONSTRAINT),
    "propertyNames": _Below(_Form.SCHEMA, Place.CONSTRAINT),
}
"""Keywords that contain schemas. Everything else is data, and the keys of a map are names, whatever they look like."""


class _Cleaner:
    """The sanitising of one tool's schema."""

    def __init__(self, tool: str) -> None:
        self.notes: list[Note] = []
        self._tool = tool
        self._left = MAX_NODES
        self._root: Mapping[str, JsonValue] = {}
        self._siblings_count = True
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()
        self._waiting: list[tuple[str, JsonValue]] = []
        self._definition: JsonValue = None

    def note(self, at: _At, text: str) -> None:
        """Record that something was dropped."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(Note(self._tool, str(at), text))

    def root(self, root: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the clean schema of a tool's parameters: an object with `properties`, nothing refused at its root."""
        self._root = root
        self._siblings_count = re.search(r"draft-0[3-7]", str(root.get("$schema", ""))) is None
        flat = flat_root(root, lambda text: self.note(_ROOT, text))
        if flat == root and root.get("type") == "object":
            self._names["#"] = "#"
        clean = self._mapping({**flat, "type": "object"}, _ROOT, Place.VALUE)
        clean = {"type": "object", "properties": {}} | clean | {"type": "object"}
        definitions: dict[str, JsonValue] = {}
        while self._waiting:
            name, self._definition = self._waiting.pop()
            definitions[name] = self._node(self._definition, _At(_ROOT, "$defs", name), Place.VALUE)
        return {**clean, "$defs": definitions} if definitions else clean

    def _node(self, node: JsonValue, at: _At, place: Place) -> dict[str, JsonValue]:
        if type(node) is not dict and not isinstance(node, Mapping):
            if not isinstance(node, bool):
                self.note(at, f"not a schema but {type_of(node)}: anything is taken")
            return shaped(_spelled(node is not False), place, lambda _: None)
        self._left -= 1
        if at.depth > MAX_LEVELS or self._left < 0:
            self.note(at, "too deep or too large: anything is taken")
            return {}
        return self._mapping(node, at, place)

    def _mapping(self, node: Mapping[str, JsonValue], at: _At, place: Place) -> dict[str, JsonValue]:
        node = _unwrapped(node)
        if "$ref" in node and not self._siblings_count:
            node = {key: value for key, value in node.items() if key == "$ref" or key in ANNOTATIONS}
        out: dict[str, JsonValue] = {}
        for key, value in node.items():
            if (below := _BELOW.get(key)) is not None:
                if (cleaned := self._below(below, key, value, at)) is not None:
                    out[key] = cleaned
            elif key == "$ref":
                if (reference := self._reference(value, node, at)) is not None:
                    out[key] = reference
            elif key not in _DROPPED:
                out[key] = value
        return shaped(out, place, partial(self.note, at))

    def _below(self, below: _Below, key: str, value: JsonValue, at: _At) -> JsonValue:
        """Clean the value under `key`; return None to drop the keyword."""
        form, place, same = below
        if form is _Form.MAP and (type(value) is dict or isinstance(value, Mapping)):
            return {
                name: schema if _is_sound(schema, key) else self._node(schema, _At(at, key, name, same), place)
                for name, schema in value.items()
            }
        if (form is _Form.LIST and isinstance(value, list) and value) or (key == "items" and isinstance(value, list)):
            return [
                schema if _is_sound(schema, key) else self._node(schema, _At(at, key, i, same), place)
                for i, schema in enumerate(value)
            ]
        if form is _Form.SCHEMA:
            return (
                value
                if isinstance(value, bool) or _is_sound(value, key)
                else self._node(value, _At(at, key, None, same), place)
            )
        if value is not None:
            self.note(at, f"{key} is {type_of(value)}: it is left out")
        return None

    def _reference(self, reference: JsonValue, node: Mapping[str, JsonValue], at: _At) -> str | None:
        """Return the reference as the result spells it, with all definitions in `$defs`; None if it leads nowhere."""
        try:
            target = resolve(reference, self._root)
        except KeyError:
            self.note(at, f"$ref {reference!r} leads nowhere: anything is taken")
            return None
        parts = islice(applicable([target], self._root), MAX_LEVELS)
        if at.same and any(part is self._definition for part in parts):
            self.note(at, f"$ref {reference!r} only refers to itself: anything is taken")
            return None
        if reference not in self._names:
            name = self._new_name(reference)
            self._names[reference] = f"#/$defs/{name}"
            self._waiting.append((name, target))
        return self._names[reference]

    def _new_name(self, reference: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_.-]+", "_", unquote(reference).rpartition("/")[2]).strip("_") or "Root"
        name = next(name for i in count(1) if (name := base if i == 1 else f"{base}_{i}") not in self._taken)
        self._taken.add(name)
        return name


_NEIGHBOURLY = frozenset({"additionalProperties", "unevaluatedProperties", "unevaluatedItems", "items", "if", "then"})
"""Keywords whose meaning depends on their neighbours."""


def _is_sound(schema: JsonValue, keyword: str) -> bool:
    """Return whether there is nothing to do: the case of most parameters, so a fast path."""
    if type(schema) is not dict:
        return keyword == "dependencies" and isinstance(schema, list)
    if type(kind := schema.get("type")) is not str or kind not in _SCALARS:
        return False
    for key, value in schema.items():
        if key in _HARMLESS:
            if not is_wanted(key, value):
                return False
        elif key == "enum":
            if type(value) is not list or not value or len(value) != len(set(map(repr, value))):
                return False
        elif key not in ("type", "default"):
            return False
    return True


def _unwrapped(node: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Replace `node` by its only branch where no keyword of the two conflicts."""
    for _ in range(MAX_LEVELS):
        keyword = "anyOf" if "anyOf" in node else "allOf" if "allOf" in node else "oneOf"
        branches = node.get(keyword)
        if not isinstance(branches, list) or len(branches) != 1:
            break
        only = _spelled(branches[0])
        rest = {key: value for key, value in node.items() if key != keyword}
        if not isinstance(only, Mapping) or not _independent(only, rest):
            break
        node = {**only, **rest}
    return node


def _independent(one: Mapping[str, JsonValue], other: Mapping[str, JsonValue]) -> bool:
    """Return whether the keywords of both mean the same in one schema as in two."""
    return one.keys() & other.keys() <= ANNOTATIONS and _NEIGHBOURLY.isdisjoint(one.keys() | other.keys())


def _spelled(schema: JsonValue) -> JsonValue:
    """Return a boolean schema as a mapping, for providers that accept only mappings."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema
