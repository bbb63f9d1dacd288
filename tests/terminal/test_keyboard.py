"""Keys and pasted texts, from bytes."""

import random
import time
from collections.abc import Iterable
from pathlib import Path

from textual import events
from textual.message import Message

from ferrule.doors.terminal.composer import LONGEST_WRITTEN
from ferrule.doors.terminal.keyboard import BEGIN, END, LONGEST_PASTE, Keyboard
from ferrule.testing import http_error
from tests.terminal.screen import shown


def words(messages: Iterable[Message]) -> list[str]:
    """Return keys as they are called, and pasted texts in brackets."""
    return [f"[{one.text}]" if isinstance(one, events.Paste) else getattr(one, "key", "") for one in messages]


def test_escape_sequences_in_a_paste_are_text_and_no_keys_wherever_the_bytes_are_cut() -> None:
    pasted = "\x1b[31mrm -rf x\r\x1b\r\x1b[200~y\x1b[201é\x1b"
    data = f"a{BEGIN}{pasted}{END}b\x1b[A".encode()
    draw = random.Random(1)
    for _ in range(200):
        keyboard, found, rest = Keyboard(), list[str](), data
        while rest:
            size = draw.randint(1, 12)
            found += words(keyboard.feed(rest[:size]))
            rest = rest[size:]
        assert found == ["a", f"[{pasted}]", "b", "up"]


def test_bytes_that_are_no_text_and_keys_that_there_cannot_be_end_nothing() -> None:
    keyboard = Keyboard()
    assert words(keyboard.feed(b"a\xff")) == ["a", "replacement_character"]
    assert words(keyboard.feed(b"\x1b[99999999999u\x1b[1114112ub")) == []
    assert words(keyboard.feed(b"c")) == ["c"]


def test_escape_alone_is_a_key_once_nothing_comes_behind_it() -> None:
    keyboard = Keyboard()
    assert words(keyboard.feed(b"\x1b")) == [] and keyboard.holds
    deadline = time.monotonic() + 20
    while not (found := words(keyboard.settle())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found == ["escape"]


def test_of_a_huge_paste_no_more_is_kept_than_is_needed_to_refuse_it() -> None:
    keyboard = Keyboard()
    piece = b"\x1b[31mx" * (1024 * 1024 // 6)
    assert not words(keyboard.feed(BEGIN.encode()))
    for _ in range(20):
        assert not words(keyboard.feed(piece))
    [paste] = keyboard.feed(END.encode())
    assert isinstance(paste, events.Paste) and len(paste.text) == LONGEST_PASTE + 1


async def test_a_paste_that_no_model_could_read_is_refused(tmp_path: Path) -> None:
    async with shown(tmp_path) as screen:
        screen.app.composer.post_message(events.Paste("x" * (LONGEST_PASTE + 1)))
        await screen.until("more than 8 MB cannot be pasted: put it into a file")
        assert screen.app.composer.text == ""


async def test_a_message_that_fills_the_context_is_gone_back_before_and_stands_as_a_chip(tmp_path: Path) -> None:
    async with shown(tmp_path, ["One.", "A summary.", "Two."], ephemeral=False) as screen:
        await screen.say("first")
        await screen.until("One.")
        screen.app.composer.post_message(events.Paste("too long " * 200_000))
        await screen.until("Pasted text #1, 1 line")
        await screen.press("enter")
        await screen.until("the context is full(.|\n)*Esc twice goes back")
        await screen.press("escape", "escape")
        await screen.until("^ too long too long .*…")
        await screen.press("enter")
        await screen.until("› .Pasted text #1, 1 line.$")
        assert len(screen.app.composer.text) < LONGEST_WRITTEN
        screen.app.composer.clear()
        await screen.say("second")
        await screen.until("Two.")


async def test_the_way_back_is_told_where_the_server_says_that_it_is_too_long(tmp_path: Path) -> None:
    refusal = http_error(400, "too long", code="context_length_exceeded")
    async with shown(tmp_path, [refusal]) as screen:
        await screen.say("first")
        await screen.until("does not fit the model's context window(.|\n)*Esc twice goes back")
