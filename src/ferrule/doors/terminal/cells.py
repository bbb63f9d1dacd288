"""What a conversation is made of on the screen: each thing that was said or done, as rows."""

import time
from collections.abc import Sequence

from rich.segment import Segment
from textual.strip import Strip

from ferrule.doors.terminal.cell import Cell, GrowingText
from ferrule.doors.terminal.images import Picture
from ferrule.doors.terminal.output import Output
from ferrule.doors.terminal.strips import (
    BOLD,
    COMMAND,
    CYAN,
    DIM,
    GREEN,
    PLAIN,
    RED,
    TITLE,
    YELLOW,
    Piece,
    indented,
    row,
    wrapped,
)
from ferrule.rendering.safe import safe
from ferrule.rendering.width import chopped, cut
from ferrule.rendering.words import duration, excerpt

LIVE_LINES = 5
"""Lines shown of what a running command wrote last."""
OUTPUT_LINES = 12
"""Lines shown of a finished output; the rest is folded."""
HEAD_LINES = 8
"""Lines shown of a command of many lines."""
MORE = "… {:,} more characters …"
LONGEST_TEXT = 16_000
"""Characters shown of a text that is drawn at once: a user's message, a thought, a note."""
LONGEST_LINE = 10_000
"""Characters shown of one line of an output, which may be a whole file."""


class Note(Cell):
    """A line of the session itself: what was compacted, a warning, an error."""

    def __init__(self, text: str, style: Piece = ("", DIM)) -> None:
        super().__init__()
        self._text = text
        self._lead = style

    def draw(self, width: int) -> list[Strip]:
        """See `Cell`."""
        lead, style = self._lead
        return wrapped(safe(f"{lead}{shortened(self._text)}"), style, width)


def shortened(text: str) -> str:
    """Return a text that can be drawn at once: of a very long one, the beginning and the end."""
    if len(text) <= LONGEST_TEXT + len(MORE):
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n{MORE.format(len(text) - 2 * half)}\n{text[-half:]}"


def warning(text: str) -> Note:
    """Return a warning."""
    return Note(text, ("warning: ", YELLOW))


def failure(text: str) -> Note:
    """Return an error."""
    return Note(text, ("error: ", RED))


class Folded(Note):
    """A note of which one row is shown until it is unfolded."""

    is_foldable = True

    def draw(self, width: int) -> list[Strip]:
        """See `Cell`."""
        lead, style = self._lead
        text = safe(f"{lead}{shortened(self._text)}")
        return wrapped(text, style, width) if self.is_open else [row((cut(text, width), style))]


class Heading(Cell):
    """Where a session begins: the program, the model and the directory."""

    def __init__(self, title: str, rest: str) -> None:
        super().__init__()
        self._title, self._rest = title, rest

    def draw(self, width: int) -> list[Strip]:
        """See `Cell`."""
        return [*wrapped(safe(self._title), BOLD, width), *wrapped(safe(self._rest), DIM, width)]


class Said(Cell):
    """What the user said."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def draw(self, width: int) -> list[Strip]:
        """See `Cell`."""
        return wrapped(safe(shortened(self.text)), BOLD, width, [("› ", TITLE)])


class Thought(Cell):
    """The model's reasoning, folded to its first line."""

    is_foldable = True

    def __init__(self) -> None:
        super().__init__()
        self._text = GrowingText()

    def feed(self, delta: str) -> None:
        """Take more of it."""
        self._text.add(delta)
        self.forget()

    def draw(self, width: int) -> list[Strip]:
        """See `Cell`."""
        text = safe(shortened(str(self._text))).strip().replace("**", "")
        if not text:
            return []
        if self.is_open:
            return wrapped(text, DIM, width, [("· ", DIM)])
        first, _, rest = text.partition("\n")
        return [row(("· ", DIM), (cut(f"{first} …" if rest.strip() else first, width - 2), DIM))]


class Call(Cell):
    """A call of the model: what runs, what it brings, how it ended."""

    is_foldable = True

    def __init__(self) -> None:
        super().__init__()
        self.output = Output()
        self.verdict: tuple[bool, str] | None = None
        self._since = time.monotonic()

    @property
    def is_running(self) -> bool:  # type: ignore[override]
        """Whether it has not ended."""
        return self.verdict is None

    def head(self, width: int) -> list[Strip]:
        """Return the rows that say what is called."""
        raise NotImplementedError

    def end(self, failed: bool, text: str) -> None:
        """Say how it ended; no text: it is not known any more."""
        self.verdict = (failed, text)
        self.forget()

    def draw(self, width: int) -> list[Strip]:
        """See `Cell`."""
        return [*self.head(width), *indented([*self.body(width - 2), *self._last(width - 2)], ("  ", PLAIN))]

    def body(self, width: int) -> list[Strip]:
        """Return the rows of what it has brought so far."""
        lines = self.output.lines(LIVE_LINES) if self.is_running and not self.is_open else self.output.all_lines()
        if not self.is_open and not self.is_running:
            lines = excerpt(lines, OUTPUT_LINES)
        return [strip for line in lines for strip in _line(line, width, whole=self.is_open)]

    def _last(self, width: int) -> list[Strip]:
        if self.verdict is None:
            return [row((cut(f"… {duration(time.monotonic() - self._since)}", width), DIM))]
        failed, text = self.verdict
        if not text:
            return []
        return [row(("✗ ", RED), (cut(text, width - 2), RED)) if failed else row(("✓ ", GREEN), (text, GREEN))]


