"""The patch engine: 100 hunks into 100,000 lines, a file of one long line, and a one-line patch to a small file.

Floors are the least that any program must do, run in turn with ours: decode, split, splice, join and encode for the
hunks; read and write for the whole way.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import row
from ferrule.patch import PlainFiles, apply_patch, parse, plan

LINES = 100_000
HUNKS = 100
ROUNDS = 15
SMALL_ROUNDS = 500


def main() -> None:
    """Print one line a row."""
    with tempfile.TemporaryDirectory() as folder:
        many_hunks(Path(folder))
        long_line(Path(folder))
        one_line(Path(folder))


def many_hunks(folder: Path) -> None:
    """Planning only: the file is read, nothing is written; the floor reads it too."""
    lines = [_source_line(number) for number in range(LINES)]
    file = folder / "big.py"
    file.write_text("\n".join((*lines, "")))
    places = [block * (LINES // HUNKS) + 500 for block in range(HUNKS)]

    def floor() -> bytes:
        split = file.read_bytes().decode().split("\n")
        for at in places:
            split[at : at + 1] = ["    changed"]
        return "\n".join(split).encode()

    rows = (("plain", 2.5, _exact, ""), ("anchored", 3.2, _exact, "@"), ("blanks differ", 7.5, _reindented, ""))
    for name, aim, remember, anchor in rows:
        text = _hunks(lines, places, remember, anchored=bool(anchor))
        planned = plan(parse(text), PlainFiles(), str(folder))
        assert planned.operations[0].added == HUNKS

        def ours(text: str = text) -> object:
            return plan(parse(text), PlainFiles(), str(folder))

        report(f"patch, 100 hunks into 100,000 lines, {name}", ours, floor, ROUNDS, aim)


def long_line(folder: Path) -> None:
    """A line of 10 MB beside a short one that is changed."""
    file = folder / "long"
    file.write_bytes(b"x" * 10_000_000 + b"\nshort\n")
    text = _update("long", "@@", "-short", "+changed")

    def floor() -> bytes:
        split = file.read_bytes().decode().split("\n")
        split[1] = "changed"
        return "\n".join(split).encode()

    report("patch, beside a line of 10 MB", lambda: plan(parse(text), PlainFiles(), str(folder)), floor, ROUNDS, 5.0)


def one_line(folder: Path) -> None:
    """The whole way, in process: parse, plan, apply."""
    file = folder / "small.py"
    file.write_text("".join(f"line {number}\n" for number in range(200)))
    there = _update("small.py", "@@", " line 99", "-line 100", "+LINE 100", " line 101")
    back = _update("small.py", "@@", " line 99", "-LINE 100", "+line 100", " line 101")
    texts = [there, back]

    def ours() -> None:
        apply_patch(texts[0], str(folder))
        texts.reverse()

    def floor() -> None:
        file.write_bytes(file.read_bytes())

    report("patch, one line of a small file", ours, floor, SMALL_ROUNDS, 3.0)


def report(name: str, ours: Callable[[], object], floor: Callable[[], object], rounds: int, aim: float) -> None:
    """One row: medians of both, taken in turn after one round that does not count."""
    ours()
    floor()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for action, kept in zip((ours, floor), times, strict=True):
            start = time.perf_counter()
            action()
            kept.append(time.perf_counter() - start)
    mine, least = map(statistics.median, times)
    print(row(name, mine, least, aim, unit="ms", scale=1e3))


def _source_line(number: int) -> str:
    if number % (LINES // HUNKS) == 0:
        return f"def function_{number}():"
    return f"    value_{number} = compute({number}, other={number * 7})"


def _exact(line: str) -> str:
    return line


def _reindented(line: str) -> str:
    return "\t" + line.strip() + " "


def _hunks(lines: list[str], places: list[int], remember: Callable[[str], str], *, anchored: bool) -> str:
    body: list[str] = []
    for at in places:
        body.append(f"@@ {lines[at - at % (LINES // HUNKS)]}" if anchored else "@@")
        body += [" " + remember(line) for line in lines[at - 3 : at]]
        body += ["-" + remember(lines[at]), "+    changed"]
        body += [" " + remember(line) for line in lines[at + 1 : at + 4]]
    return _update("big.py", *body)


def _update(path: str, *lines: str) -> str:
    return "\n".join(("*** Begin Patch", f"*** Update File: {path}", *lines, "*** End Patch"))


if __name__ == "__main__":
    main()
