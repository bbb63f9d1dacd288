# ruff: noqa: E501 - rows of tables read better in one line
"""How long is waited: pure arithmetic."""

import pytest

from ferrule.model.retry import (
    FIRST_DELAY_MS,
    LONGEST_DELAY_MS,
    delay_ms,
    in_words,
    stated_in_headers,
    stated_in_words,
)

NOON = 1_764_072_000.0
"""2025-11-25 12:00:00 UTC."""


def test_our_own_pause_doubles_up_to_a_limit_and_is_shortened_by_chance() -> None:
    assert [delay_ms(attempt, None, 0) for attempt in range(4)] == [FIRST_DELAY_MS * n for n in (1, 2, 4, 8)]
    assert delay_ms(60, None, 0) == LONGEST_DELAY_MS
    assert delay_ms(0, None, 0.999) >= FIRST_DELAY_MS / 2


def test_b079_a_stated_pause_is_never_shortened() -> None:
    assert delay_ms(0, 7000, 0) == 7000
    assert 7000 < delay_ms(5, 7000, 0.5) <= 7700
    assert delay_ms(0, 0, 0.5) == 0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7000),
        ({"retry-after": "0.25"}, 250),
        ({"retry-after-ms": "350", "retry-after": "9"}, 350),
        ({"retry-after": "Tue, 25 Nov 2025 12:00:30 GMT"}, 30_000),
        ({"retry-after": "Tue, 25 Nov 2025 11:00:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_b079_headers(headers: dict[str, str], expected: int | None) -> None:
    assert stated_in_headers(headers, NOON) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Rate limit reached for gpt-5.5. Please try again in 1.5s. Visit the console.", 1500),
        ("Please try again in 20ms.", 20),
        ("Please try again in 6m0s.", 360_000),
        ("try again in 1h2m3s", 3_723_000),
        ("Please retry after 20 seconds.", 20_000),
        ("Please retry in 37.5 seconds", 37_500),
        ("retry after 2 minutes and 5 seconds", 125_000),
        ("Wait for 3 days", 259_200_000),
        ("try again later", None),
        ("you used 5 seconds", None),
        ("", None),
    ],
)
def test_b079_words(message: str, expected: int | None) -> None:
    assert stated_in_words(message) == expected


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(1, "1 s"), (45_000, "45 s"), (720_000, "12 min"), (9_568_000, "2 h 39 min"), (7_200_000, "2 h"), (4 * 86_400_000, "4 d")],
)  # fmt: skip
def test_durations_for_people(milliseconds: int, words: str) -> None:
    assert in_words(milliseconds) == words