def _line(line: str, width: int, *, whole: bool) -> list[Strip]:
    text = safe(line[:LONGEST_LINE]).expandtabs(8)
    parts = chopped(text, width) if whole else [cut(text, width)]
    return [row((part, DIM)) for part in parts]


class CommandCell(Call):
    """A command."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def head(self, width: int) -> list[Strip]:
        """See `Call`."""
        text = self.text if self.is_open else fold_text(self.text, width)
        return [row(("command", COMMAND)), *wrapped(safe(text), PLAIN, width, [("$ ", DIM)])]


def fold_text(text: str, width: int) -> str:
    """Return a long text as its beginning and its end, each a few rows."""
    lines = text.split("\n")
    if len(lines) > HEAD_LINES + 1:
        text = "\n".join(excerpt(lines, HEAD_LINES))
    half = max(width, 1) * HEAD_LINES // 2
    if len(text) <= 2 * half + len(MORE):
        return text
    return f"{text[:half]}\n{MORE.format(len(text) - 2 * half)}\n{text[-half:]}"


class ToolCell(Call):
    """A call of a tool. `shown` is its action, `result` its answer, if they draw themselves by `visualize`."""

    def __init__(self, title: str, *, wrong: bool = False) -> None:
        super().__init__()
        self.title = title
        self._wrong = wrong
        self.progress = ""
        self.shown: object = None
        self.result: object = None

    def head(self, width: int) -> list[Strip]:
        """See `Call`."""
        rows = wrapped(safe(self.title), RED if self._wrong else TITLE, width)
        return rows if self.shown is None else [*rows, *indented(_drawn(self.shown, width - 2), ("  ", PLAIN))]

    def body(self, width: int) -> list[Strip]:
        """See `Call`."""
        if self.result is not None:
            rows = _drawn(self.result, width)
            return rows if self.is_open else _excerpt(rows)
        progress = [row((cut(safe(self.progress), width), DIM))] if self.is_running and self.progress else []
        return [*progress, *super().body(width)]


def _excerpt(rows: Sequence[Strip]) -> list[Strip]:
    if len(rows) <= OUTPUT_LINES + 1:
        return list(rows)
    half = OUTPUT_LINES // 2
    return [*rows[:half], row((f"… {len(rows) - OUTPUT_LINES} more lines …", DIM)), *rows[-half:]]


def _drawn(shown: object, width: int) -> list[Strip]:
    """Return how an action or an answer draws itself. A fault of the tool's own code stands in its place."""
    try:
        return _rendered(shown.visualize, width)  # type: ignore[attr-defined]
    except Exception as fault:  # noqa: BLE001 - whatever a user's code raises is told, and the screen goes on
        return wrapped(safe(f"{type(shown).__name__}.visualize failed: {fault!r}"), RED, width)


def _rendered(renderable: object, width: int) -> list[Strip]:
    """Return what a tool draws of itself, without its control characters."""
    from rich.console import Console

    lines = Console(width=width, force_terminal=True, markup=False, emoji=False, highlight=False).render_lines(
        renderable if hasattr(renderable, "__rich_console__") else str(renderable), pad=False
    )
    return [Strip([Segment(safe(part.text), part.style) for part in line if not part.control]) for line in lines]


class Image(Cell):
    """An image that somebody looks at: what it is and, where the terminal has it, the image."""

    def __init__(self, title: str, picture: Picture | None = None) -> None:
        super().__init__()
        self._title = title
        self.picture = picture
        self._first = self._lines = 0
        """The row where the image begins, and how many it has."""

    def rows(self, width: int) -> list[Strip]:
        """See `Cell`."""
        if self.picture is not None and not self.picture.is_there:
            self.picture = None
            self.forget()
        return super().rows(width)

    def draw(self, width: int) -> list[Strip]:
        """See `Cell`."""
        head = wrapped(safe(self._title), PLAIN, width, [("image ", CYAN)])
        shown = self.picture.rows() if self.picture is not None and self.picture.columns <= width else []
        self._first, self._lines = len(head), len(shown)
        return [*head, *shown]

    def image_row(self, index: int) -> tuple[Picture, int] | None:
        """See `Cell`."""
        row = index - self._first
        return (self.picture, row) if self.picture is not None and 0 <= row < self._lines else None


class Child(Cell):
    """A sub-agent's conversation, folded to what it does now."""

    is_foldable = True

    def __init__(self, agent_id: str) -> None:
        super().__init__()
        self._id = agent_id
        self.cells: list[Cell] = []
        self.state = "works"

    def add(self, cell: Cell) -> None:
        """Take a cell of its conversation."""
        self.cells.append(cell)
        self.forget()

    @property
    def is_running(self) -> bool:  # type: ignore[override]
        """Whether it works."""
        return self.state == "works"

    def draw(self, width: int) -> list[Strip]:
        """See `Cell`."""
        head = row(("sub-agent ", TITLE), (cut(safe(f"{self._id} {self.state}"), width - 10), PLAIN))
        if self.is_open:
            return [head, *indented([strip for cell in self.cells for strip in cell.rows(width - 2)], ("│ ", DIM))]
        last = self.cells[-1].rows(width - 2)[:2] if self.cells else []
        return [head, *indented([strip for strip in last if strip.text.strip()], ("│ ", DIM))]
