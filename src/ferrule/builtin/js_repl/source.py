"""From the text of a call to the cell that runs: the line of options, and what is no JavaScript."""

import msgspec

from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_text import decode

PRAGMA = "// codex-js-repl:"
"""The beginning of the line of options, as models were trained on it."""

DEFAULT_TIMEOUT_MS = 30_000
"""The default limit that models were trained with."""

_RAW = f"send raw JavaScript source only, optionally with a first line `{PRAGMA} timeout_ms=15000`"


class Cell(msgspec.Struct, frozen=True):
    """JavaScript to evaluate, and how long it may take in milliseconds, waits for other tools not counted."""

    code: str
    timeout_ms: int = DEFAULT_TIMEOUT_MS


def read_cell(text: str, timeout_ms: int | None = None) -> Cell:
    """Parse the cell of a call; the argument `timeout_ms` overrides the cell's own. Raises `RespondToModel`."""
    if not text.strip():
        raise RespondToModel(f"js_repl needs JavaScript, and the input is empty: {_RAW}")
    first, _, rest = text.partition("\n")
    if not first.lstrip().startswith(PRAGMA):
        return Cell(_javascript(text), timeout_ms or DEFAULT_TIMEOUT_MS)
    asked = _timeout_of(first.strip().removeprefix(PRAGMA))
    if not rest.strip():
        raise RespondToModel(f"js_repl needs JavaScript after its line of options: {_RAW}")
    return Cell(_javascript("\n" + rest), timeout_ms or asked or DEFAULT_TIMEOUT_MS)


def _timeout_of(options: str) -> int | None:
    asked: int | None = None
    for option in options.replace(",", " ").split():
        name, equals, value = option.partition("=")
        if name != "timeout_ms" or not equals:
            raise RespondToModel(f"js_repl options: {option!r} is not known, only timeout_ms=MILLISECONDS is")
        if asked is not None:
            raise RespondToModel("js_repl options: timeout_ms is given twice")
        if not (value.isascii() and value.isdigit() and int(value) > 0):
            raise RespondToModel(f"js_repl options: timeout_ms must be a whole number of at least 1, not {value!r}")
        asked = int(value)
    return asked


def _javascript(text: str) -> str:
    """Return the text, if it is not JavaScript in some wrapping."""
    stripped = text.strip()
    if stripped.startswith("```"):
        raise RespondToModel(f"js_repl does not take Markdown fences: {_RAW}")
    if stripped[0] in '{"':
        try:
            value = decode(stripped)
        except RespondToModel:
            return text
        if isinstance(value, dict):
            raise RespondToModel(f'js_repl does not take JSON (such as {{"code": ...}}): {_RAW}')
        if isinstance(value, str):
            raise RespondToModel(f"js_repl does not take a quoted string: {_RAW}")
    return text
