"""`ferrule sandbox`: the command's own output, input and exit code, and what confines it."""

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule.sandbox.environment import NESTED
from ferrule.sandbox.plan import Level
from tests.cli.command import Done
from tests.cli.warm import Warm
from tests.sandbox.conftest import require

Sandboxed = Callable[..., Done]
FERRULE = [sys.executable, "-m", "ferrule.cli.main"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "beside").mkdir()
    return {**os.environ, "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "project")}


@pytest.fixture
def sandbox(tmp_path: Path, environment: dict[str, str], forker: Warm) -> Sandboxed:
    """Runs `ferrule sandbox` in the project with these arguments."""

    def run(*arguments: str, stdin: bytes | int = b"", **more: str) -> Done:
        words = ("sandbox", "-C", str(tmp_path / "project"), *arguments)
        return forker.run(words, stdin, environment | more, tmp_path)

    return run


def test_it_passes_everything_through(tmp_path: Path, environment: dict[str, str]) -> None:
    script = "cat; echo out; echo err >&2; exit 7"
    command = [*FERRULE, "sandbox", "-C", str(tmp_path / "project"), "--", "sh", "-c", script]
    done = subprocess.run(
        command, input=b"in\n" * 50_000, env=environment, capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 7
    assert done.stdout == b"in\n" * 50_000 + b"out\n"
    assert done.stderr == b"err\n"


async def test_in_a_container(tmp_path: Path, sandbox: Sandboxed) -> None:
    await require(Level.NAMESPACES)
    script = f"pwd; touch inside; ls {tmp_path}; echo $HOME; curl -s http://b.example -o /tmp/x; exit 3"
    listed = ["-c", 'sandbox_workspace_write.network_access=["a.example"]']
    done = sandbox("-s", "container", *listed, "--", "sh", "-c", script)
    assert "b.example is not an allowed domain. Allowed: a.example." in done.err
    assert (done.code, done.out) == (3, f"{tmp_path}/project\nproject\n/home/user\n"), done.err
    assert sorted(path.name for path in (tmp_path / "project").iterdir()) == ["inside"]
    missing = sandbox("--container-image", "none", "--", "true")
    assert missing.code == 1 and "there is no image 'none'" in missing.err
    beside = sandbox("-s", "read-only", "--container-image", "none", "--", "true")
    assert beside.code == 2 and beside.err == "ferrule: --container-image needs -s container\n"


def test_it_confines(tmp_path: Path, sandbox: Sandboxed) -> None:
    config = ["-c", "sandbox_workspace_write.exclude_slash_tmp=true"]
    script = f"touch inside; touch {tmp_path}/beside/file"
    done = sandbox(*config, "--", "sh", "-c", script)
    assert done.code != 0
    assert (tmp_path / "project" / "inside").exists()
    assert not (tmp_path / "beside" / "file").exists()
    also = sandbox(*config, "-w", str(tmp_path / "beside"), "--", "touch", f"{tmp_path}/beside/file")
    assert also.code == 0
    reading = sandbox("-s", "read-only", "--", "touch", "x")
    assert (reading.code, reading.err) == (1, "touch: cannot touch 'x': Read-only file system\n")


def test_n022_standard_input_stays_what_it_was(tmp_path: Path, environment: dict[str, str], sandbox: Sandboxed) -> None:
    script = "import os, stat; print(oct(stat.S_IFMT(os.fstat(0).st_mode)), os.isatty(0), os.read(0, 3))"

    def shown(given: int) -> str:
        done = sandbox("--", sys.executable, "-c", script, stdin=given)
        assert done.code == 0, done.err
        return done.out

    with Path(os.devnull).open() as nothing:
        assert shown(nothing.fileno()) == "0o20000 False b''\n"
    command = [*FERRULE, "sandbox", "-C", str(tmp_path / "project"), "--", sys.executable, "-c", script]
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *command]
    assert subprocess.run(closed, env=environment, capture_output=True, check=True).stdout == b"0o20000 False b''\n"
    text = tmp_path / "text"
    text.write_text("abcdef")
    with text.open("rb") as file:
        os.lseek(file.fileno(), 2, os.SEEK_SET)
        assert shown(file.fileno()) == "0o100000 False b'cde'\n"
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 5
    read, write = os.pipe()
    os.write(write, b"xyz")
    assert shown(read) == "0o10000 False b'xyz'\n"
    os.close(read)
    os.close(write)
    master, slave = pty.openpty()
    os.write(master, b"k\n")
    assert shown(slave) == "0o20000 True b'k\\n'\n"
    os.close(master)
    os.close(slave)


def test_a_missing_folder_is_told_with_its_own_flag(sandbox: Sandboxed) -> None:
    for flag in ("-w", "--add-dir"):
        done = sandbox(flag, "/missing", "--", "true")
        assert (done.code, done.err) == (2, f"ferrule: {flag}: /missing is not a directory\n")


def test_a_sandbox_in_a_sandbox_says_so_in_one_sentence(sandbox: Sandboxed) -> None:
    done = sandbox("--", *FERRULE, "sandbox", "--", "true")
    assert (done.code, done.err) == (2, f"ferrule: {NESTED}\n")
    plain = sandbox("--", *FERRULE, "sandbox", "-s", "danger-full-access", "--", "true")
    assert plain.code == 0
    script = f"{sys.executable} -m ferrule.cli.main exec --base-url http://127.0.0.1:1 -m x hello"
    agent = sandbox("--", "sh", "-c", script)
    assert (agent.code, agent.err) == (2, f"ferrule: {NESTED}\n")


def test_n011_a_correct_program_with_the_address_sanitizer(tmp_path: Path, sandbox: Sandboxed) -> None:
    source = tmp_path / "project" / "x.c"
    source.write_text("int main(void) { return 0; }\n")
    built = subprocess.run(["gcc", "-fsanitize=address", "-o", "x", "x.c"], cwd=source.parent, check=False)
    if built.returncode:
        pytest.skip("no compiler with the address sanitizer")
    assert sandbox("--", "./x").code == 0
    own = sandbox("--", "./x", ASAN_OPTIONS="verbosity=0:detect_leaks=1")
    assert own.code != 0, "what the user says counts"


@pytest.mark.skipif(os.getuid() != 0, reason="only root is taken to be able to give files away")
def test_n013_root_unpacks_the_files_of_others(tmp_path: Path, sandbox: Sandboxed) -> None:
    project = tmp_path / "project"
    (project / "f").write_text("x")
    subprocess.run(["tar", "--owner=1234", "--group=1234", "-cf", "t.tar", "f"], cwd=project, check=True)
    done = sandbox("--", "tar", "xf", "t.tar")
    assert (done.code, done.err) == (0, "")
    script = "import os; os.chown('f', 1234, 1234)"
    done = sandbox("--", sys.executable, "-c", script)
    assert "PermissionError: [Errno 1]" in done.err
    done = sandbox("--", sys.executable, "-c", "import os; os.setuid(1)")
    assert "PermissionError: [Errno 1]" in done.err


@pytest.mark.parametrize("network", [False, True])
def test_n010_interfaces_can_be_listed(sandbox: Sandboxed, network: bool) -> None:
    if shutil.which("node") is None:
        pytest.skip("no node")
    flags = ["--network"] if network else []
    script = "console.log(Object.keys(os.networkInterfaces())[0])"
    done = sandbox(*flags, "--", "node", "-e", script)
    assert (done.code, done.out) == (0, "lo\n")


def test_a_death_by_signal_and_a_missing_program(sandbox: Sandboxed) -> None:
    assert sandbox("--", "sh", "-c", "kill -9 $$").code == 137
    missing = sandbox("--", "no-such-program")
    assert (missing.code, missing.err) == (1, "ferrule: program not found: no-such-program\n")


def test_wrong_usage_is_one_sentence(sandbox: Sandboxed) -> None:
    done = sandbox()
    assert done.code == 2
    assert done.err == "ferrule: give the command after --, like `ferrule sandbox -- make test`\n"


def test_on_a_terminal_the_command_has_one(tmp_path: Path, environment: dict[str, str]) -> None:
    master, slave = pty.openpty()
    command = [*FERRULE, "sandbox", "-C", str(tmp_path / "project"), "--", "sh", "-c", "tty; read x; echo got $x"]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        seen = b""
        while b"/dev/pts" not in seen:
            seen += os.read(master, 1024)
        os.write(master, b"words\r")
        while b"got words" not in seen:
            seen += os.read(master, 1024)
        assert process.wait(timeout=20) == 0
    os.close(master)
