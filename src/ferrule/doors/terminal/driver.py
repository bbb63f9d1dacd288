"""Textual's driver, for a terminal that may read slowly, not at all, or be gone: its window was closed, its connection
ended. Nothing waits for it: what it has not taken is kept up to a limit, then frames are dropped, and the screen is
drawn whole once it reads again."""

import os
import re
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import IO, Any, Protocol, cast

from textual.drivers.linux_driver import LinuxDriver

from ferrule.doors.terminal.images import APC
from ferrule.doors.terminal.inline import PASSED, START
from ferrule.doors.terminal.keyboard import Keyboard

MOST_FRAMES = 256 * 1024
"""Bytes of frames that wait for the terminal: a few of the largest screens."""
MOST_WAITING = 16 * 1024 * 1024
"""Bytes of everything that waits, images, too."""
PATIENCE = 2.0
"""Seconds in which a terminal has to take the last of it when the program ends."""
_PIECE = 64 * 1024
_PASSED = re.compile(f"{PASSED}+")
LOOK, LOOK_AGAIN = 0.1, 0.02
"""Seconds to wait for keys, and for the rest of what may be more than one key."""


class Outlet:
    """Takes text without waiting; a thread of its own writes it. `caught_up` is called there once all is written after
    something was dropped; it is told whether images were."""

    def __init__(self, stream: IO[str], caught_up: Callable[[bool], None]) -> None:
        self._stream = stream
        self._caught_up = caught_up
        self._news = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._busy = False
        self._dropped = self._dropped_images = False
        self._thread: threading.Thread | None = None
        self.image_seconds = 0.0
        """How long the terminal took for the last image."""

    @property
    def is_behind(self) -> bool:
        """Whether the terminal has not taken all yet."""
        with self._news:
            return self._busy or bool(self._waiting)

    @property
    def waiting(self) -> int:
        """Bytes that wait."""
        with self._news:
            return sum(map(len, self._waiting))

    def write(self, text: str) -> int:
        """Take a text; what it cannot take any more, older frames first, is dropped."""
        data = text.encode(errors="replace")
        with self._news:
            self._make_room(data)
            self._waiting.append(data)
            self._news.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="terminal-output")
                self._thread.start()
        return len(text)

    def _make_room(self, data: bytes) -> None:
        frames = sum(len(part) for part in self._waiting if not _is_image(part))
        if frames + len(data) > MOST_FRAMES and frames and not _is_image(data):
            self._waiting = deque(filter(_is_image, self._waiting))
            self._dropped = True
        if sum(map(len, self._waiting)) + len(data) > MOST_WAITING and self._waiting:
            self._waiting.clear()
            self._dropped = self._dropped_images = True

    def flush(self) -> None:
        """Do nothing: the thread writes."""

    def settle(self, seconds: float) -> None:
        """Wait until all is written, but no longer than this."""
        with self._news:
            self._news.wait_for(lambda: not self._waiting and not self._busy, seconds)

    def _run(self) -> None:
        while True:
            with self._news:
                self._busy = False
                self._news.notify_all()
                self._news.wait_for(lambda: self._waiting)
                data, self._busy = self._waiting.popleft(), True
            started = time.monotonic()
            self._put(data)
            if _is_image(data):
                self.image_seconds = time.monotonic() - started
            with self._news:
                dropped = self._dropped and not self._waiting
                images = self._dropped_images
                if dropped:
                    self._dropped = self._dropped_images = False
            if dropped:
                self._caught_up(images)

    def _put(self, data: bytes) -> None:
        """Write to the descriptor itself: a stream would hold a lock, for which the program's end would wait."""
        descriptor, rest = self._stream.fileno(), memoryview(data)
        while rest:
            try:
                rest = rest[os.write(descriptor, rest[:_PIECE]) :]
            except BlockingIOError:
                select.select((), (descriptor,), ())
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def _is_image(data: bytes) -> bool:
    return data.startswith((APC.encode(), START.encode()))


class Drawn(Protocol):
    """The application, as its driver knows it."""

    def draw_again(self, images: bool) -> None:
        """Draw all of it: the terminal has missed something, `images`, too."""

    def withdraw(self) -> None:
        """Take the images from the screen, before it is left."""


class LastingDriver(LinuxDriver):
    """Writes to an `Outlet`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.outlet: Outlet | None = None
        """Through which all goes to the terminal."""
        if self._file is not None:
            self.outlet = Outlet(self._file, self._draw_again)
            self._file = cast("TextIOWrapper", self.outlet)

    def _draw_again(self, images: bool) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._app.call_later, cast("Drawn", self._app).draw_again, images)

    def write(self, data: str) -> None:
        """Write to the terminal; cells that are passed over stay as they are."""
        super().write(_PASSED.sub(lambda cells: f"\x1b[{len(cells[0])}C", data) if PASSED in data else data)

    def run_input_thread(self) -> None:
        """Read keys and pasted texts until the program ends, or the terminal is gone."""
        keyboard = Keyboard()
        while not self.exit_event.is_set():
            ready, _, _ = select.select((self.fileno,), (), (), LOOK_AGAIN if keyboard.holds else LOOK)
            data = self._read() if ready else b""
            if ready and not data:
                os.kill(os.getpid(), signal.SIGHUP)  # nothing tells those who are started deaf to it
                return
            for message in keyboard.feed(data) if ready else keyboard.settle():
                self.process_message(message)

    def _read(self) -> bytes:
        """Return what was typed; nothing where the terminal is gone."""
        try:
            return os.read(self.fileno, _PIECE)
        except OSError:
            return b""

    def stop_application_mode(self) -> None:
        """Leave the screen, without images on it."""
        cast("Drawn", self._app).withdraw()
        super().stop_application_mode()

    def close(self) -> None:
        """Close it, once the terminal has taken the last of it, if it does."""
        super().close()
        if self.outlet is not None:
            self.outlet.settle(PATIENCE)
