"""The terminal interface: its first paint against Textual's own empty app, keys while a command floods, a long session.

Programs run on a pseudo-terminal of 80 by 24. A paint counts when a word that only the finished screen has is written;
a key counts when its character is.
"""

import asyncio
import fcntl
import os
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.measure import Row, bounded, medians, row
from ferrule.testing import ScriptedModel, function_call, step

ROUNDS = 9
CELLS = 5_000
FLOOD_BYTES = 100_000_000
KEYS = "qwzjkvxypu"
"""Letters that the last row of the screen has nowhere else while the command runs."""
EMPTY_APP = """\
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("ready")
Empty().run()
"""
SESSION = """\
import asyncio, resource, time
from ferrule.doors.terminal.app import TerminalApp
from ferrule.session.talk import Opening
from ferrule.protocol.events import ExecCommandBegin, ExecCommandEnd, ExecCommandOutputDelta, ItemUpdated
from ferrule.protocol.permissions import DangerFullAccess
from ferrule.protocol.settings import ModelSettings, ProviderSettings, Settings

async def measure():
    provider = ProviderSettings(name="none", base_url="http://127.0.0.1:9/v1", wire_api="responses")
    settings = Settings(
        cwd="/tmp", home="/nonexistent", ephemeral=True, model=ModelSettings(model="gpt-5.5"), provider=provider,
        sandbox_policy=DangerFullAccess(),
    )
    app = TerminalApp(lambda: Opening(settings=settings))
    async with app.run_test(size=(80, 24)) as pilot:
        while app.status.doing or app.desk is None:
            await pilot.pause(0.05)
        for number in range(CELLS // 2):
            call = f"call{number}"
            text = f"## Step {number}\\n\\nThe **next** `command`."
            app.desk.show_event(ItemUpdated(item_id="i", kind="text", delta=text))
            app.desk.show_event(ExecCommandBegin(call_id=call, command=("make", f"part{number}"), cwd="/"))
            output = "".join(f"line {line} of part {number}\\n" for line in range(20))
            app.desk.show_event(ExecCommandOutputDelta(call_id=call, stream="stdout", chunk=output.encode()))
            app.desk.show_event(ExecCommandEnd(call_id=call, exit_code=0, output=output, duration_ms=10))
            if number % 50 == 0:
                await pilot.pause(0.05)
        transcript = app.transcript
        while transcript._unmeasured or transcript._changed:
            await pilot.pause(0.05)
        assert len(transcript.cells) >= CELLS, len(transcript.cells)
        times, top = [], transcript.max_scroll_y
        for frame in range(120):
            started = time.process_time()
            transcript.scroll_to(y=top - frame * 37, animate=False, immediate=True)
            app.screen._compositor.render_strips()
            times.append(time.process_time() - started)
        print(sorted(times)[len(times) * 95 // 100], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
asyncio.run(measure())
""".replace("CELLS", str(CELLS))


@contextmanager
def on_terminal(words: list[str], home: Path) -> Iterator[int]:
    """A program on a new terminal, and the other side of it."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "HOME": str(home), "FERRULE_HOME": str(home / ".ferrule")}
    child = subprocess.Popen(words, env=env, cwd=home, preexec_fn=partial(os.login_tty, slave))  # noqa: PLW1509
    os.close(slave)
    try:
        yield master
    finally:
        child.kill()
        child.wait()
        os.close(master)


def seconds_until(master: int, word: bytes, limit: float = 60) -> float:
    """The time until the program has written this."""
    started, seen = time.perf_counter(), b""
    while word not in seen:
        ready, _, _ = select.select([master], [], [], limit)
        assert ready, f"{word!r} did not come"
        seen = seen[-4096:] + os.read(master, 65536)
    return time.perf_counter() - started


async def first_paint(words: list[str], word: bytes, home: Path) -> float:
    """Seconds from the start to the screen."""
    with on_terminal(words, home) as master:
        return seconds_until(master, word)


def ferrule(url: str) -> list[str]:
    """The command that opens the interface."""
    rights = ("-s", "danger-full-access", "-a", "never")
    return [sys.executable, "-m", "ferrule", "--base-url", url, "--wire", "responses", "-m", "gpt-5.5", *rights]


async def paint(home: Path) -> Row:
    """The row of the first paint."""
    ours = partial(first_paint, ferrule("http://127.0.0.1:9/v1"), b"Enter sends", home)
    empty = partial(first_paint, [sys.executable, "-c", EMPTY_APP], b"ready", home)
    times = await medians([ours, empty], ROUNDS)
    return row("terminal: first paint, over an empty Textual app", times[0], times[1], 2, "ms", 1e3)


def key_echo(home: Path) -> list[float]:
    """Milliseconds from each key to its echo while a command floods, the quickest first."""
    flood = f"yes 'a line of the flood, as long as a line' | head -c {FLOOD_BYTES}; sleep 5"
    call = function_call("exec_command", {"cmd": flood, "yield_time_ms": 60_000})
    with ScriptedModel([step(call), "Done."]) as model, on_terminal(ferrule(model.base_url), home) as master:
        seconds_until(master, b"never")
        os.write(master, b"go\r")
        seconds_until(master, b"of the flood")
        times = []
        for key in KEYS:
            time.sleep(0.05)
            drain(master)
            os.write(master, key.encode())
            times.append(1e3 * seconds_until(master, key.encode()))
        return sorted(times)


def drain(master: int) -> None:
    """Take what is written already."""
    while select.select([master], [], [], 0)[0]:
        os.read(master, 65536)


def long_session() -> tuple[float, float]:
    """Seconds of CPU of a frame while scrolling through a long session, and its most memory in MiB."""
    done = subprocess.run([sys.executable, "-c", SESSION], check=True, capture_output=True, text=True)
    seconds, kibibytes = done.stdout.split()
    return float(seconds), int(kibibytes) / 1024


def main() -> None:
    """Print the rows."""
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(paint(Path(folder))), flush=True)
        times = key_echo(Path(folder))
        name = "terminal: key echoed while a command prints 100 MB"
        print(bounded(f"{name}, median", times[len(times) // 2], 20, "ms"))
        print(bounded(f"{name}, slowest of {len(times)}", times[-1], None, "ms"), flush=True)
    frame, memory = long_session()
    print(bounded("terminal: a frame while 5,000 cells scroll, 95 of 100", frame, 1000 / 30, "ms", 1e3))
    print(bounded("terminal: most memory with 5,000 cells", memory, 120, "MiB"))


if __name__ == "__main__":
    main()
