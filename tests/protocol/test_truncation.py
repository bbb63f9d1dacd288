import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.protocol.truncation import (
    OutputBudget,
    byte_length,
    count_lines,
    tokens_of_bytes,
    truncate_items,
    truncate_text,
    truncate_with_warning,
)

SEQUENCE = "".join(f"{n}\n" for n in range(1, 100_001))


@pytest.mark.parametrize(("count", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (588_895, 147_224)])
def test_a_token_is_four_bytes_rounded_up(count: int, tokens: int) -> None:
    assert tokens_of_bytes(count) == tokens


def test_tokens_count_bytes_and_not_characters() -> None:
    assert tokens_of_bytes(byte_length("éé")) == 1
    assert tokens_of_bytes(byte_length("ééé")) == 2
    assert byte_length("日本") == 6


def test_pinned_token_marker() -> None:
    assert len(SEQUENCE) == 588_895
    cut = truncate_text(SEQUENCE, OutputBudget(10_000))
    assert cut == f"{SEQUENCE[:20_000]}…137224 tokens truncated…{SEQUENCE[-20_000:]}"


def test_pinned_character_marker() -> None:
    cut = truncate_text(SEQUENCE, OutputBudget(10_000, "bytes"))
    assert cut == f"{SEQUENCE[:5_000]}…578895 chars truncated…{SEQUENCE[-5_000:]}"
    assert 9_900 <= byte_length(cut) <= 10_100


def test_what_fits_exactly_is_not_touched() -> None:
    assert truncate_text("x" * 40_000, OutputBudget(10_000)) == "x" * 40_000
    assert truncate_text("x" * 40_001, OutputBudget(10_000)) == f"{'x' * 20_000}…1 tokens truncated…{'x' * 20_000}"


def test_a_budget_of_nothing_leaves_the_marker() -> None:
    assert truncate_text("hello", OutputBudget(0)) == "…2 tokens truncated…"
    assert truncate_text("héllo", OutputBudget(0, "bytes")) == "…5 chars truncated…"
    assert truncate_text("", OutputBudget(0)) == ""


def test_an_odd_budget_gives_the_end_one_byte_more() -> None:
    assert truncate_text("abcdefgh", OutputBudget(5, "bytes")) == "ab…3 chars truncated…fgh"


def test_cut_falls_between_characters() -> None:
    assert truncate_text("ééééé", OutputBudget(6, "bytes")) == "é…3 chars truncated…é"


def test_b046_one_long_line_is_cut_inside() -> None:
    line = "needle " + "é" * 60_000 + "\n"
    cut = truncate_text(line, OutputBudget(1_000))
    assert cut.startswith("needle é") and cut.endswith("é\n")
    assert byte_length(cut) <= 4_000 + len("…30000 tokens truncated…") + 8


def test_b047_both_ends_are_kept() -> None:
    text = "".join(f"line {n}\n" for n in range(1, 20_001)) + "FAIL\n"
    cut = truncate_text(text, OutputBudget(100))
    assert cut.startswith("line 1\nline 2\n") and cut.endswith("line 20000\nFAIL\n")


def test_warning_tells_the_size_of_the_whole() -> None:
    cut = truncate_with_warning(SEQUENCE, OutputBudget(10_000))
    assert cut.startswith(
        "Warning: truncated output (original token count: 147224)\nTotal output lines: 100000\n\n1\n2\n"
    )
    assert truncate_with_warning("short", OutputBudget(10)) == "short"


def test_what_was_left_out_before_counts() -> None:
    text, budget = "a" * 40 + "b" * 40, OutputBudget(10)
    assert truncate_text(text, budget, omitted=4_000) == f"{'a' * 20}…1010 tokens truncated…{'b' * 20}"
    assert "…4040 chars truncated…" in truncate_text(text, OutputBudget(40, "bytes"), omitted=4_000)
    warned = truncate_with_warning(text, budget, omitted=4_000)
    assert warned.startswith(
        "Warning: truncated output (original token count: 1020)\n... 4000 bytes omitted ...\n\naaa"
    )
    assert truncate_text("short", budget, omitted=4_000) == "short"


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n\n", 2)])
def test_lines(text: str, lines: int) -> None:
    assert count_lines(text) == lines


def test_the_model_may_ask_for_less_and_not_for_more() -> None:
    assert OutputBudget(10_000).at_most(50) == OutputBudget(50)
    assert OutputBudget(10_000).at_most(50_000) == OutputBudget(10_000)
    assert OutputBudget(10_000, "bytes").at_most(None) == OutputBudget(10_000, "bytes")
    assert OutputBudget(10_000, "bytes").at_most(2_500) == OutputBudget(10_000, "bytes")


def test_items_share_one_budget() -> None:
    image = object()
    items = ["a" * 8, image, "", "b" * 16, "c", image, "d"]
    assert truncate_items(items, OutputBudget(4)) == [
        "a" * 8,
        image,
        "bbbb…2 tokens truncated…bbbb",
        image,
        "[omitted 2 text items ...]",
    ]


def test_items_that_fill_the_budget_exactly_leave_none_for_the_next() -> None:
    assert truncate_items(["abcd", "e"], OutputBudget(1)) == ["abcd", "[omitted 1 text items ...]"]


@given(st.text(), st.integers(0, 40), st.sampled_from(["tokens", "bytes"]))
def test_any_text_keeps_to_its_budget(text: str, limit: int, unit: str) -> None:
    budget = OutputBudget(limit, "tokens" if unit == "tokens" else "bytes")
    cut = truncate_text(text, budget)
    if byte_length(text) <= budget.bytes:
        assert cut == text
        return
    head, marker, tail = cut.rpartition(" truncated…")[0].rpartition("…")[0], "…", cut.rpartition(" truncated…")[2]
    assert marker in cut and text.startswith(head) and text.endswith(tail)
    assert byte_length(head) + byte_length(tail) <= budget.bytes


def test_lone_surrogates_survive() -> None:
    assert truncate_text("\ud800" * 10, OutputBudget(12, "bytes")) == "\ud800\ud800…6 chars truncated…\ud800\ud800"
