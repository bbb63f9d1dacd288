"""Hits in what a program or a server returns, which has no fixed form: JSON with names that are common, or text."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from ferrule.web.search import Hit, make_hit

_LISTS = ("results", "hits", "items", "organic", "organic_results", "data", "documents", "web")
_URLS = ("url", "link", "href", "source_url")
_TITLES = ("title", "name")
_TEXTS = ("content", "text", "snippet", "description", "raw_content", "markdown", "summary")
_URL = re.compile(r"https?://[^\s<>\"'`\]]+")
_LABEL = re.compile(r"^[\s>*_#-]*(title|url|link|description|content|snippet|text|summary)[*_]*\s*:\s*", re.IGNORECASE)
MOST_HITS = 100
"""Hits of one answer that are read: more than any search shows."""
MAX_DEPTH = 4
"""Objects around a list of hits."""


def read_json(data: bytes) -> Any:
    """Return the JSON that a program or a server has sent, also with what other languages write beside the standard:
    halves of surrogate pairs, where a text was cut, and NaN. Raises `ValueError`, and `RecursionError`."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(data)


def hits_in(value: object, depth: int = 0) -> list[Hit]:
    """Return the hits of a JSON value: a list of objects, or an object that has one under a common name."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        hits = (_hit(entry) for entry in value if isinstance(entry, Mapping))
        return list(islice(filter(None, hits), MOST_HITS))
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        for name in _LISTS:
            if found := hits_in(value.get(name), depth + 1):
                return found
    return []


def _hit(entry: Mapping[str, Any]) -> Hit | None:
    return make_hit(_first(entry, _URLS), _first(entry, _TITLES), _first(entry, _TEXTS))


def _first(entry: Mapping[str, Any], names: Sequence[str]) -> object:
    return next((entry[name] for name in names if isinstance(entry.get(name), str) and entry[name]), "")


def hits_in_text(text: str) -> list[Hit]:
    """Return the hits of plain text: paragraphs that have an address each, as servers write them for models."""
    return list(islice(filter(None, map(_hit_in_block, _blocks(text))), MOST_HITS))


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of each paragraph; a second address begins another one."""
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        begins = bool(_URL.search(line)) and any(_URL.search(one) for one in block)
        if block and (not line.strip() or begins):
            yield block
            block = []
        if line.strip():
            block.append(line)


def _hit_in_block(lines: Sequence[str]) -> Hit | None:
    url = next((found[0] for line in lines if (found := _URL.search(line))), None)
    if url is None:
        return None
    labelled = {found[1].lower(): line[found.end() :] for line in lines if (found := _LABEL.match(line))}
    title = labelled.get("title") or next((line for line in lines if not _URL.search(line)), "")
    rest = [_LABEL.sub("", line) for line in lines if url not in line and title not in line]
    return make_hit(url.rstrip(".,;)"), _LABEL.sub("", title), "\n".join(rest))
