"""Lines of a task file: what is a task, and what is said of what is none."""

import io

import pytest

from ferrule.batch.tasks import LONGEST_LINE, BadTask, Task, lines_of, read_task


def said_of(line: str | bytes) -> str:
    with pytest.raises(BadTask) as caught:
        read_task(line if isinstance(line, bytes) else line.encode(), "/base")
    return str(caught.value)


def test_a_task_with_all_its_fields() -> None:
    line = (
        b'{"id": "a/b", "prompt": "Fix it", "repository": "repo", "image": "box", "model": "m", "tools": ["shell"], '
        b'"sandbox": "container", "max_turns": 3, "max_tokens": 1000, "max_seconds": 1.5, "check": "make test"}'
    )
    assert read_task(line, "/base") == Task(
        id="a/b",
        prompt="Fix it",
        repository="/base/repo",
        image="box",
        model="m",
        tools=("shell",),
        sandbox="container",  # type: ignore[arg-type]
        max_turns=3,
        max_tokens=1000,
        max_seconds=1.5,
        check="make test",
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nope", "no JSON"),
        ('{"id": 1, "prompt": "x"} more', "no JSON"),
        (b'{"id": "\xff", "prompt": "x"}', "no JSON"),
        ("[" * 100_000, "no object"),
        ("[1]", "no object"),
        ('{"id": 1}', "no prompt"),
        ('{"id": 1, "prompt": null}', "no prompt"),
        ('{"id": 1, "prompt": " \\n"}', "no prompt"),
        ('{"prompt": "x"}', "no id"),
        ('{"id": true, "prompt": "x"}', "at `id`"),
        ('{"id": 1e400, "prompt": "x"}', "out of range"),
        ('{"id": 1, "prompt": "x", "promt": 2}', "an unknown field 'promt'; there are id, prompt, repository, folder"),
        ('{"id": 1, "prompt": "x", "max_turns": 0}', "expected `int` >= 1 - at `max_turns`"),
        ('{"id": 1, "prompt": "x", "sandbox": "none"}', 'an unknown sandbox mode "none"; it is one of read-only'),
        ('{"id": 1, "prompt": "x", "folder": "a", "repository": "b"}', "both a `repository` and a `folder`"),
        ('{"id": 1, "prompt": "x", "folder": "a\\u0000b"}', "a NUL character in `folder`"),
        ('{"id": 1, "prompt": "x", "check": "true \\u0000"}', "a NUL character in `check`"),
        ('{"id": 1, "prompt": "x", "image": "i", "sandbox": "read-only"}', "an image needs container"),
    ],
)
def test_what_is_said_of_a_line_that_is_no_task(line: str | bytes, said: str) -> None:
    assert said in said_of(line)


def test_ids_are_told_apart_as_json() -> None:
    def key(value: str) -> str:
        return read_task(f'{{"id": {value}, "prompt": "x"}}'.encode(), "/").key

    assert key('"1"') != key("1") == key("1.0") == key("1e0")
    assert key('"é"') == key('"\\u00e9"') != key('"e\\u0301"')
    assert key("-0.0") == key("0")
    assert key("123456789012345678901234567890") == "123456789012345678901234567890"


def test_lines_keep_their_numbers_through_a_mark_blank_lines_and_long_ones() -> None:
    long = b"x" * (LONGEST_LINE + 1)
    text = b'\xef\xbb\xbf{"a"}\r\n\r\n \n' + long + b"\n" + long + long + b'\n{"b"}\n{"c"}'
    assert list(lines_of(io.BytesIO(text))) == [
        (1, b'{"a"}\r\n'),
        (4, None),
        (5, None),
        (6, b'{"b"}\n'),
        (7, b'{"c"}'),
    ]
