"""Script files: JSON to steps. Errors name the step's number."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from ferrule.testing.defects import NAMED, drop
from ferrule.testing.delivery import Chunks, DeliveryOptions, Place, RandomChunks, Stall
from ferrule.testing.items import Item, message
from ferrule.testing.plain import JsonObject, as_text, json_text
from ferrule.testing.sse import Edit, Framing
from ferrule.testing.steps import (
    DELTA_CHARS,
    End,
    Expectation,
    Failed,
    Raw,
    ScriptError,
    Step,
    StreamError,
    Usage,
    as_step,
    hang_up,
    http_error,
    raw,
    step,
)


def read(path: str | Path) -> tuple[tuple[Step | Raw, ...], bool]:
    """Read the steps of a script file, and whether they repeat. Raises ScriptError."""
    try:
        return _script(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ScriptError(f"{path}: {error}") from error


def _script(data: object) -> tuple[tuple[Step | Raw, ...], bool]:
    if isinstance(data, list):
        data = {"steps": data}
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        raise ScriptError('a script is {"steps": [...]} or the list of steps alone')
    _known(data, {"steps", "repeat"}, "the script")
    steps = []
    for number, entry in enumerate(data["steps"], start=1):
        try:
            steps.append(_step(entry))
        except ScriptError as error:
            raise ScriptError(f"step {number}: {error}") from error
    return tuple(steps), data.get("repeat") is True


def _known(data: JsonObject, keys: set[str], where: str) -> None:
    for key in data:
        if key not in keys:
            raise ScriptError(f"unknown key {key!r} in {where}; known: {', '.join(sorted(keys))}")


_DELIVERY_KEYS = {"expect", "delay", "chunks", "pace", "stall", "cut_after"}


def _step(entry: object) -> Step | Raw:
    if isinstance(entry, list):
        return as_step([_item(item) for item in entry])
    if isinstance(entry, str):
        return as_step(entry)
    if not isinstance(entry, dict):
        raise ScriptError(f"expected a text, an item, a list of items or an object, not {entry!r}")
    if "type" in entry:
        return as_step(_item(entry))
    if "hang_up" in entry:
        _known(entry, {"hang_up", "delay"}, "a hang-up")
        return hang_up(delay=_number(entry, "delay"))
    if "error" in entry:
        return _error(entry)
    if "raw" in entry:
        return _raw(entry)
    return _items_step(entry)


def _items_step(entry: JsonObject) -> Step | Raw:
    _known(entry, {"items", "usage", "end", "delta_chars", "edits", "framing"} | _DELIVERY_KEYS, "a step")
    items = entry.get("items")
    if not isinstance(items, list):
        raise ScriptError("`items` is a list of items")
    made = step(
        *(_item(item) for item in items),
        expect=_expect(entry.get("expect")),
        usage=_usage(entry.get("usage")),
        end=_end(entry.get("end", "completed")),
        delta_chars=_positive(entry.get("delta_chars", DELTA_CHARS)),
        edits=_edits(entry.get("edits", [])),
        framing=_framing(entry.get("framing", {})),
        **_delivery(entry),
    )
    return as_step(made)


def _raw(entry: JsonObject) -> Raw:
    _known(entry, {"raw", "status", "headers", "content_type"} | _DELIVERY_KEYS, "a raw step")
    return raw(
        as_text(entry["raw"]).encode(),
        status=_whole(entry.get("status", 200)),
        headers=_headers(entry.get("headers")),
        content_type=as_text(entry.get("content_type", "text/event-stream")),
        expect=_expect(entry.get("expect")),
        **_delivery(entry),
    )


def _delivery(entry: JsonObject) -> DeliveryOptions:
    return {
        "delay": _number(entry, "delay"),
        "chunks": _chunks(entry.get("chunks")),
        "pace": _number(entry, "pace"),
        "stall": _stall(entry.get("stall")),
        "cut_after": _place(entry.get("cut_after")),
    }


def _error(entry: JsonObject) -> Raw:
    _known(entry, {"error", "status", "headers", "code", "delay"}, "an error")
    return http_error(
        _whole(entry.get("status", 500)),
        as_text(entry["error"]),
        code=as_text(entry.get("code")) or None,
        headers=_headers(entry.get("headers")),
        delay=_number(entry, "delay"),
    )


def _item(entry: object) -> Item:
    """Read an item, with the two shorthands of a script file: a text is a message, `arguments` may be an object."""
    if isinstance(entry, str):
        return message(entry)
    if not isinstance(entry, dict):
        raise ScriptError(f"an item is an object or a text, not {entry!r}")
    if entry.get("type") == "message" and isinstance(entry.get("text"), str):
        return message(entry["text"], **{key: value for key, value in entry.items() if key not in ("type", "text")})
    if isinstance(entry.get("arguments"), dict):
        return {**entry, "arguments": json_text(entry["arguments"])}
    return entry


def _expect(value: object) -> Expectation | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [_matcher(entry) for entry in value]
    if isinstance(value, dict) and "regex" not in value:
        return {str(call_id): _matcher(entry) for call_id, entry in value.items()}
    return _matcher(value)


def _matcher(value: object) -> str | re.Pattern[str]:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(value.get("regex"), str):
        try:
            return re.compile(value["regex"])
        except re.error as error:
            raise ScriptError(f"`regex` {value['regex']!r}: {error}") from error
    raise ScriptError(
        f'an expectation is a text, {{"regex": ...}}, a list of these, or one for each call id, not {value!r}'
    )


def _usage(value: object) -> Usage | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ScriptError("`usage` is an object of token counts")
    _known(value, set(Usage.__struct_fields__), "`usage`")
    return Usage(**{key: _whole(count) for key, count in value.items()})


def _end(value: object) -> End:
    if value in ("completed", "max_output_tokens", "content_filter", "missing"):
        return cast(End, value)
    fields = dict(value) if isinstance(value, dict) else {}
    if isinstance(text := fields.pop("failed", None), str):
        _known(fields, {"code"}, "`end`")
        return Failed(text, as_text(fields.get("code")) or "server_error")
    if isinstance(text := fields.pop("stream_error", None), str):
        code, kind = fields.pop("code", None), as_text(fields.pop("type", None)) or None
        nested = fields.pop("nested", False) is True
        return StreamError(text, code if isinstance(code, str | int) else None, kind, nested, fields)
    raise ScriptError(
        "`end` is completed, max_output_tokens, content_filter, missing, "
        f'{{"failed": message}} or {{"stream_error": message}}, not {value!r}'
    )


def _edits(value: object) -> list[Edit]:
    if not isinstance(value, list):
        raise ScriptError("`edits` is a list")
    return [_edit(entry) for entry in value]


def _edit(value: object) -> Edit:
    if isinstance(value, str) and value in NAMED:
        return NAMED[value]
    if isinstance(value, dict) and isinstance(kinds := value.get("drop"), list):
        return drop(*kinds)
    raise ScriptError(f'an edit is {{"drop": [kind, ...]}} or one of {", ".join(NAMED)}, not {value!r}')


def _framing(value: object) -> Framing:
    if not isinstance(value, dict):
        raise ScriptError("`framing` is an object")
    _known(value, set(Framing.__struct_fields__), "`framing`")
    return Framing(**value)


def _chunks(value: object) -> Chunks | None:
    if value is None:
        return None
    if isinstance(value, dict) and "seed" in value:
        _known(value, {"seed", "most"}, "`chunks`")
        return RandomChunks(**{key: _whole(entry) for key, entry in value.items()})
    if isinstance(value, list):
        return [_positive(entry) for entry in value]
    return _positive(value)


def _stall(value: object) -> Stall | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ScriptError('`stall` is {"at": place, "seconds": number}')
    _known(value, {"at", "seconds"}, "`stall`")
    return Stall(_place(value.get("at")) or 0, _number(value, "seconds") if "seconds" in value else None)


def _place(value: object) -> Place | None:
    if value is None or isinstance(value, str):
        return value
    return _whole(value)


def _headers(value: object) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ScriptError("`headers` is an object of strings")
    return {name: str(text) for name, text in value.items()}


def _number(entry: JsonObject, key: str) -> float:
    value = entry.get(key, 0.0)
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise ScriptError(f"`{key}` is a number of seconds, not {value!r}")
    return float(value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ScriptError(f"expected a whole number, not {value!r}")
    return value


def _positive(value: object) -> int:
    if _whole(value) == 0:
        raise ScriptError("a chunk has at least one byte")
    return _whole(value)
