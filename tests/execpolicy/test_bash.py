"""Scripts taken apart: what is understood, what is only seen, and that no text breaks it."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.execpolicy.bash import MAX_SCRIPT_BYTES, parse_script
from ferrule.execpolicy.script import Form


def words(script: str) -> list[list[str]]:
    return [list(command.argv) for command in parse_script(script).commands]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("ls -la | head", [["ls", "-la"], ["head"]]),
        ("ls && cat a || wc b; id\npwd", [["ls"], ["cat", "a"], ["wc", "b"], ["id"], ["pwd"]]),
        (r"\rm x", [["rm", "x"]]),
        ("'r'm x", [["rm", "x"]]),
        ('"r"\'m\' "a b"', [["rm", "a b"]]),
        (r'echo "a\"b\$c\d"', [["echo", 'a"b$c\\d']]),
        (r"echo a\ b", [["echo", "a b"]]),
        ("echo '$x `y`'", [["echo", "$x `y`"]]),
        ("echo 'a\nb'", [["echo", "a\nb"]]),
        ("find . -exec sh -c id \\;", [["find", ".", "-exec", "sh", "-c", "id", ";"]]),
        ("ls src/*.py", [["ls", "src/*.py"]]),
        ("echo ''", [["echo", ""]]),
        ("ls;", [["ls"]]),
    ],
)
def test_word_only_scripts_are_resolved(script: str, expected: list[list[str]]) -> None:
    assert parse_script(script).form is Form.WORDS
    assert words(script) == expected


def test_assignments_before_a_command_are_kept_apart() -> None:
    (command,) = parse_script("A=1 B='x y' C= gh api").commands
    assert command.argv == ("gh", "api")
    assert command.env == (("A", "1"), ("B", "x y"), ("C", ""))


@pytest.mark.parametrize(
    "script",
    [
        "ls > f",
        "ls 2>&-",
        "ls 2>/dev/nul",
        "ls > /dev/../f",
        "ls >&f",
        "ls {x}>&1",
        "cat < f",
        "cat <> /dev/null",
        "ls &",
        "ls & rm x",
        "ls |& sh",
        "(ls)",
        "{ ls; }",
        "! ls",
        "ls # c",
        "ls $x",
        "ls ${x}",
        "ls $(id)",
        "ls `id`",
        'ls "$x"',
        'ls "$(id)"',
        "ls <(id)",
        "ls $((1))",
        "X=1",
        "PATH=x; ls",
        "X=$y ls",
        "A+=1 ls",
        "a[0]=1 ls",
        "ls {a,b}",
        "ls $'x'",
        'ls $"x"',
        "if ls; then id; fi",
        "for i in 1; do ls; done",
        "while ls; do id; done",
        "case x in x) ls;; esac",
        "f() { ls; }",
        "export A=1",
        "unset x",
        "[ -f x ]",
        "[[ -f x ]]",
        "((1))",
        "ls;;",
        "ls &&",
        "&& ls",
        "| ls",
        "ls\r\nrm x",
        "ls\x00",
        "ls\x1b",
        "echo 'a\x01b'",
        "echo '\x7f'",
        "ls 'x",
        'ls "x',
        "ls `x",
        "ls $(x",
        "l\\\ns",
        "./g* x",
        "cat <<E\n$x\nE",
        "ls \\",
        "",
        "  ",
        "# only a comment",
        "cat - <<E\nx\nE",
        "ls \u00a0x",
        "cat <<E | sh\nx\nE",
    ],
)
def test_anything_else_is_not_understood_whole(script: str) -> None:
    assert parse_script(script).form is not Form.WORDS


def test_a_literal_heredoc_is_a_form_of_its_own() -> None:
    for script in ("python3 -u <<'EOF'\nprint($x)\nEOF", "python3 -u <<EOF\nprint(1)\nEOF"):
        assert parse_script(script).form is Form.HEREDOC
        assert words(script) == [["python3", "-u"]]
    assert parse_script("cat <<'EOF' > x\nhi\nEOF").form is Form.OTHER
    assert parse_script("cat <<EOF\n$x\nEOF").form is Form.OTHER
    assert parse_script("cat <<'A' <<'B'\nx\nA\ny\nB").form is Form.OTHER


@pytest.mark.parametrize(
    "redirection",
    [
        *(
            "2>&1",
            "> /dev/null",
            ">/dev/null 2>&1",
            "&>/dev/null",
            "2>>/dev/null",
            "</dev/null",
            ">&2",
            "3>&1",
            "2>| /dev/null",
        )
    ],
)
def test_a_redirection_to_nowhere_or_to_a_descriptor_changes_nothing(redirection: str) -> None:
    for script in (f"npm test {redirection}", f"{redirection} npm test", f"npm {redirection} test"):
        assert parse_script(script).form is Form.WORDS
        assert words(script) == [["npm", "test"]]


@pytest.mark.parametrize(
    "script",
    [
        "for i in 1; do rm -rf $i; done",
        "echo $(rm -rf $i)",
        "ls; (rm -rf $i)",
        'echo "`rm -rf $i`"',
        "ls > f && rm -rf $i",
        "f() { rm -rf $i; }",
        "if true; then rm -rf $i; fi",
        "A=$(rm -rf $i)",
        "cat <<E\n$(rm -rf $i)\nE",
        "ls <(rm -rf $i)",
        "! rm -rf $i",
        "r\\\nm -rf $i",
        "rm \\\n -rf $i",
        "ls & rm -rf $i",
        "[[ -n $(rm -rf $i) ]]",
        "case x in x) rm -rf $i;; esac",
        "export A=`rm -rf $i`",
        "rm -rf $i > /dev/null 2>&1",
    ],
)
def test_every_literal_command_is_seen(script: str) -> None:
    assert ["rm", "-rf", "$i"] in words(script)


@pytest.mark.parametrize(
    ("script", "gains"),
    [
        ("ls *.py", True),
        ("ls ''*", True),
        ("ls -[a]", True),
        ("ls --inc=*", False),
        ("ls src/*", False),
        ("ls '*.py'", False),
        (r"ls \*", False),
    ],
)
def test_a_glob_that_may_expand_to_an_option_is_marked(script: str, gains: bool) -> None:
    (command,) = parse_script(script).commands
    assert command.may_gain_options is gains


@pytest.mark.parametrize(
    "script",
    [
        "echo " + "a" * 1_000_000,
        "rm " * 400_000,
        "'\"`" * 40_000,
        "(" * 1000 + "rm x" + ")" * 1000,
        "echo " + "$(" * 1000 + "rm x" + ")" * 1000,
        "$(" * 40_000,
        "{ " * 40_000,
        "if " * 40_000,
        "<<A " * 30_000,
        "ls\0" * 40_000,
        "\\" * 100_001,
        "\ud800",
        "A=1 " * 30_000 + "ls $x",
    ],
    ids=lambda script: repr(script[:12]),
)
@pytest.mark.timeout(10)
def test_hostile_text_is_survived_and_not_understood(script: str) -> None:
    assert parse_script(script).form is not Form.WORDS


def test_a_script_at_the_kernels_limit_is_still_read() -> None:
    assert parse_script("echo ".ljust(MAX_SCRIPT_BYTES, "a")).form is Form.WORDS
    assert parse_script("echo ".ljust(MAX_SCRIPT_BYTES + 1, "a")).form is Form.BROKEN


@pytest.mark.parametrize("script", ["é=1 ls", "cat <<é\nxx\né", "{\U0010ffff", "echo {\U0010ffff"])
def test_letters_beyond_ascii_are_letters(script: str) -> None:
    assert words("ls é你 \U00010400 'ü'") == [["ls", "é你", "\U00010400", "ü"]]
    assert parse_script(script).form is not Form.WORDS


def test_letters_beyond_ascii_do_not_crash_the_parser() -> None:
    """The crash hung on where the process lay in memory: several processes, or none of them means much."""
    code = "from ferrule.execpolicy.bash import parse_script\nfor n in 0x10FFFF, 0xF0000: parse_script('{' + chr(n))"
    children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(6)]
    assert [child.wait(timeout=20) for child in children] == [0] * 6


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_is_survived(text: str) -> None:
    parse_script(text)


WORD_PIECES = [
    "a",
    "-x",
    "'",
    '"',
    "\\",
    "$",
    "`",
    " ",
    "\t",
    "\n",
    "\\\n",
    "''",
    '""',
    "'b c'",
    '"d e"',
    "=",
    "~",
    "{f,g}",
    "*",
    "[h]",
    "#",
    "!",
    "%",
    "^",
    "é",
    "\u00a0",
    "@",
    "+",
    ",",
    ":",
    "1",
    "2",
]


@given(st.lists(st.sampled_from(WORD_PIECES), min_size=1, max_size=7))
@settings(max_examples=120, deadline=None, derandomize=True)
def test_words_are_the_ones_that_bash_sees(pieces: list[str]) -> None:
    """What is understood as one command is run by bash with exactly these words."""
    script = parse_script("probe " + "".join(pieces))
    if script.form is not Form.WORDS or len(script.commands) != 1:
        return
    (command,) = script.commands
    if "~" in "".join(command.argv):
        return  # a home directory: bash's word is longer
    probe = 'set -f; probe() { for word; do printf "%s\\0" "$word"; done; }; probe ' + "".join(pieces)
    done = subprocess.run(["bash", "--norc", "-c", probe], capture_output=True, check=True, timeout=10)
    assert done.stdout.decode().split("\0")[:-1] == list(command.argv[1:])
