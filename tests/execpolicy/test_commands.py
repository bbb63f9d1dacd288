"""Wrappers and shells looked through."""

import shlex

import pytest

from ferrule.execpolicy.commands import bare, take_apart
from ferrule.execpolicy.invocation import command_text, shell_script


def seen(*argv: str) -> list[tuple[str, ...]]:
    return [found.command.argv for found in take_apart(argv).seen]


@pytest.mark.parametrize(
    "argv",
    [
        "rm x",
        "/bin/rm x",
        "env rm x",
        "env -u B A=1 rm x",
        "env -i -- rm x",
        "env -S 'rm x'",
        "env --split-string='rm x'",
        "env -iS 'A=1 rm x'",
        "sudo rm x",
        "sudo -u root -E A=1 rm x",
        "sudo -- rm x",
        "doas -u bob rm x",
        "timeout 5 rm x",
        "timeout -k 3 -s KILL 5s rm x",
        "timeout --signal=KILL 5 rm x",
        "nice rm x",
        "nice -n 5 rm x",
        "nice -5 rm x",
        "ionice -c 3 rm x",
        "nohup rm x",
        "command rm x",
        "command -p rm x",
        "exec rm x",
        "exec -a name rm x",
        "builtin rm x",
        "time -p rm x",
        "xargs rm x",
        "xargs -0 -n 1 -I{} rm x",
        "stdbuf -oL rm x",
        "setsid -w rm x",
        "chroot /new rm x",
        "flock /lock rm x",
        "busybox rm x",
        "find . -exec rm x ;",
        "find . -name a -ok rm x +",
        "eval rm x",
        "eval 'rm x'",
        "su -c 'rm x' bob",
        "watch -n 1 rm x",
        "trap 'rm x' EXIT",
        "script -c 'rm x' log",
        "bash -c 'rm x'",
        "sh -ec 'rm x'",
        "bash -euo pipefail -c 'rm x'",
        "bash --norc -lc 'rm x' name arg",
        "bash -c 'bash -c \"rm x\"'",
        "sudo env A=1 timeout 5 nice bash -c 'ls; rm x'",
        "bash -c 'ls | xargs rm x'",
        "flock /lock -c 'rm x'",
    ],
)
def test_the_command_behind_is_seen(argv: str) -> None:
    found = seen(*shlex.split(argv))
    assert any(argv[:2] in (("rm", "x"), ("/bin/rm", "x")) for argv in found)


@pytest.mark.parametrize(
    ("argv", "inner"),
    [
        ("timeout 5 git status", "git status"),
        ("timeout --foreground -k 1 5 git status", "git status"),
        ("nice -n 5 git status", "git status"),
        ("env A=1 command git status", "git status"),
        ("/usr/bin/env git status", "git status"),
        ("sudo git status", "sudo git status"),
        ("xargs git status", "xargs git status"),
        ("./env git status", "./env git status"),
        ("env -u PATH git status", "env -u PATH git status"),
        ("command -v git", "command -v git"),
        ("time -o f git status", "time -o f git status"),
        ("timeout 5", "timeout 5"),
    ],
)
def test_only_wrappers_that_change_nothing_are_taken_off(argv: str, inner: str) -> None:
    (segment,) = take_apart(shlex.split(argv)).segments
    assert bare(segment).argv == tuple(shlex.split(inner))


def test_segments_of_nested_shells_are_flat_and_keep_their_variables() -> None:
    facts = take_apart(["bash", "-lc", "A=1 bash -c 'B=2 ls && pwd'; id"])
    assert facts.word_only
    assert [(segment.argv, segment.env) for segment in facts.segments] == [
        (("ls",), (("A", "1"), ("B", "2"))),
        (("pwd",), (("A", "1"),)),
        (("id",), ()),
    ]


def test_a_script_that_is_not_understood_stays_one_segment() -> None:
    argv = ("bash", "-lc", "ls; bash -c 'ls > f'")
    facts = take_apart(argv)
    assert not facts.word_only
    assert [segment.argv for segment in facts.segments] == [argv]


@pytest.mark.parametrize("argv", [["bash", "-lc", "git", "status"], ["/tmp/bash", "-c", "ls"], ["bash", "-x", "ls"]])
def test_other_shapes_of_a_shell_call_are_not_taken_for_their_script(argv: list[str]) -> None:
    assert shell_script(argv) is None


@pytest.mark.parametrize("shell", [["bash", "-c"], ["/bin/bash", "-lc"], ["/bin/zsh", "-fc"], ["sh", "-c"]])
def test_a_script_is_seen_through_its_shell(shell: list[str]) -> None:
    argv = [*shell, "ls && pwd"]
    assert [segment.argv for segment in take_apart(argv).segments] == [("ls",), ("pwd",)]
    assert command_text(argv) == "ls && pwd"


@pytest.mark.parametrize("argv", [["/tmp/bash", "-c", "ls"], ["./sh", "-lc", "ls"], ["bash", "-c", "ls", "x"]])
def test_what_is_shown_names_the_program_where_it_need_not_be_a_shell(argv: list[str]) -> None:
    assert command_text(argv) == shlex.join(argv)


def test_nesting_without_end_is_cut_and_said() -> None:
    script = "rm x"
    for _ in range(18):
        script = shlex.join(["env", "bash", "-c", script]) if len(script) < 60_000 else script
    facts = take_apart(["bash", "-lc", script])
    assert len(facts.seen) > 3
    assert not take_apart(["env"] * 1000 + ["ls"]).understood


@pytest.mark.timeout(10)
@pytest.mark.parametrize("words", ["find -exec find", "env -S env", "find xargs -exec find", "find -exec"])
def test_commands_that_multiply_are_cut_and_said(words: str) -> None:
    first, *rest = words.split()
    argv = [first, *rest * 3000]
    assert take_apart(argv).unread
    assert take_apart(["bash", "-lc", shlex.join(argv)]).unread


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"], ["bash", "-lc", "ls\0"], ["\ud800"], ["bash", "-lc", "ls '"]])
def test_what_no_program_can_be_given_is_not_understood(argv: list[str]) -> None:
    facts = take_apart(argv)
    assert not facts.understood or argv == [""]
    assert facts.seen
