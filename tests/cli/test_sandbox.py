"""`ferrule sandbox`: the command's own output, input and exit code, and what confines it."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

FERRULE = [sys.executable, "-m", "ferrule.cli.main"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "beside").mkdir()
    return {**os.environ, "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "project")}


def sandbox(
    tmp_path: Path, environment: dict[str, str], *arguments: str, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*FERRULE, "sandbox", "-C", str(tmp_path / "project"), *arguments],
        input=given,
        env=environment,
        capture_output=True,
        timeout=30,
        check=False,
    )


def test_it_passes_everything_through(tmp_path: Path, environment: dict[str, str]) -> None:
    script = "cat; echo out; echo err >&2; exit 7"
    done = sandbox(tmp_path, environment, "--", "sh", "-c", script, given=b"in\n" * 50_000)
    assert done.returncode == 7
    assert done.stdout == b"in\n" * 50_000 + b"out\n"
    assert done.stderr == b"err\n"


def test_it_confines(tmp_path: Path, environment: dict[str, str]) -> None:
    config = ["-c", "sandbox_workspace_write.exclude_slash_tmp=true"]
    script = f"touch inside; touch {tmp_path}/beside/file"
    done = sandbox(tmp_path, environment, *config, "--", "sh", "-c", script)
    assert done.returncode != 0
    assert (tmp_path / "project" / "inside").exists()
    assert not (tmp_path / "beside" / "file").exists()
    also = sandbox(
        tmp_path, environment, *config, "-w", str(tmp_path / "beside"), "--", "touch", f"{tmp_path}/beside/file"
    )
    assert also.returncode == 0
    reading = sandbox(tmp_path, environment, "-s", "read-only", "--", "touch", "x")
    assert (reading.returncode, reading.stderr) == (1, b"touch: cannot touch 'x': Read-only file system\n")


def test_a_death_by_signal_and_a_missing_program(tmp_path: Path, environment: dict[str, str]) -> None:
    assert sandbox(tmp_path, environment, "--", "sh", "-c", "kill -9 $$").returncode == 137
    missing = sandbox(tmp_path, environment, "--", "no-such-program")
    assert (missing.returncode, missing.stderr) == (1, b"ferrule: program not found: no-such-program\n")


def test_wrong_usage_is_one_sentence(tmp_path: Path, environment: dict[str, str]) -> None:
    done = sandbox(tmp_path, environment)
    assert done.returncode == 2
    assert done.stderr == b"ferrule: give the command after --, like `ferrule sandbox -- make test`\n"


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
