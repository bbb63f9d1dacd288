"""Markdown as text for a terminal. Loads rich: import it only where an answer is shown on one."""

import io
import re
from collections.abc import Sequence
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.segment import Segment
from rich.syntax import Syntax
from rich.theme import Theme

from ferrule.rendering.safe import safe

CODE_THEME = "ansi_dark"
"""The terminal's own colours, on its own background."""
WIDEST = 120
"""Columns; longer lines are hard to read."""

_THEME = Theme({"markdown.code": "bold cyan", "markdown.code_block": "cyan"})
"""Without the black that rich puts behind code: on a light background it is a bar."""
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_BLANK_END = re.compile(r" +(?=(\x1b\[[0-9;]*m)*$)")
_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
# HTML is shown as it is written: rich would drop it, and with it half of an answer about generics or tags.


class _Heading(Heading):
    """A heading at the left."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _Code(CodeBlock):
    """Code without blanks around it, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Syntax(str(self.text).rstrip(), self.lexer_name, theme=self.theme, word_wrap=True, padding=0)


class _Markdown(Markdown):
    elements = {**Markdown.elements, "heading_open": _Heading, "fence": _Code, "code_block": _Code}  # noqa: RUF012


def rendered(text: str, width: int, *, colored: bool) -> list[str]:
    """Return the rows of a Markdown text. Links show their address: a text of the model's choice could hide it."""
    file = io.StringIO()
    console = _console(file, width, "standard" if colored else None)
    console.print(_markdown(text))
    rows = "\n".join(map(_without_blank_end, file.getvalue().split("\n")))
    return rows.strip("\n").split("\n")


def styled_rows(text: str, width: int) -> list[list[Segment]]:
    """Return the rows of a Markdown text as segments, for a screen that knows its colours itself."""
    rows = _console(io.StringIO(), width, "standard").render_lines(_markdown(text), pad=False)
    while rows and not _words(rows[-1]):
        rows.pop()
    while rows and not _words(rows[0]):
        rows.pop(0)
    return rows


def _words(row: list[Segment]) -> str:
    return "".join(segment.text for segment in row).strip()


def _console(file: io.StringIO, width: int, color_system: Literal["standard"] | None) -> Console:
    return Console(
        file=file,
        width=max(1, min(width, WIDEST)),
        force_terminal=True,
        color_system=color_system,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        theme=_THEME,
    )


def _markdown(text: str) -> _Markdown:
    shown = _Markdown(text, code_theme=CODE_THEME, hyperlinks=False)
    shown.parsed = _PARSER.parse(text)
    _make_safe(shown.parsed)
    return shown


def _make_safe(tokens: Sequence[Token]) -> None:
    """Take away what acts on a terminal, as entities may have brought it: `&#x202e;`."""
    for token in tokens:
        token.content = safe(token.content)
        _make_safe(token.children or ())


def finished_lines(text: str) -> int:
    """Return how many of the text's lines belong to blocks that nothing behind them can change: all but the last
    block."""
    whole = text[: text.rfind("\n") + 1]
    starts = [token.map[0] for token in _PARSER.parse(whole) if token.level == 0 and token.map and token.nesting >= 0]
    return starts[-1] if starts else 0


def _without_blank_end(row: str) -> str:
    row = _BLANK_END.sub("", row)
    return row if _STYLE.sub("", row) else ""
