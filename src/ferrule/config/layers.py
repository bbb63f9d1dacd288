"""Merge layers. Tables are merged key by key; anything else is replaced. All pure."""

import re
import tomllib
from collections.abc import Iterable, Mapping

import msgspec

from ferrule.protocol.errors import UsageError

MAX_KEY_PARTS = 100
"""Parts of a dotted key: the parser's time grows with their square, to minutes in a file of a hundred kilobytes."""
_TOKEN = re.compile(rb"""[\w-]+|"[^"]*"|'[^']*'|[ \t]+|.""", re.DOTALL)

Values = Mapping[str, object]


class Layer(msgspec.Struct, frozen=True):
    """Some settings, and their source as errors name it (a file, `-c model`, a flag)."""

    source: str
    values: Values


def toml_layer(source: str, data: bytes) -> Layer:
    """Parse a file's bytes into a layer. Raises `UsageError` that names the file as `source`."""
    if any(map(_has_long_key, data.splitlines())):
        raise UsageError(f"{source} is not read: a key in it has more than {MAX_KEY_PARTS} parts")
    try:
        return Layer(source, tomllib.loads(data.decode()))
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#x}") from error
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, or deeply nested lists
        raise UsageError(f"{source} is not valid TOML: {error}") from error


def _has_long_key(line: bytes) -> bool:
    """Return whether the text has that many dotted parts in a row, even inside a string."""
    if line.count(b".") < MAX_KEY_PARTS:
        return False
    parts, after_dot = 0, True
    for token in _TOKEN.findall(line):
        if token == b".":
            after_dot = True
        elif token[:1] not in b" \t":
            is_part = len(token) > 1 or token.isalnum()
            parts = parts + 1 if is_part and after_dot else int(is_part)
            after_dot = not is_part
        if parts > MAX_KEY_PARTS:
            return True
    return False


def merge(layers: Iterable[Layer]) -> dict[str, object]:
    """Merge all layers; later ones win."""
    merged: dict[str, object] = {}
    for layer in layers:
        merged = _over(merged, layer.values)
    return merged


def _over(below: Values, above: Values) -> dict[str, object]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def assignment(text: str) -> Layer:
    """Parse `-c KEY=VALUE` into a layer: a dotted key and a TOML value, or plain text. Raises `UsageError`."""
    key, sign, value = text.partition("=")
    source = f"-c {key.strip()}"
    try:
        path = _path(tomllib.loads(f"{key} = 0")) if sign else ()
    except tomllib.TOMLDecodeError:
        path = ()
    if not path:
        raise UsageError(f"-c {text!r} is not KEY=VALUE, such as -c model=gpt-5.5 or -c 'sandbox_mode=\"read-only\"'")
    values: object = _toml_value(value)
    for part in reversed(path):
        values = {part: values}
    assert isinstance(values, dict)
    return Layer(source, values)


def _path(table: object) -> tuple[str, ...]:
    path: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        ((key, table),) = table.items()
        path.append(key)
    return tuple(path) if table == 0 else ()


def _toml_value(text: str) -> object:
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text.strip()
    return table["value"] if len(table) == 1 else text.strip()
