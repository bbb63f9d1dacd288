"""The search without ripgrep. Slower, the same answers."""

import os
import time
from collections.abc import Iterator
from io import FileIO

from ferrule.builtin.searching.ignores import Walk
from ferrule.builtin.searching.patterns import LinePattern, text_lines
from ferrule.builtin.searching.request import COLUMNS, SEARCH_SECONDS, Dated, Found, FoundLine, Search
from ferrule.builtin.searching.ripgrep import MAX_LINES
from ferrule.protocol.errors import RespondToModel

BLOCK = 4 * 1024 * 1024
"""Bytes of a file that are searched at once; a longer line is searched in parts."""
FIRST = 64 * 1024
"""A NUL among these makes a file binary: it is not searched. A later one ends the search of its file."""


def search_in_python(search: Search) -> Found:
    """Raises `RespondToModel`: a wrong pattern or glob, or the time is over."""
    deadline = time.monotonic() + SEARCH_SECONDS
    pattern = None if search.pattern is None else LinePattern(search.pattern, ignore_case=search.ignore_case)
    walk = Walk(search.path, search.cwd, search.include, hidden=search.hidden)
    files = Dated()
    lines: list[FoundLine] = []
    warnings: list[str] = []
    for path in walk:
        if time.monotonic() > deadline:
            raise RespondToModel(f"the search timed out after {SEARCH_SECONDS:g} seconds; install ripgrep")
        try:
            if pattern is None:
                files.add([os.fsencode(path)])
                continue
            with FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
                if search.lines:
                    lines += _matching_lines(file, path, pattern, search)
                elif any(pattern.in_text(text) for text in _texts(file)):
                    files.add([os.fsencode(path)])
        except OSError as error:
            warnings.append(f"{path}: {error.strerror}")
        if len(lines) >= MAX_LINES:
            break
    return Found(
        files=files.newest(search.newest),
        count=len(files),
        lines=lines[:MAX_LINES],
        warnings=[*walk.problems, *warnings],
        cut=len(lines) >= MAX_LINES,
    )


def _texts(file: FileIO) -> Iterator[str]:
    """The file in blocks of whole lines; nothing of a binary one."""
    block = file.read(FIRST) or b""
    if block.startswith((b"\xff\xfe", b"\xfe\xff")):
        yield (block + file.readall()).decode("utf-16", "replace")
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


def _matching_lines(file: FileIO, path: str, pattern: LinePattern, search: Search) -> Iterator[FoundLine]:
    """The matching lines with those around them, each once, in order."""
    first = 1
    shown = 0
    after = 0
    before: list[str] = []
    for text in _texts(file):
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
