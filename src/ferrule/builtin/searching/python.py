"""The search without ripgrep. Slower, the same answers."""

import os
import time
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from collections.abc import Iterable, Iterator
from io import FileIO
from itertools import islice
from typing import TypeVar

from ferrule.builtin.searching.patterns import LinePattern, text_lines
from ferrule.builtin.searching.request import COLUMNS, SEARCH_SECONDS, Dated, Found, FoundLine, Search
from ferrule.builtin.searching.ripgrep import MAX_LINES
from ferrule.ignores.walk import Walk
from ferrule.kernel_files import Storage, refuse_elsewhere
from ferrule.protocol.errors import RespondToModel

T = TypeVar("T")

BLOCK = 4 * 1024 * 1024
"""Bytes of a file that are searched at once; a longer line is searched in parts."""
FIRST = 64 * 1024
"""Bytes: a NUL among the first makes a file binary, which is not searched. A later one ends its search."""


def search_in_python(search: Search) -> Found:
    """Raises `RespondToModel`: a wrong pattern or glob, or the time is over."""
    deadline = time.monotonic() + SEARCH_SECONDS
    pattern = None if search.pattern is None else LinePattern(search.pattern, ignore_case=search.ignore_case)
    walk = Walk(search.path, search.cwd, search.include, hidden=search.hidden, shown=search.shown)
    files, storage = Dated(), Storage()
    lines: list[FoundLine] = []
    warnings: list[str] = []
    for path in _in_time(walk, deadline):
        try:
            if pattern is None:
                files.add([os.fsencode(path)])
                continue
            with FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
                storage.check(file.fileno(), path)
                refuse_elsewhere(file.fileno(), search.shown)
                texts = _in_time(_texts(file), deadline)
                if search.lines:
                    lines += islice(_matching_lines(texts, path, pattern, search), MAX_LINES - len(lines))
                elif any(map(pattern.in_text, texts)):
                    files.add([os.fsencode(path)])
        except OSError as error:
            warnings.append(str(error) if error.strerror is None else f"{path}: {error.strerror}")
        if len(lines) >= MAX_LINES:
            break
    return Found(
        files=files.newest(search.newest),
        count=len(files),
        lines=lines,
        warnings=[*walk.problems, *warnings],
        cut=len(lines) >= MAX_LINES,
    )


def _in_time(parts: Iterable[T], deadline: float) -> Iterator[T]:
    """Yield the parts of a search. Raises `RespondToModel` when time is up."""
    for part in parts:
        if time.monotonic() > deadline:
            raise RespondToModel(f"the search timed out after {SEARCH_SECONDS:g} seconds; install ripgrep")
        yield part


def _texts(file: FileIO) -> Iterator[str]:
    """Yield a file in blocks of whole lines; nothing if it is binary."""
    block = file.read(FIRST) or b""
    if block.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        yield from _wide_texts(file, block)
        return
    block = block.removeprefix(b"\xef\xbb\xbf")
    while block:
        if b"\0" in block:
            return
        more = file.read(BLOCK) or b""
        if b"\0" in more:
            more = b""
        end = len(block) if not more or len(block) > BLOCK else block.rfind(b"\n") + 1
        if end:
            yield block[:end].decode("utf-8", "surrogateescape")
        block = block[end:] + more


def _wide_texts(file: FileIO, block: bytes) -> Iterator[str]:
    """Yield a UTF-16 file in blocks, after its first bytes were read."""
    decoder = getincrementaldecoder("utf-16")("replace")
    text = ""
    while block:
        text += decoder.decode(block)
        end = len(text) if len(text) > BLOCK else text.rfind("\n") + 1
        if end:
            yield text[:end]
        text = text[end:]
        block = file.read(BLOCK) or b""
    text += decoder.decode(b"", final=True)
    if text:
        yield text


def _matching_lines(texts: Iterable[str], path: str, pattern: LinePattern, search: Search) -> Iterator[FoundLine]:
    """Return the matching lines with those around them, each once, in order."""
    first = 1
    shown = 0
    after = 0
    before: list[str] = []
    for text in texts:
        lines = text_lines(text)
        if not (after or pattern.in_text(text)):
            first += len(lines)
            before = lines[-search.before :] if search.before else []
            continue
        for number, line in enumerate(lines, first):
            if pattern.matches(line):
                for back in range(min(search.before, number - 1 - shown, len(before)), 0, -1):
                    yield _line(path, number - back, before[-back], matches=False)
                yield _line(path, number, line, matches=True)
                shown, after = number, search.after
            elif after:
                yield _line(path, number, line, matches=False)
                shown, after = number, after - 1
            before = [*before, line][-search.before :] if search.before else []
        first += len(lines)


def _line(path: str, number: int, line: str, *, matches: bool) -> FoundLine:
    return FoundLine(path, number, line[:COLUMNS].encode("utf-8", "surrogateescape"), matches)
