"""The visible text of an output: progress lines overwrite each other, escape sequences are applied or dropped.

A small terminal model whose lines never scroll away: the cursor, erasing, the alternate screen. Every character
occupies one cell, and lines do not wrap. Sequences: ECMA-48 and xterm's control sequences.
"""

import re
from collections.abc import Callable

from ferrule.process.launcher import PTY_COLUMNS, PTY_ROWS

_ACTS = re.compile(r"[\x07\x08\x0b-\x0f\x1b\x7f]")
_TOKEN = re.compile(
    r"\x1b\[(?P<parameters>[0-?]*)[ -/]*(?:(?P<final>[@-~])|$)"
    r"|\x1b[\]PX^_](?:[^\x07\x1b]|\x1b(?!\\))*(?:\x07|\x1b\\|$)"  # strings: titles, links
    r"|\x1b[ -/]*(?P<escape>[0-~])?"
    r"|(?P<control>[\x07\x08\n-\x0f\x7f])"
    r"|(?P<text>[^\x07\x08\n-\x0f\x1b\x7f]+)",
    re.DOTALL,
)
_ALTERNATE = frozenset({"?47", "?1047", "?1049"})


def visible_text(text: str) -> str:
    """Return the text left on the screen and above it; lines end with `\\n`. Without other control characters the
    text is unchanged."""
    text = text.replace("\r\n", "\n")  # terminal line endings: most outputs contain no other control characters
    if not _ACTS.search(text):
        return text
    screen = _Screen()
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "text":
                screen.print(token["text"])
            case "control":
                screen.control(token["control"])
            case "final":
                screen.sequence(token["parameters"], token["final"])
            case "escape":
                screen.escape(token["escape"])
            case _:
                pass
    return screen.text()


class _Screen:
    def __init__(self) -> None:
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0
        self.first_row = 0
        self.saved = (0, 0)
        self.main: tuple[list[list[str]], int, int, int] | None = None
        """The main screen while the alternate one is active: lines, row, column, first row."""

    def text(self) -> str:
        return "\n".join(map("".join, self.lines))

    def print(self, text: str) -> None:
        line = self.lines[self.row]
        if self.column > len(line):
            line.extend(" " * (self.column - len(line)))
        line[self.column : self.column + len(text)] = text
        self.column += len(text)

    def control(self, character: str) -> None:
        match character:
            case "\r":
                self.column = 0
            case "\n" | "\v" | "\f":
                self.move_to(self.row + 1, 0, grow=True)
            case "\b":
                self.column = max(self.column - 1, 0)
            case "\t":
                self.print("\t")
            case _:
                pass

    def escape(self, final: str) -> None:
        match final:
            case "7":
                self.saved = self.row, self.column
            case "8":
                self.move_to(*self.saved)
            case "M":
                self.move_to(self.row - 1, self.column)
            case "D":
                self.move_to(self.row + 1, self.column, grow=True)
            case "E":
                self.move_to(self.row + 1, 0, grow=True)
            case "c":
                self.clear()
            case _:
                pass

    def sequence(self, parameters: str, final: str) -> None:
        if parameters[:1] in {"?", "<", "=", ">"}:
            if final in "hl" and not _ALTERNATE.isdisjoint(f"?{mode}" for mode in parameters[1:].split(";")):
                self.alternate(final == "h")
            return
        numbers = [int(number) if number.isdecimal() else 0 for number in parameters.split(";")]
        if final in _MOVES:
            _MOVES[final](self, max(numbers[0], 1))
        elif final in "Hf":
            column = numbers[1] if len(numbers) > 1 else 1
            self.move_to(self.top + max(numbers[0], 1) - 1, max(column, 1) - 1)
        elif final in "su":
            self.escape("7" if final == "s" else "8")
        elif final in _EDITS:
            _EDITS[final](self, numbers[0])

    @property
    def top(self) -> int:
        """The top line of the window."""
        return max(self.first_row, len(self.lines) - PTY_ROWS)

    def move_to(self, row: int, column: int, grow: bool = False) -> None:
        """Move within the window; only a line feed extends it, other moves reach at most its height."""
        last = max(self.top + PTY_ROWS - 1, row if grow else 0)
        self.row = min(max(row, self.top), last)
        self.column = min(max(column, 0), max(PTY_COLUMNS - 1, self.column))
        while len(self.lines) <= self.row:
            self.lines.append([])

    def clear(self) -> None:
        """Start a new window below; the text so far has scrolled away but is kept."""
        if any(self.lines[self.top :]):
            if not self.lines[-1]:
                self.lines.pop()
            self.first_row = len(self.lines)
            self.lines.append([])
        self.row, self.column = self.top, 0

    def alternate(self, show: bool) -> None:
        if show and self.main is None:
            self.main = self.lines, self.row, self.column, self.first_row
            self.lines, self.row, self.column, self.first_row = [[]], 0, 0, 0
        elif not show and self.main is not None:
            self.lines, self.row, self.column, self.first_row = self.main
            self.main = None

    def erase_line(self, mode: int) -> None:
        line = self.lines[self.row]
        if mode == 0:
            del line[self.column :]
        elif mode == 1:
            self._blank(0, self.column + 1)
        else:
            line.clear()

    def erase_screen(self, mode: int) -> None:
        if mode == 0:
            del self.lines[self.row][self.column :]
            del self.lines[self.row + 1 :]
        elif mode == 2:
            self.clear()

    def erase_characters(self, count: int) -> None:
        self._blank(self.column, self.column + max(count, 1))

    def delete_characters(self, count: int) -> None:
        del self.lines[self.row][self.column : self.column + max(count, 1)]

    def insert_blanks(self, count: int) -> None:
        line = self.lines[self.row]
        if self.column < len(line):
            line[self.column : self.column] = " " * min(max(count, 1), PTY_COLUMNS)

    def _blank(self, start: int, end: int) -> None:
        line = self.lines[self.row]
        end = min(end, len(line))
        line[start:end] = " " * max(end - start, 0)


_MOVES: dict[str, Callable[[_Screen, int], None]] = {
    "A": lambda screen, n: screen.move_to(screen.row - n, screen.column),
    "B": lambda screen, n: screen.move_to(screen.row + n, screen.column),
    "C": lambda screen, n: screen.move_to(screen.row, screen.column + n),
    "D": lambda screen, n: screen.move_to(screen.row, screen.column - n),
    "E": lambda screen, n: screen.move_to(screen.row + n, 0),
    "F": lambda screen, n: screen.move_to(screen.row - n, 0),
    "G": lambda screen, n: screen.move_to(screen.row, n - 1),
    "d": lambda screen, n: screen.move_to(screen.top + n - 1, screen.column),
}
_EDITS: dict[str, Callable[[_Screen, int], None]] = {
    "J": _Screen.erase_screen,
    "K": _Screen.erase_line,
    "X": _Screen.erase_characters,
    "P": _Screen.delete_characters,
    "@": _Screen.insert_blanks,
}
