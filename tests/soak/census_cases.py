"""What a census must see: `python -m tests.soak.census_cases CASE ROOT`, in a process that does nothing else."""

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from tests.soak.census import Census, settled_leaks


def nothing_is_no_leak(root: Path) -> None:
    assert settled_leaks(lambda: Census.take(root), Census.take(root), 0) == []


def every_leak_is_seen(root: Path) -> None:
    before = Census.take(root)
    read, write = os.pipe()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="forgotten")
    thread.start()
    child = subprocess.Popen(["sleep", "60"], cwd=root / "session-1")
    (root / "tmp" / "left").touch()
    (root / "session-1" / ".git").mkdir()
    try:
        leaks = settled_leaks(lambda: Census.take(root), before, 0)
    finally:
        stop.set()
        thread.join()
        child.kill()
        child.wait()
        os.close(read)
        os.close(write)
    kinds = Counter(leak.split(" leaked: ")[0] for leak in leaks)
    assert kinds == {"descriptor": 1, "thread": 1, "process": 1, "file": 2}, leaks
    assert any("2 x pipe" in leak for leak in leaks)
    assert any("sleep 60" in leak for leak in leaks)


def who_left_the_family_is_seen_by_where_it_works(root: Path) -> None:
    before = Census.take(root)
    script = "import subprocess as s; print(s.Popen(['sleep', '60'], stdout=s.DEVNULL, start_new_session=True).pid)"
    told = subprocess.run([sys.executable, "-c", script], cwd=root / "session-1", stdout=subprocess.PIPE, check=True)
    try:
        (leak,) = Census.take(root).leaks(before)
    finally:
        os.kill(int(told.stdout), 9)
    assert leak.startswith(f"process leaked: 1 x {int(told.stdout)} "), leak


CASES = {
    case.__name__: case
    for case in (nothing_is_no_leak, every_leak_is_seen, who_left_the_family_is_seen_by_where_it_works)
}

if __name__ == "__main__":
    CASES[sys.argv[1]](Path(sys.argv[2]))
