"""The patch engine: 100 hunks into 100,000 lines, a file of one long line, and a one-line patch to a small file.

Floors are the least that any program must do, run in turn with ours: decode, split, splice, join and encode for the
hunks; read and write for the whole way.
"""

import asyncio
import importlib
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import cpu_in_turns, in_turns, is_installed, row
from ferrule.patch import PlainFiles, Plan, apply_patch, parse, plan

LINES = 100_000
HUNKS = 100
ROUNDS = 15
SMALL_ROUNDS = 300


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
        assert _plan(text, folder).operations[0].added == HUNKS

        report(
            f"patch, 100 hunks into 100,000 lines, {name}",
            partial(_plan, text, folder),
            floor,
            ROUNDS,
            aim,
            _openai_agents(file, text),
        )


def long_line(folder: Path) -> None:
    """A line of 10 MB beside a short one that is changed."""
    file = folder / "long"
    file.write_bytes(b"x" * 10_000_000 + b"\nshort\n")
    text = _update("long", "@@", "-short", "+changed")

    def floor() -> bytes:
        split = file.read_bytes().decode().split("\n")
        split[1] = "changed"
        return "\n".join(split).encode()

    report("patch, beside a line of 10 MB", partial(_plan, text, folder), floor, ROUNDS, 5.0)


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

    report("patch, one line of a small file", ours, floor, SMALL_ROUNDS, 3.0, clock=time.perf_counter)


def report(
    name: str,
    ours: Callable[[], object],
    floor: Callable[[], object],
    rounds: int,
    aim: float,
    peer: Callable[[], object] | None = None,
    clock: Callable[[], float] = time.process_time,
) -> None:
    """One row."""
    least, mine = asyncio.run(in_turns([floor, ours], rounds, 1, clock))
    peers = {} if peer is None else {"openai-agents": cpu_in_turns([peer], 1)[0]}
    print(row(name, mine, least, aim, "ms", 1e3, peers), flush=True)


def _openai_agents(file: Path, patch: str) -> Callable[[], object] | None:
    """Its `apply_diff`, which takes the body of one update; None where it is not installed."""
    if not is_installed("agents"):
        return None
    sdk: Any = importlib.import_module("agents")
    diff = "\n".join(patch.split("\n")[2:-1])
    return lambda: sdk.apply_diff(file.read_bytes().decode(), diff).encode()


def _plan(text: str, folder: Path) -> Plan:
    return plan(parse(text), PlainFiles(), str(folder))


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
