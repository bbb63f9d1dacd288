"""Explain why a patch does not fit, in words that help a model send a better one. None of it costs more than the
search."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ferrule.patch.edits import Missed, old_lines
from ferrule.patch.errors import MatchError, clip
from ferrule.patch.files import FileLayer, Kind
from ferrule.patch.guess import marked_encoding
from ferrule.patch.matching import Level, LineIndex
from ferrule.patch.miscopied import meanings
from ferrule.patch.text import Text

_SHOWN_RUN = 500
"""Characters of the expected lines that an error repeats."""
_SHOWN_LINE = 110
"""Characters of one line, expected or found."""
_LINES_PER_VOTE = 4
_FREE_VOTES = 1000
"""Limits on an alignment's work: one vote per so many lines of the file, plus some for a small file."""
_CANDIDATES = 20
_COMPARED = 200
"""Lines compared letter by letter to find the most similar one, and how far: some 20 ms at worst."""
_SIMILAR = 0.6

_WORD = re.compile(r"\w{3,}")
_ODD = re.compile("[\0\udc80-\udcff]")
_REPLACEMENT = "\ufffd"
_MARK_BYTES = 4
_UNIFIED = re.compile(r"-\d+(?:,\d+)? \+\d+")


class _Alignment(NamedTuple):
    """A run aligned with the file at line `start` (0-based); `matches` of its lines are there, blanks aside."""

    start: int
    matches: int


def explain_missed(missed: Missed, total: int, text: Text, index: LineIndex, path: str) -> str:
    """Explain to a model that a hunk was not found: the reference's sentence, then where and why."""
    which = f"Hunk {missed.number} of {total} (patch line {missed.chunk.line})"
    lines = text.contents()
    if missed.anchor is not None:
        head = f"Failed to find context '{clip(missed.anchor, _SHOWN_LINE)}' in {path}"
        return f"{head}\n{which}: {_explain_anchor(missed, index, lines)}"
    run = old_lines(missed.chunk.lines)
    head = f"Failed to find expected lines in {path}:\n" + clip("\n".join(run), _SHOWN_RUN)
    return f"{head}\n\n{which}: {_explain_run(missed, run, index, lines)}{_explain_encoding(run, text)}"


def _explain_encoding(run: list[str], text: Text) -> str:
    """Describe the encoding of a file that is not plain UTF-8, if its lines were not found."""
    if not text.encoding.is_utf8:
        said = f"\nThe file is {text.encoding.described}"
    else:
        odd = sum(not line.isprintable() and bool(_ODD.search(line)) for line in text.lines)
        marked = marked_encoding(text.write()[:_MARK_BYTES]) if odd else None
        if not odd:
            return ""
        named = f" It starts like {marked}, and is damaged." if marked else ""
        if not named and any("\0" in line for line in text.lines):
            named = " It is a binary file."
        said = f"\nLines of the file with bytes that are not UTF-8, or NULs: {odd}.{named} Only the others can be named"
    if any(_REPLACEMENT in line for line in run):
        said += f"; {_REPLACEMENT} stands for bytes that a reader could not show, and matches nothing"
    return f"{said}."


def explain_missing_file(path: str, cwd: str, files: FileLayer) -> str:
    """Return a hint after `No such file or directory`, or nothing: the same path without its first folders may
    exist."""
    if "\\n" in path:
        return r". The path goes on after an escaped line end (`\n`): send real line ends."
    bare = path.strip("'\"`").replace("\\ ", " ")
    if bare != path and _is_file(os.path.join(cwd, bare), files):
        return f". '{bare}' exists: write the path without quotes and escapes."
    parts = path.strip("/").split("/")
    for at in range(1, len(parts)):
        shorter = "/".join(parts[at:])
        if _is_file(os.path.join(cwd, shorter), files):
            return f". Paths start at {cwd}; '{shorter}' exists there: wrong directory?"
    return f". Paths start at {cwd}."


def _is_file(path: str, files: FileLayer) -> bool:
    try:
        return files.look(path).kind is Kind.FILE
    except OSError:
        return False


def _explain_anchor(missed: Missed, index: LineIndex, lines: list[str]) -> str:
    anchor = missed.anchor or ""
    if _UNIFIED.match(anchor.strip()):
        return "V4A has no line numbers: write '@@' alone, or '@@ ' and a whole line that stands above the change."
    earlier = index.find([anchor], 0)
    if earlier:
        return _out_of_order("that line stands", earlier.start, missed.position)
    within = [at for at, line in enumerate(lines) if anchor.strip() and anchor.strip() in line]
    if within:
        return (
            f"file line {within[0] + 1} contains it, but an anchor is a whole line: "
            f"@@ {clip(lines[within[0]].strip(), _SHOWN_LINE)}"
        )
    return (
        _miscopied([anchor], lines)
        or _nearest(anchor, lines)
        or "no line of the file resembles it. Read the file again."
    )


def _explain_run(missed: Missed, run: list[str], index: LineIndex, lines: list[str]) -> str:
    if not lines:
        return "the file is empty. Add lines to it by a hunk that has '+' lines only."
    if missed.chunk.at_end:
        elsewhere = index.find(run, missed.position)
        if elsewhere:
            after = len(lines) - elsewhere.start - len(run)
            return (
                f"the lines stand at file line {elsewhere.start + 1}, but {after} more follow, so they are not at the "
                "end. Leave out '*** End of File' or add those lines."
            )
    earlier = index.find(run, 0)
    if earlier:
        return _out_of_order("these lines stand", earlier.start, missed.position)
    return (
        _applied_before(missed, lines)
        or _headers(missed)
        or _miscopied(run, lines)
        or _partial(run, index, lines)
        or _nearest(next((line for line in run if line.strip()), ""), lines)
        or "none of the lines is in the file. Wrong file, or stale context: read the file again."
    )


