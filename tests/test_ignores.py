"""Lines of ignore files: what they match, and that no line makes the search try all combinations."""

import time

import pytest

from ferrule.ignores.globs import glob_regex, rule_of

BOUND = 5.0
"""Seconds; each takes a thousandth of one, and took for ever."""


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("*a" * 25 + "*b", "a" * 200),
        ("**/" + "*a" * 25 + "*b", "x/" * 50 + "a" * 200),
        ("*[^b]" * 25 + "*c", "a" * 200),
        ("**/a/" * 20 + "b", "a/" * 1500 + "c"),
        ("/a/**/" + "a/**/" * 20 + "b", "a/" * 1500 + "c"),
        ("*a*/" * 8 + "b", ("a" * 200 + "/") * 15 + "c"),
        ("*" * 40 + "b", "a" * 200),
    ],
)
def test_no_line_takes_for_ever(line: str, path: str) -> None:
    rule = rule_of(line)
    assert rule is not None
    started = time.monotonic()
    assert not rule.matches.match(path)
    assert time.monotonic() - started < BOUND


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("*a*b*c", ["abc", "xaxbxc", "aabbcc", "abcabc"], ["ab", "a/bc", "acb", "abcd"]),
        ("**/a*b/**/c*d", ["ab/cd", "x/y/aab/z/ccd", "aab/axb/c/cd"], ["ab/c", "x/ab", "abcd"]),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/b/y/c", "a/b/x/b/c"], ["a/c", "a/bc", "b/c"]),
        ("*[!a]*x", ["bx", "abax"], ["ax", "a/x", "x"]),
        ("***", ["a", "abc"], ["a/b"]),
        ("*.{ts,tsx}", ["a.ts", "b.tsx"], ["a.t", "a/b.ts"]),
    ],
)
def test_what_globs_match(glob: str, matching: list[str], others: list[str]) -> None:
    pattern = glob_regex(glob)
    assert [path for path in [*matching, *others] if pattern.match(path)] == matching


def test_a_line_with_braces_has_few_stars() -> None:
    assert rule_of("**/*.{b,c}") is not None
    assert rule_of("*a*a*a*{b,c}") is None
    assert glob_regex("packages/*/src/**/*test*.{ts,js}").match("packages/a/src/b/c.test.js")
