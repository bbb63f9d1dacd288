"""The files of a folder as documents: which have changed since they were indexed, and what they hold. Blocking."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ferrule.ignores.walk import Walk
from ferrule.kernel_files import Shown, Storage, refuse_elsewhere, refuse_hidden, refuse_kernel_files
from ferrule.patch.text import decoded
from ferrule.protocol.truncation import BYTES_PER_TOKEN
from ferrule.reading import Unreadable, read_inside
from ferrule.retrieval.chunking import Chunk, Chunking, chunks, estimated_tokens
from ferrule.retrieval.tables import Document

MAX_FILE_BYTES = 2 << 20
"""Larger files are data or made by programs; a source file of that size has 50,000 lines."""
PARSED = frozenset({".pdf", ".docx", ".pptx", ".xlsx", ".odt", ".odp", ".ods"})
"""Names of documents that a parser reads."""
MAX_PARSED_BYTES = 32 << 20
"""Of such a document: pictures are most of it."""
MAX_FILES = 100_000
"""Files of one folder: a home directory, or a whole disk, is not what anybody means to search."""
MAX_LEFT_OUT = 100_000
"""Files beyond those at which the look at a folder ends: it takes a second for so many."""
CHUNKS = Chunking(400, 40)
"""Half of the API's: a model reads several hits at once, and can open the file around one."""
BATCH_FILES, BATCH_BYTES = 1000, 4 << 20
"""What is read and written at a time: half a second of work. Smaller ones leave more for FTS5 to merge."""
_UNREADABLE_SHARE = 10
"""A text has fewer than one undecodable character in so many."""


class Entry(NamedTuple):
    """A file that has to be read. `name` is its path below the folder as text, `path` the same for the system; `state`
    tells whether it has changed."""

    name: str
    path: str
    state: str
    size: int


class Survey(NamedTuple):
    """What a look at the folder has shown. `left_out`: files that are too large, or beyond the most that are taken."""

    changed: list[Entry]
    gone: list[str]
    left_out: int
    problems: list[str]


class Contents(NamedTuple):
    """What was read of changed files. `stamps` are new ones of files that hold what they held; `unparsed` have their
    names, stamps and bytes."""

    documents: list[Document]
    stamps: dict[str, str]
    unparsed: list[tuple[str, str, bytes]]


def check_readable(top: str, shown: Shown) -> None:
    """Raise `OSError` for a folder (a real path) that is not read."""
    refuse_hidden(top, shown)
    refuse_kernel_files(top, below=True)


def survey(top: str, known: Mapping[str, str], shown: Shown) -> Survey:
    """Look which files below a folder (a real path) differ from those with `known` stamps. Reads no file but those that
    say what is ignored."""
    walk = Walk(top, top, shown=shown)
    start = len(top.rstrip("/")) + 1
    changed: list[Entry] = []
    left = set(known)
    left_out = taken = 0
    for path in walk:
        try:
            status = os.lstat(path)
        except OSError:  # it vanished
            continue
        if status.st_size > _most(path) or taken == MAX_FILES:
            left_out += 1
            if left_out == MAX_LEFT_OUT:
                left.clear()  # what is left may be among those that were not seen
                break
            continue
        taken += 1
        name = path[start:].encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        state = f"{status.st_mtime_ns}.{status.st_size}"
        left.discard(name)
        if not known.get(name, "").startswith(f"{state} "):
            changed.append(Entry(name, path[start:], state, status.st_size))
    changed.sort(key=lambda entry: is_parsed(entry.name))  # those that take long are the last
    return Survey(changed, sorted(left), left_out, walk.problems)


def is_parsed(name: str) -> bool:
    """Return whether a parser reads the file."""
    return os.path.splitext(name)[1].lower() in PARSED


def _most(name: str) -> int:
    return MAX_PARSED_BYTES if is_parsed(name) else MAX_FILE_BYTES


def batches(changed: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Yield the files in portions."""
    batch: list[Entry] = []
    size = 0
    for entry in changed:
        batch.append(entry)
        size += entry.size
        if len(batch) == BATCH_FILES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read(top: str, batch: Sequence[Entry], known: Mapping[str, str], shown: Shown) -> Contents:
    """Read files. Those that cannot be read now are left out, to be tried again; those that hold no text are documents
    without chunks, so that they are not read again."""
    contents = Contents([], {}, [])
    for entry in batch:
        try:
            data = read_inside(top, entry.path, _most(entry.path), check=lambda folder: _check(folder, top, shown))
        except (FileNotFoundError, Unreadable):
            continue
        digest = hashlib.blake2b(data, digest_size=12).hexdigest()
        stamp = f"{entry.state} {digest}"
        if known.get(entry.name, "").endswith(f" {digest}"):
            contents.stamps[entry.name] = stamp
        elif is_parsed(entry.name):
            contents.unparsed.append((entry.name, stamp, data))
        else:
            contents.documents.append(document(entry.name, stamp, text_of(data)))
    return contents


def document(name: str, stamp: str, text: str) -> Document:
    """Return a file with this text as a document."""
    return Document(name, _by_line(text), title=name, stamp=stamp)


def _check(folder: int, top: str, shown: Shown) -> None:
    refuse_elsewhere(folder, shown)
    Storage().check(folder, top)


def text_of(data: bytes) -> str:
    """Return the text of a file in any encoding; empty if it holds none."""
    text, _ = decoded(data)
    if "\0" in text:
        return ""
    if not text.isascii():
        text = text.encode("utf-8", "surrogateescape").decode(errors="replace").removeprefix("\ufeff")
        if text.count("\ufffd") * _UNREADABLE_SHARE > len(text):
            return ""
    return text


def _counted(text: str, start: int, count: int) -> int:
    """Count four characters of ASCII as a token: for thousands of files that takes no time, and is near enough."""
    return min(start + BYTES_PER_TOKEN * count, len(text)) if text.isascii() else estimated_tokens(text, start, count)


def _by_line(text: str) -> list[Chunk]:
    """Return the chunks of a text; each starts at a line, counted from 1."""
    found: list[Chunk] = []
    line, at = 1, 0
    for chunk in chunks(text, CHUNKS, _counted):
        line += text.count("\n", at, chunk.start)
        at = chunk.start
        found.append(Chunk(chunk.text, line))
    return found