def _out_of_order(what: str, start: int, position: int) -> str:
    return (
        f"{what} at file line {start + 1}, but this part of the patch may only match from line {position + 1} on, "
        "after the hunk or anchor before it. Put the hunks in file order."
    )


def _applied_before(missed: Missed, lines: list[str]) -> str:
    new = [line[1:] for line in missed.chunk.lines if line[0] != "-"]
    if not any(line[0] == "+" and line[1:].strip() for line in missed.chunk.lines):
        return ""
    start = _find(new, lines)
    return (
        f"the result of this hunk already stands at file line {start + 1}. Was it applied before?" if start >= 0 else ""
    )


def _find(run: list[str], lines: list[str]) -> int:
    """Find the run, ignoring trailing blanks; -1 if it is nowhere."""
    try:
        prepared = LineIndex(lines, run).at(Level.BLANKS)
    except MatchError:
        return -1
    return prepared.find(run, 0) if prepared else -1


def _headers(missed: Missed) -> str:
    """Explain that the two file headers of a unified diff look like a removed and an added line."""
    pairs = zip(missed.chunk.lines, missed.chunk.lines[1:], strict=False)
    if not any(one.startswith("--- ") and other.startswith("+++ ") for one, other in pairs):
        return ""
    return (
        "the lines that start with '--- ' and '+++ ' are the file names of a unified diff, and here they would be a "
        "removed and an added line. Leave them out, and the numbers after '@@': '*** Update File: ' names the file."
    )


def _miscopied(run: list[str], lines: list[str]) -> str:
    for meant in meanings("\n".join(run)):
        start = _find(meant.text.split("\n"), lines)
        if start >= 0:
            return f"{meant.how} they stand at file line {start + 1}. {meant.advice}"
    return ""


def _partial(run: list[str], index: LineIndex, lines: list[str]) -> str:
    best = _align(run, index)
    if best is None:
        return ""
    at, expected = _first_difference(run, best, lines)
    here = f"{best.matches} of {len(run)} lines match at file line {best.start + 1}"
    number = best.start + at + 1
    if not 1 <= number <= len(lines):
        edge = "ends" if number > len(lines) else "starts"
        return f"{here}, but the file {edge} there. Expected {_visible(expected)}"
    return f"{here}; the first that differs is file line {number}:\n" + _contrast(expected, lines[number - 1])


def _first_difference(run: list[str], best: _Alignment, lines: list[str]) -> tuple[int, str]:
    for at, line in enumerate(run):
        number = best.start + at
        if not 0 <= number < len(lines) or line.strip() != lines[number].strip():
            return at, line
    return 0, run[0]


def _align(run: list[str], index: LineIndex) -> _Alignment | None:
    """Find the offset that matches most lines of the run; rare lines vote first, until the votes are used up."""
    prepared = index.at(Level.BLANKS)
    if prepared is None:
        return None
    codes = prepared.encode(run)
    telling = [at for at, line in enumerate(run) if any(map(str.isalnum, line))]
    counts = Counter(prepared.text)
    votes: Counter[int] = Counter()
    budget = len(prepared.text) // _LINES_PER_VOTE + _FREE_VOTES
    for at in sorted(telling, key=lambda at: counts[codes[at]]):
        votes.update(position - at for position in islice(_positions(prepared.text, codes[at]), budget))
        budget -= counts[codes[at]]
        if budget <= 0:
            break
    if not votes:
        return None
    most = max(votes.values())
    start = min(offset for offset, count in votes.items() if count == most)
    matches = sum(
        code == other for code, other in zip(codes[max(-start, 0) :], prepared.text[max(start, 0) :], strict=False)
    )
    return _Alignment(start, matches)


def _positions(text: str, code: str) -> Iterator[int]:
    at = text.find(code)
    while at >= 0:
        yield at
        at = text.find(code, at + 1)


def _nearest(expected: str, lines: list[str]) -> str:
    """Return the line most like the expected one, if it shares its longest word."""
    wanted = expected.strip()[:_COMPARED]
    words = sorted(_WORD.findall(wanted), key=len, reverse=True)[:1]
    if not words:
        return ""
    from difflib import SequenceMatcher

    candidates = islice((at for at, line in enumerate(lines) if words[0] in line), _CANDIDATES)
    ranked = [(SequenceMatcher(None, wanted, lines[at].strip()[:_COMPARED]).ratio(), -at) for at in candidates]
    score, at = max(ranked, default=(0.0, 0))
    if score < _SIMILAR:
        return ""
    return f"the most similar line is file line {1 - at}:\n" + _contrast(expected, lines[-at])


def _contrast(expected: str, found: str) -> str:
    """Return both lines with visible blanks, and the likely cause."""
    squeezed = "".join(expected.split()) == "".join(found.split())
    shown = f"  expected: {_visible(expected, inside=squeezed)}\n  found:    {_visible(found, inside=squeezed)}\n"
    if not squeezed:
        cause = "stale context: read the file again and copy its lines as they are."
    elif ("\t" in expected) != ("\t" in found):
        cause = "tabs against spaces (→ is a tab, · a space)."
    else:
        cause = "different blanks (· is a space, → a tab)."
    return f"{shown}Likely cause: {cause}"


def _visible(line: str, *, inside: bool = True) -> str:
    """Return the line with visible blanks: all of them, or those at its ends and every unusual one."""
    body = line.strip(" ")
    lead, tail = len(line) - len(line.lstrip(" ")), len(line) - len(line.rstrip(" "))
    marked = line.replace(" ", "·") if inside or not body else "·" * lead + body + "·" * tail
    marked = marked.replace("\t", "→")
    shown = "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in clip(marked, _SHOWN_LINE))
    return shown or "(an empty line)"
