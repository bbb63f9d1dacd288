"""Non-standard fields that a Chat Completions server wants back: signatures, its own form of reasoning.

Sources: Gemini's OpenAI compatibility (`extra_content`), OpenRouter (`reasoning_details`), LiteLLM (`thinking_blocks`,
`provider_specific_fields`), GitHub Copilot (`reasoning_opaque`), Mistral (thinking parts of the content).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ferrule.protocol.json_text import JsonValue

THOUGHT_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""Message fields in which servers send their reasoning as text."""
THINKING_PARTS = "content"
"""Stands for such a field if the reasoning came as parts of the content."""

MESSAGE_FIELDS = ("reasoning_details", "thinking_blocks", "reasoning_opaque", "extra_content")
"""Message fields that are sent back unchanged."""
CALL_FIELDS = ("extra_content", "provider_specific_fields", "thought_signature")
"""Call fields that are sent back unchanged."""

_NAMES = frozenset((*MESSAGE_FIELDS, *CALL_FIELDS))

_NOTHING: tuple[object, ...] = (None, "", [], {})

Fields = dict[str, JsonValue]


def given(source: object, names: Iterable[str]) -> Fields:
    """Return the non-empty fields of a delta."""
    return {name: value for name in names if (value := getattr(source, name)) not in _NOTHING}


def merged(one: Fields, more: Fields) -> Fields:
    """Merge the fields of a message from its pieces."""
    return {**one, **{name: _joined(name, one.get(name), value) for name, value in more.items()}}


def stored(fields: Fields) -> dict[str, JsonValue]:
    """Return the fields as an item stores them; empty if there are none."""
    return {"chat_fields": fields} if fields else {}


def read_fields(raw: msgspec.Raw) -> Fields:
    """Return the fields that an item stores. Others, which a client has made up, would change what the message is."""
    text = bytes(raw)
    if not text.startswith(b"{"):
        return {}
    fields: Fields = msgspec.json.decode(text)
    return {name: value for name, value in fields.items() if name in _NAMES}


def _joined(name: str, one: JsonValue, more: JsonValue) -> JsonValue:
    merge = _MERGES.get(name)
    if merge is not None and isinstance(more, list):
        return merge([*(one if isinstance(one, list) else ()), *more])
    if isinstance(one, dict) and isinstance(more, dict):
        return {**one, **{key: _joined(key, one.get(key), value) for key, value in more.items()}}
    return more


_PIECES = ("text", "summary", "data", "thinking")
"""Fields of a detail that arrive in pieces; for all others the last non-empty one counts."""


def _merge_details(details: Sequence[JsonValue]) -> list[JsonValue]:
    """Merge to one entry per index, in the order of the indexes. Entries without one follow each other: text continues
    the last entry of its type, everything else starts a new one."""
    entries: list[Any] = []
    for detail in details:
        if not isinstance(detail, dict):
            continue
        entry = next((known for known in reversed(entries) if _goes_on(known, detail, entries[-1])), None)
        if entry is None:
            entries.append(dict(detail))
        else:
            _add_pieces(entry, detail)
    if all(isinstance(entry.get("index"), int) for entry in entries):
        entries.sort(key=lambda entry: int(entry["index"]))
    return entries


def _goes_on(entry: dict[str, Any], detail: dict[str, Any], last: dict[str, Any]) -> bool:
    if entry.get("type") != detail.get("type") or entry.get("index") != detail.get("index"):
        return False
    one, other = entry.get("id"), detail.get("id")
    if one is not None and other is not None and one != other:
        return False
    if detail.get("index") is not None:
        return True
    same = entry.get("data") == detail.get("data") is not None
    return same or (entry is last and "data" not in detail and not entry.get("signature"))


def _add_pieces(entry: dict[str, Any], detail: dict[str, Any]) -> None:
    for name, value in detail.items():
        before = entry.get(name)
        if name in _PIECES and isinstance(before, str) and isinstance(value, str):
            entry[name] = before if name == "data" and before == value else before + value
        elif value not in _NOTHING or name not in entry:
            entry[name] = value


def _merge_blocks(blocks: Sequence[JsonValue]) -> list[JsonValue]:
    """Merge thinking blocks; a signature ends a block."""
    whole: list[Any] = []
    for block in blocks:
        if not isinstance(block, dict):
            continue
        last = whole[-1] if whole else {}
        if block.get("type") == "thinking" == last.get("type") and not last.get("signature"):
            _add_pieces(last, block)
        else:
            whole.append(dict(block))
    return whole


_MERGES = {"reasoning_details": _merge_details, "thinking_blocks": _merge_blocks}


def thought_in(fields: Fields) -> str:
    """Return the text of reasoning that came only in its own form."""
    pieces = [piece for name in _MERGES if isinstance(listed := fields.get(name), list) for piece in listed]
    texts = [
        piece.get("text") or piece.get("summary") or piece.get("thinking")
        for piece in pieces
        if isinstance(piece, dict)
    ]
    return "".join(text for text in texts if isinstance(text, str))
