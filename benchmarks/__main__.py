"""Run benchmarks, each as a program of its own with an empty home, and print their rows as one table.

`python -m benchmarks [NAME]...`: the rows go to standard error as they come, the table to standard output at the end.
Exits with 1 when a benchmark broke; a missed aim is a figure, not a failure.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure import LINE

HERE = Path(__file__).parent
HEAD = "| work | ours | floor | ratio | aim | peers |\n|---|---|---|---|---|---|"
LEFT_OUT = ("PYTHONDONTWRITEBYTECODE", "FERRULE_HOME", "OPENAI_API_KEY")
"""Variables that would change what is measured."""


def main() -> int:
    """Run those named, or all."""
    names = [Path(word).stem for word in sys.argv[1:]] or sorted(path.stem for path in HERE.glob("bench_*.py"))
    load = os.getloadavg()[0]
    started = time.monotonic()
    lines: list[str] = []
    broken: list[str] = []
    for name in names:
        print(f"# {name}", file=sys.stderr)
        code, printed = run(name)
        lines += printed
        if code != 0:
            broken.append(f"{name} ended with code {code}")
    print("\n".join((HEAD, *table(lines))))
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {platform.python_implementation()}"
    print(f"\n{machine} {platform.python_version()}; load {load:.1f} at the start, ", end="")
    print(f"{os.getloadavg()[0]:.1f} at the end, {time.monotonic() - started:.0f} s", *broken, sep="\n")
    return 1 if broken else 0


def run(name: str) -> tuple[int, list[str]]:
    """The exit code and what it printed."""
    printed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ferrule-bench-home-") as home:
        env = {key: value for key, value in os.environ.items() if key not in LEFT_OUT} | {"HOME": home}
        words = [sys.executable, "-m", f"benchmarks.{name}"]
        with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", file=sys.stderr, flush=True)
                printed.append(line.rstrip("\n"))
    return process.returncode, printed


def table(lines: Iterable[str]) -> list[str]:
    """A line of the table for each row; whatever else was printed stays out."""
    rows = []
    for match in filter(None, map(LINE.fullmatch, lines)):
        aim = (match["aim"] or "") + ("; missed" if match["missed"] else "")
        peers = (match["peers"] or "").replace("; peer ", ", ").removeprefix(", ")
        cells = (match["name"], match["ours"], match["floor"] or "", match["ratio"] or "", aim, peers)
        rows.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return rows


if __name__ == "__main__":
    sys.exit(main())
