"""Case B139: what is shown for approval shows everything."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.execpolicy import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls -la 'é 你好'", "ls -la 'é 你好'"),
        ("ls\u200b", "ls\\u200b"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("\x1b[2K\x1b[1A", "\\x1b[2K\\x1b[1A"),
        ("echo ok\rrm x", "echo ok\\rrm x"),
        ("a\u00a0b\u3000c\u00adx\ufeff", "a\\xa0b\\u3000c\\xadx\\ufeff"),
        ("a\u3164b\u2800\ufe0f\U000e0041", "a\\u3164b\\u2800\\ufe0f\\U000e0041"),
        ("a\nb\tc", "a\nb\tc"),
        ("\ud800\x85\x7f\u2028", "\\ud800\\x85\\x7f\\u2028"),
    ],
)
def test_b139_what_cannot_be_seen_is_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_b139_one_line_fields_keep_to_their_line() -> None:
    assert visible("/tmp/a\nb\tc", multiline=False) == "/tmp/a\\nb\\tc"


@pytest.mark.parametrize("blank", [" ", "\t", "\n"])
def test_b139_padding_does_not_push_the_rest_out_of_sight(blank: str) -> None:
    shown = visible("echo ok" + blank * 200 + "; rm -rf x")
    assert shown.endswith("] ; rm -rf x") and "[200 " in shown
    assert len(shown) < 60


def test_b139_a_long_script_is_shown_whole() -> None:
    script = "echo a\n" * 7000
    assert visible(script) == script


@given(st.text())
def test_b139_nothing_that_is_shown_is_hidden(text: str) -> None:
    hidden = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    assert not any(unicodedata.category(char) in hidden for char in visible(text) if char not in "\n\t")
