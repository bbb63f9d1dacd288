"""The data stack: made from a package index of this test's own, seen by containers, replaced, removed."""

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ferrule.cli.main import main
from ferrule.config import ferrule_home
from ferrule.containers import LocalHost
from ferrule.containers.data_stack import DataStack
from ferrule.containers.images import ImageError
from ferrule.containers.images.shelf import LOCK, Shelf
from ferrule.containers.report import containers_report
from ferrule.containers.stack_build import MODULES, NO_PYTHON, PYTHON, Interpreter, find_pip
from tests.cli.command import COMMAND

INSIDE = [PYTHON, "-I", "-c", "import numpy, matplotlib.pyplot; print(numpy.VERSION)"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Iterator[DataStack]:
    """A stack of empty packages in a home of its own, made by the command."""
    del place  # skips where there are no containers
    if not os.access(PYTHON, os.X_OK):
        pytest.skip(f"there is no {PYTHON}")
    try:
        find_pip()
    except ImageError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FERRULE_HOME", str(tmp_path_factory.mktemp("home")))
        index = tmp_path_factory.mktemp("index")
        for name in MODULES:
            wheel(index, name, "1.0")
        build(patch, index)
        yield DataStack(Path(ferrule_home(), "images"))


def build(patch: pytest.MonkeyPatch, index: Path) -> None:
    """pip finds nothing but the index, by its own configuration."""
    for name in [*os.environ]:
        if name.startswith("PIP_"):
            patch.delenv(name)
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert main(["runtime", "build", "--index-url", index.as_uri()]) == 0


def wheel(index: Path, name: str, version: str) -> None:
    folder = index / name
    folder.mkdir(exist_ok=True)
    module = MODULES[name].replace(".", "/") + (".py" if "." in MODULES[name] else "/__init__.py")
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(module, f"VERSION = {version!r}\n")
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    links = "".join(f'<a href="{path.name}">{path.name}</a>\n' for path in folder.glob("*.whl"))
    (folder / "index.html").write_text(links)


async def test_every_container_on_the_machines_programs_has_it(built: DataStack, tmp_path: Path) -> None:
    async with LocalHost.open(tmp_path / "place") as host:
        container = await host.create()
        assert (await container.run(INSIDE)).stdout.text() == "1.0\n"
        target = built.get().target
        done = await container.run(f"echo x > {target}/numpy/__init__.py; rm -r {target}/numpy; mkdir {target}/new")
        assert done.exit_code != 0
        assert (await container.run(INSIDE)).stdout.text() == "1.0\n"


async def test_a_new_one_takes_its_place_and_who_runs_keeps_the_old(built: DataStack, tmp_path: Path) -> None:
    async with LocalHost.open(tmp_path / "place") as host:
        container = await host.create()
        with pytest.raises(ImageError, match="in use"):
            built.remove()
        with built.shelf.staging() as (staged, lock):
            shutil.copytree(built.folder, staged, dirs_exist_ok=True)
            (staged / "packages" / "numpy" / "__init__.py").write_text("VERSION = '2.0.0'\n")
            with built.shelf.locked():
                built.shelf.publish(staged, lock, built.folder.name, replace=True)
        built.shelf.sweep()
        assert (await container.run(INSIDE)).stdout.text() == "1.0\n"
        assert (await (await host.create()).run(INSIDE)).stdout.text() == "2.0.0\n"
    built.shelf.sweep()
    assert sorted(os.listdir(built.shelf.folder)) == [LOCK, built.folder.name]


KILLED = """
import os, signal, sys
from pathlib import Path
from ferrule.containers.images import shelf
def ends(*names):
    os.kill(os.getpid(), signal.SIGKILL)
shelf.Shelf._put_away = ends
store = shelf.Shelf(Path(sys.argv[1]))
with store.staging() as (staged, lock):
    (staged / "new").touch()
    with store.locked():
        store.publish(staged, lock, sys.argv[2], replace=True)
"""


def test_a_kill_while_one_is_replaced_leaves_one(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    (tmp_path / "thing").mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), "thing"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path / "thing") == ["new"]
    shelf.sweep()
    assert sorted(os.listdir(tmp_path)) == [LOCK, "thing"]


async def test_one_that_is_made_only_half_is_not_used(built: DataStack, tmp_path: Path) -> None:
    (built.folder / "stack.json").rename(tmp_path / "stack.json")
    try:
        assert built.use() is None
        assert "Python data stack: none" in (await containers_report())[-1]
    finally:
        (tmp_path / "stack.json").rename(built.folder / "stack.json")
    assert "Python data stack: for Python 3" in (await containers_report())[-1]


def test_what_cannot_be_downloaded_is_told_and_nothing_stays(
    built: DataStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = built.get()
    command = [*COMMAND, "runtime", "build", "--index-url", tmp_path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip could not download the packages; look at `pip config list` or give --index-url: " in done.stderr
    assert built.get() == before
    assert sorted(os.listdir(built.shelf.folder)) == [LOCK, built.folder.name]
    monkeypatch.setattr("ferrule.containers.stack_build.PYTHON", str(tmp_path / "none"))
    assert main(["runtime", "build"]) == 1
    assert NO_PYTHON in capfd.readouterr().err


def test_no_code_of_the_working_directory_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    with suppress(ImageError):
        find_pip()
    assert not (tmp_path / "ran").exists()


def test_pip_is_asked_for_what_the_interpreter_of_containers_can_load() -> None:
    glibc = [*Interpreter((3, 12), "cpython", "glibc 2.36", "x86_64", ()).pip_flags()]
    assert {"3.12", "cp312", "manylinux_2_36_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"} <= {*glibc}
    assert "manylinux_2_37_x86_64" not in glibc
    assert "musllinux_1_2_aarch64" in [*Interpreter((3, 12), "cpython", "", "aarch64", ()).pip_flags()]


def test_it_is_listed_and_removed_last(built: DataStack, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["runtime", "list"]) == 0
    assert capfd.readouterr().out.startswith("data-stack  for Python 3")
    assert main(["runtime", "rm", "data-stack"]) == 0
    assert main(["runtime", "rm", "data-stack"]) == 1
    assert "`ferrule runtime build` makes one" in capfd.readouterr().err
    assert os.listdir(built.shelf.folder) == [LOCK]
