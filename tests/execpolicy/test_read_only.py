"""The promise of the safe list, kept for real: what it lets through is run, and the world looked at.

Commands and scripts are generated from the words that might break it; those judged safe run in a scratch repository.
Afterwards the tree must be the same, and, where strace is installed and works, no other program may have been started
and no socket opened. Excepted: git's own `index` file, a cache that `git status` may refresh, and the name service.
"""

import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ferrule.execpolicy import LocalHost
from ferrule.execpolicy.commands import bare, take_apart
from ferrule.execpolicy.readers import READERS
from ferrule.execpolicy.safe import is_known_safe
from ferrule.execpolicy.safe_git import _BRANCH, _COMMANDS

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "PAGER": "./evil", "GIT_PAGER": "cat"}
SECONDS = 5.0
# These wait for more input by design; that is no write.
ENDLESS = {"-f", "-F", "--follow", "--retry", "--pid"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("place")
    for name, text in [("a.txt", "one\ntwo\n"), ("b.txt", "two\n"), ("-x", "dash\n"), ("src/c.py", "print(1)\n")]:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)
    (path / "evil").write_text("#!/bin/sh\necho > pwned\n")
    (path / "evil").chmod(0o755)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (
        ["init", "-q", "--template=", "-b", "main"],
        ["add", "--", "a.txt", "src"],
        ["commit", "-qm", "first"],
    ):
        subprocess.run(["git", *identity, *words], cwd=path, env=ENV, check=True)
    (path / "a.txt").write_text("one\nthree\n")
    return path


