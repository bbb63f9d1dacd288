"""`ferrule container` as a command."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule.cli.main import main
from ferrule.containers.place import default_place
from ferrule.containers.report import containers_report
from ferrule.sandbox.plan import Level
from tests.cli.command import COMMAND
from tests.sandbox.conftest import require

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    asyncio.run(require(Level.NAMESPACES))
    home = tmp_path / "home"
    monkeypatch.setenv("FERRULE_HOME", str(home))
    yield default_place(str(home))
    assert not default_place(str(home)).exists(), "the place is left"


def test_run_passes_streams_and_the_exit_code_on(tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "file").write_text("seen\n")
    script = "id -un; cat; cat /work/file; echo $A >&2; exit 3"
    flags = ["--mount", f"{tmp_path}/shown:/work", "--env", "A=b", "--memory", "300m", "--cpus", "0.5"]
    command = [*COMMAND, "container", "run", *flags, "--", "sh", "-c", script]
    done = subprocess.run(command, input="typed\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "user\ntyped\nseen\n", "b\n")


def test_a_kept_container(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["container", "run", "--keep", "--", "sh", "-c", "echo text > file"]) == 0
    container_id = capfd.readouterr().err.removeprefix("ferrule: ").strip()
    assert main(["container", "list"]) == 0
    assert capfd.readouterr().out.startswith(container_id)
    assert main(["container", "run", "--in", container_id, "--", "cat", "file"]) == 0
    told = capfd.readouterr()
    assert told.out == "text\n" and "started again" in told.err
    assert main(["container", "rm", container_id]) == 0
    assert main(["container", "list"]) == 0
    assert capfd.readouterr() == ("", "there is no container\n")
    assert main(["container", "rm", container_id]) == 1
    assert capfd.readouterr().err == f"ferrule: there is no container {container_id}\n"


def test_doctor_says_what_bounds_a_container() -> None:
    first, second, *_ = asyncio.run(containers_report())
    assert first == "Containers: work"
    assert second.startswith("  limits: memory")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["start"],
        ["run"],
        ["run", "--"],
        ["run", "--memory", "much", "--", "true"],
        ["run", "--env", "A", "--", "true"],
        ["run", "--mount", "/nonexistent:/x", "--", "true"],
        ["run", "--mount", "/tmp:/x:rx", "--", "true"],
        ["rm"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["container", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
