"""Answers of any length: in any pieces they look the same, and no part takes long to draw."""

import asyncio
import time
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.doors.terminal import prose
from ferrule.doors.terminal.cell import Cell
from ferrule.doors.terminal.cells import LONGEST_TEXT, Said, Thought
from ferrule.doors.terminal.prose import HEAD_CHARS, LONGEST_PART, TAIL_CHARS, Answer, Prose, Unshown, division
from ferrule.protocol.events import ItemUpdated
from tests.terminal.screen import shown

PART = 60
"""Characters of a cell in tests of how answers are divided."""
BLOCKS = st.one_of(
    st.text(max_size=100),
    st.builds(lambda count: "word and *word*\n" * count + "\n", st.integers(1, 8)),
    st.builds(lambda count: "```python\n" + "x = 1\n\n" * count + "```\n\n", st.integers(1, 12)),
    st.builds(lambda count: "- an item\n  of two lines\n" * count + "\n", st.integers(1, 5)),
    st.builds(lambda count: "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * count + "\n", st.integers(1, 6)),
    st.just("x" * (2 * PART)),
)
TEXTS = st.lists(BLOCKS, max_size=3).map("".join)


class Pieces:
    """An answer, and its cells."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.prose = Prose(self.cells.append, lambda cell: None)

    def feed(self, *deltas: str) -> "Pieces":
        """Take more."""
        for delta in deltas:
            self.prose.feed(delta)
        return self

    def lines(self, width: int = 60) -> list[str]:
        """All rows that are not blank."""
        rows = (strip.text.rstrip() for cell in self.cells for strip in cell.rows(width))
        return [line for line in rows if line]


@given(TEXTS, st.integers(20, 200), st.integers(8, 100))
def test_an_answer_in_any_pieces_looks_the_same(text: str, size: int, width: int) -> None:
    with patch.object(prose, "LONGEST_PART", PART):
        pieces = Pieces()
        for place in range(0, len(text), size):
            pieces.feed(text[place : place + size]).cells[-1].rows(width)
        assert pieces.lines(width) == Pieces().feed(text).lines(width) and pieces.prose.text == text


@given(TEXTS, TEXTS, st.integers(0, 400))
def test_an_answer_that_ends_as_another_one_is_shown_as_that(first: str, second: str, same: int) -> None:
    text = first[:same] + second
    with patch.object(prose, "LONGEST_PART", PART):
        shown = Pieces().feed(first)
        shown.prose.complete(text)
        assert shown.lines() == Pieces().feed(text).lines() and shown.prose.text == text


@pytest.mark.parametrize(
    ("text", "end", "lead", "goes_on"),
    [
        ("a\n\nb\n\n" + "c" * LONGEST_PART, "a\n\nb\n\n", "", False),
        ("a\n\n```py\n\n\nb\n" + "c" * LONGEST_PART, "a\n\n", "", False),
        ("```py\n\n\nb\n" + "c" * LONGEST_PART, "```py\n\n\nb\n", "```py\n", True),
        ("| a |\n|---|\n| b |\n| " + "c" * LONGEST_PART + "|", "| a |\n|---|\n| b |\n", "| a |\n|---|\n", True),
        ("a\n" * LONGEST_PART, "a\n" * (LONGEST_PART // 2), "", True),
        ("c" * 2 * LONGEST_PART, "c" * LONGEST_PART, "", True),
    ],
)
def test_where_a_long_answer_is_divided(text: str, end: str, lead: str, goes_on: bool) -> None:
    assert division(text) == (len(end), lead, goes_on)


@pytest.mark.parametrize("size", [100, 1 << 30])
@pytest.mark.parametrize("line", ["a line of a paragraph\n", "\n```\na line of code\n```\n", "| a | table |\n"])
def test_of_a_giant_answer_the_beginning_and_the_end_are_shown_and_what_is_hidden_is_counted(
    line: str, size: int
) -> None:
    text = "FIRST\n\n" + line * (600_000 // len(line)) + "\nLAST"
    shown = Pieces()
    for place in range(0, len(text), size):
        shown.feed(text[place : place + size])
    [hidden] = [cell for cell in shown.cells if isinstance(cell, Unshown)]
    own = [cell.text[len(cell.lead) :] for cell in shown.cells if isinstance(cell, Answer)]
    lines = text.count("\n") - "".join(own).count("\n")
    assert f"… {lines:,} lines of this answer" in hidden.rows(90)[0].text
    assert max(map(len, own)) <= LONGEST_PART and shown.prose.text == text
    assert sum(map(len, own)) < HEAD_CHARS + TAIL_CHARS + 4 * LONGEST_PART
    assert own[0].startswith("FIRST") and own[-1].endswith("LAST")


def test_of_a_giant_message_or_thought_the_beginning_and_the_end_are_shown_at_once() -> None:
    text = "first\n" + "a line\n" * 1_000_000 + "last"
    thought = Thought()
    for place in range(0, len(text), 70_000):
        thought.feed(text[place : place + 70_000])
    started = time.monotonic()
    for cell in (Said(text), thought):
        cell.is_open = True
        rows = [strip.text for strip in cell.rows(80)]
        assert rows[0].endswith("first") and rows[-2].strip() == "last" and len(rows) < LONGEST_TEXT
        assert any("more characters" in line for line in rows)
    assert time.monotonic() - started < 5


async def test_a_giant_answer_holds_nothing_up(tmp_path: Path) -> None:
    text = "a line of a paragraph\n" * 100_000 + "\nthe end"
    async with shown(tmp_path) as screen:
        desk = screen.app.desk
        assert desk is not None
        longest, ended = 0.0, asyncio.Event()

        async def watch() -> None:
            nonlocal longest
            while not ended.is_set():
                started = time.monotonic()
                await asyncio.sleep(0.005)
                longest = max(longest, time.monotonic() - started)

        watching = asyncio.create_task(watch())
        for place in range(0, len(text), 20_000):
            desk.show_event(ItemUpdated(item_id="i", kind="text", delta=text[place : place + 20_000]))
            await asyncio.sleep(0)
        await screen.until("^ the end")
        ended.set()
        await watching
    assert longest < 4, "a whole answer of this length takes ten seconds"