def tree(place: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every path below `place` with its mode, modification time and content."""
    found = {}
    for path in sorted(place.rglob("*")):
        if path.name == "index" and path.parent.name == ".git":
            continue
        status = path.lstat()
        changed = 0 if path.is_dir() and path.name == ".git" else status.st_mtime_ns
        found[str(path)] = (status.st_mode, changed, path.read_bytes() if path.is_file() else b"")
    return found


@cache
def strace() -> list[str] | None:
    """The start of a strace command line, if it works here."""
    program = shutil.which("strace")
    if program is None:
        return None
    words = [program, "-f", "-qq", "-e", "trace=execve,execveat,socket,connect"]
    for tried in ([*words, "--seccomp-bpf"], words):  # the former stops at no other call, which is four times as fast
        done = subprocess.run([*tried, "true"], capture_output=True, check=False, timeout=10)
        if done.returncode == 0 and b"execve" in done.stderr:
            return tried
    return None


def run(argv: list[str], place: Path, log: Path) -> str:
    """What strace saw of the command ("" without strace)."""
    tracer = strace()
    command = [*tracer, "-o", str(log), "--", *argv] if tracer else argv
    done = subprocess.run(
        command,
        cwd=place,
        env=ENV,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode is not None
    return log.read_text(errors="replace") if tracer else ""


def check(argv: list[str], place: Path, log: Path) -> None:
    before = tree(place)
    trace = run(argv, place, log)
    assert tree(place) == before
    named = {"bash", *(Path(word).name for segment in take_apart(argv).segments for word in segment.argv)}
    named |= {bare(segment).argv[0] for segment in take_apart(argv).segments}
    started = re.findall(r'execve\("([^"]+)".* = 0$', trace, re.MULTILINE)
    assert {Path(program).name for program in started} <= named
    sockets = re.findall(r"socket\((\w+)", trace)
    assert set(sockets) <= {"AF_UNIX"}
    assert all("nscd" in line for line in trace.splitlines() if " connect(" in line)


OPERANDS = [
    "a.txt",
    "b.txt",
    "src",
    ".",
    "-",
    "--",
    "1",
    "5",
    "1,2p",
    "HEAD",
    "HEAD:a.txt",
    "main",
    "x=y",
    "-n",
    "-x",
    "pwned",
]
TRAPS = [
    "-o",
    "-opwned",
    "--output=pwned",
    "--output",
    "-exec",
    "./evil",
    ";",
    "-delete",
    "-fprint",
    "--pre=./evil",
    "-z",
    "-i",
    "-O./evil",
    "--open-files-in-pager=./evil",
    "-c",
    "core.pager=./evil",
    "-p",
    "--paginate",
    "--ext-diff",
    "-D",
    "-m",
    "--format=%(describe)",
    "--format=%G?",
    "--show-signature",
    "-s",
    "-w",
    "--files0-from=a.txt",
    "-C",
    "-l",
    "-T",
    "pwned",
]


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    """A command of the safe list with its own options, operands and traps in any order."""
    name = draw(st.sampled_from(sorted([*READERS, "find", "sed", "echo", "git", "git", "git", "git"])))
    options, head = READERS.get(name), [name]
    if name == "git":
        command = draw(st.sampled_from(sorted([*_COMMANDS, "branch"])))
        options, head = _COMMANDS.get(command, _BRANCH), ["git", command]
    own = ["-name", "-type", "-print0", "-ls"]
    if options is not None:
        own = [f"-{letter}" for letter in options.short + options.valued] + sorted(options.long)
    word = st.one_of(
        st.sampled_from(own or ["-a"]), st.sampled_from(OPERANDS), st.sampled_from(OPERANDS), st.sampled_from(TRAPS)
    )
    return [*head, *draw(st.lists(word, max_size=5))]


GENERATE = settings(deadline=None, derandomize=True, phases=[Phase.generate])


def test_commands_that_are_let_through_only_read(place: Path, tmp_path: Path) -> None:
    ran, host = 0, LocalHost(str(place), ENV)

    @given(commands())
    @settings(GENERATE, max_examples=200)
    def check_one(argv: list[str]) -> None:
        nonlocal ran
        script = ["bash", "-c", shlex.join(argv)]
        safe = is_known_safe(take_apart(script), host)
        if safe and shutil.which(argv[0], path=ENV["PATH"]) and not ENDLESS & set(argv):
            check(script, place, tmp_path / "trace")
            ran += 1

    check_one()
    assert ran > 50


STARTS = ["ls", "ls ", "echo a", "cat a.txt", "X=1 ls", "timeout 5 ls ", "pwd; ", "echo 'a", 'echo "a']
PIECES = [
    "ls",
    "echo",
    "cat",
    " ",
    " ",
    " ",
    "a.txt",
    "src/*",
    "*",
    "|",
    "&&",
    "||",
    ";",
    "\n",
    "&",
    "touch pwned",
    "./evil",
    "tee pwned",
    "> pwned",
    ">pwned",
    ">>",
    "<",
    "$(",
    ")",
    "(",
    "`",
    "'",
    '"',
    "\\",
    "\\\n",
    "#",
    "{",
    "}",
    ",",
    "$",
    "${x}",
    "$'",
    "=",
    "X=1 ",
    "!",
    "<<E\n",
    "\nE\n",
    "<(",
    "[[ ",
    " ]]",
    "if ",
    "; then ",
    "; fi",
    "~",
    "\r",
    "\t",
    "é",
    "\u00a0",
    "-",
    "%",
    "^",
    "f() ",
    "rm a.txt",
]


def test_scripts_that_are_let_through_only_read(place: Path, tmp_path: Path) -> None:
    ran, host = 0, LocalHost(str(place), ENV)

    @given(st.sampled_from(STARTS), st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join))
    @settings(GENERATE, max_examples=600)
    def check_one(start: str, rest: str) -> None:
        nonlocal ran
        argv = ["bash", "-c", start + rest]
        if is_known_safe(take_apart(argv), host):
            check(argv, place, tmp_path / "trace")
            ran += 1

    check_one()
    assert ran > 20


def test_the_check_sees_a_write_a_program_and_a_socket(place: Path, tmp_path: Path) -> None:
    """The test of the test."""
    with pytest.raises(AssertionError):
        check(["bash", "-c", "ls > pwned"], place, tmp_path / "trace")
    (place / "pwned").unlink()
    if strace():
        with pytest.raises(AssertionError):
            check(["bash", "-c", "echo $(id)"], place, tmp_path / "trace")
        with pytest.raises(AssertionError):
            check(["bash", "-c", "cat a.txt 3<>/dev/tcp/127.0.0.1/9"], place, tmp_path / "trace")
