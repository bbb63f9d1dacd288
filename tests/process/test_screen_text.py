import time

import pytest

from ferrule.process.screen_text import visible_text


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("  1%\r 50%\r100%\ndone\n", "100%\ndone\n"),
        ("Progress 100%\rDone\n", "Doneress 100%\n"),
        ("Progress 100%\r\x1b[KDone\n", "Done\n"),
        ("\x1b[1;31mred\x1b[0m normal", "red normal"),
        ("\x1b[38:2::1:2:3mtrue colour\x1b[m", "true colour"),
        ("\x1b]0;window title\x07text", "text"),
        ("\x1b]8;;http://x/\x1b\\link\x1b]8;;\x1b\\.", "link."),
        ("ab\b\bxy", "xy"),
        ("typo\b \b\b \bpe", "type"),
        ("bell\x07", "bell"),
        ("one: 1%\ntwo: 1%\n\x1b[2A\x1b[2Kone: done\n\x1b[2Ktwo: done\n", "one: done\ntwo: done\n"),
        ("abc\x1b[2Dx", "axc"),
        ("a\x1b[3Cb", "a   b"),
        ("a\x1b[5Gb", "a   b"),
        ("abcdef\x1b[4G\x1b[1K", "    ef"),
        ("abcdef\x1b[3G\x1b[2P", "abef"),
        ("abcdef\x1b[3G\x1b[2X", "ab  ef"),
        ("abc\x1b[2G\x1b[2@", "a  bc"),
        ("before\n\x1b[?1049hfull screen\x1b[2;2Hx\x1b[?1049lafter", "before\nafter"),
        ("old\n\x1b[H\x1b[2J\x1b[3Jnew", "old\nnew"),
        ("one\ntwo\nthree\x1b[2A\x1b[Jx", "one  x"),
        ("\x1b7ab\x1b8c", "cb"),
        ("\x1b(Btext\x1b=", "text"),
        ("end\x1b", "end"),
        ("end\x1b[12", "end"),
        ("nul \0 stays", "nul \0 stays"),
    ],
)
def test_what_a_person_sees(written: str, seen: str) -> None:
    assert visible_text(written) == seen


def test_text_without_controls_is_the_same_object() -> None:
    text = "x" * 1000 + "\n\ty"
    assert visible_text(text) is text


def test_a_cursor_sent_far_away_stays_in_the_window() -> None:
    assert len(visible_text("\x1b[999999999Cx\x1b[999999999Bx\x1b[99999;99999Hx")) < 20_000


def test_scrolled_lines_are_kept_and_cannot_be_overwritten() -> None:
    lines = "".join(f"line {n}\n" for n in range(200))
    seen = visible_text(lines + "\x1b[500Atop")
    assert seen.startswith("line 0\nline 1\n")
    assert seen.splitlines()[151] == "tope 151"
    assert len(seen.splitlines()) == 200


def test_long_lines_with_many_colours_cost_linear_time() -> None:
    text = "\x1b[31mx\x1b[0m" * 100_000
    started = time.process_time()
    assert visible_text(text) == "x" * 100_000
    assert time.process_time() - started < 5


def test_long_progress() -> None:
    assert visible_text("".join(f"\r{n:6}" for n in range(100_000))) == " 99999"


def test_an_open_string_sequence_costs_linear_time() -> None:
    started = time.process_time()
    visible_text("\x1b]0;" * 20_000)
    assert time.process_time() - started < 5
