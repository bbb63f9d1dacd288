"""From captured bytes to the text that a model reads: screen semantics, one cut, and what else there is to say."""

from collections.abc import Iterable

import msgspec

from ferrule.process.capture import Captured
from ferrule.process.screen_text import visible_text
from ferrule.protocol.truncation import (
    OutputBudget,
    byte_length,
    count_lines,
    tokens_of_bytes,
    truncate_text,
    truncate_with_warning,
)

REPLACEMENT = "\ufffd"


class OutputText(msgspec.Struct, frozen=True):
    """An output as a person would see it. `omitted`: bytes cut from its middle; `unreadable`: bytes that are not
    text."""

    text: str
    omitted: int = 0
    unreadable: int = 0

    @property
    def tokens(self) -> int:
        """Approximate tokens of the whole output."""
        return tokens_of_bytes(byte_length(self.text) + self.omitted)

    @property
    def lines(self) -> int | None:
        """The number of lines; None if not all were kept."""
        return None if self.omitted else count_lines(self.text)

    def cut(self, budget: OutputBudget) -> str:
        """Return the text within the budget."""
        return truncate_text(self.text, budget, self.omitted)

    def cut_with_warning(self, budget: OutputBudget) -> str:
        """Return the text within the budget; if that cuts it, it starts with how much there was."""
        return truncate_with_warning(self.text, budget, self.omitted)

    def notes(self, *more: str | None) -> tuple[str, ...]:
        """Return the notes below the text: what could not be shown, and `more`."""
        return tuple(note for note in (_unreadable_note(self.unreadable), *more) if note)


def output_text(captured: Captured) -> OutputText:
    """Return the readable form of an output. NUL and bytes that are no UTF-8 become U+FFFD."""
    raw = captured.text()
    text = visible_text(raw).replace("\0", REPLACEMENT)
    genuine = captured.head.count(REPLACEMENT.encode()) + captured.tail.count(REPLACEMENT.encode())
    unreadable = raw.count("\0") + raw.count(REPLACEMENT) - genuine
    return OutputText(text, captured.omitted, unreadable)


def with_notes(shown: str, notes: Iterable[str], timed_out_ms: int | None = None) -> str:
    """Join the limit that ended the command, its output and the notes, each on a line of its own."""
    if timed_out_ms is not None:
        shown = f"command timed out after {timed_out_ms} milliseconds\n{shown}"
    for note in notes:
        shown = f"{shown}{'' if not shown or shown.endswith(NEWLINE) else NEWLINE}{note}"
    return shown


NEWLINE = "\n"


def _unreadable_note(count: int) -> str | None:
    if count <= 0:
        return None
    bytes_are = "1 byte of the output is" if count == 1 else f"{count} bytes of the output are"
    return f"{bytes_are} no text (NUL or invalid UTF-8) and shown as {REPLACEMENT}."
