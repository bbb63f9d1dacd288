"""Rows of the screen, from text and styles."""

from collections.abc import Iterable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ferrule.rendering.width import folded

PLAIN = Style()
DIM = Style(dim=True)
BOLD = Style(bold=True)
RED, GREEN, YELLOW, CYAN = (Style(color=name) for name in ("red", "green", "yellow", "cyan"))
TITLE = Style(color="cyan", bold=True)
COMMAND = Style(color="bright_magenta", bold=True)
QUESTION = Style(color="yellow", bold=True)
CHOSEN = Style(reverse=True)
"""The terminal's own colours: they suit a light background as well as a dark one."""

Piece = tuple[str, Style]
BLANK = Strip([])
_BLANKS = str.maketrans("\t\n", "  ")


def row(*pieces: Piece) -> Strip:
    """Return one row. A tab or a line break in a name would move the cursor: it is a blank."""
    return Strip([Segment(text.translate(_BLANKS), style) for text, style in pieces if text])


def wrapped(text: str, style: Style, width: int, first: Sequence[Piece] = (), indent: int | None = None) -> list[Strip]:
    """Return the rows of a text that is safe. `first` stands before it; further rows are indented as far."""
    lead = sum(len(piece) for piece, _ in first) if indent is None else indent
    lines = [part for line in text.split("\n") for part in folded(line.expandtabs(4), width - lead)]
    blank: Piece = (" " * lead, PLAIN)
    return [row(*(first if index == 0 else [blank]), (line, style)) for index, line in enumerate(lines)]


def indented(rows: Iterable[Strip], mark: Piece) -> list[Strip]:
    """Return the rows with `mark` before each."""
    lead = Segment(*mark)
    return [Strip([lead, *strip]) for strip in rows]
