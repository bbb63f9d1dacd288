"""Tools that read files do not read file systems of the kernel, where our own environment and open files are."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from ferrule import Toolset, kernel_files
from ferrule.builtin.searching.python import search_in_python
from ferrule.builtin.searching.request import Search
from ferrule.builtin.searching.ripgrep import find_ripgrep
from ferrule.kernel_files import KernelFileError, open_stored, refuse_kernel_files
from ferrule.sandbox.files import ConfinedFiles
from ferrule.sandbox.plan import ConfinementPlan
from tests.processes import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="such file systems are Linux's")

KEY = "sk-canary-1"
CALLS = [
    ("grep_files", {"pattern": KEY, "path": "{path}"}),
    ("grep", {"pattern": KEY, "path": "{path}"}),
    ("read_file", {"file_path": "{path}"}),
    ("file_editor", {"command": "view", "path": "{path}"}),
    ("file_editor", {"command": "str_replace", "path": "{path}", "old_str": KEY, "new_str": "x"}),
    ("view_image", {"path": "{path}"}),
]


@pytest.fixture(params=["link", "itself", "root", "thread"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "link").symlink_to("/proc/self/environ")
    names = {
        "link": f"{tmp_path}/link",
        "itself": "/proc/self/environ",
        "root": "/proc/self/root/proc/self/environ",
        "thread": "/proc/thread-self/environ",
    }
    return names[request.param]


@pytest.mark.parametrize(
    ("name", "arguments"), CALLS, ids=[f"{name}-{args.get('command', '')}" for name, args in CALLS]
)
async def test_s15_the_environment_of_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, name: str, arguments: dict[str, str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    filled = {key: value.format(path=path) for key, value in arguments.items()}
    said = await answer(tmp_path, name, filled)
    assert "a file system of the kernel" in said, said
    assert KEY not in said.replace(f'"{KEY}"', "")


async def answer(cwd: Path, name: str, arguments: Mapping[str, object]) -> str:
    toolset = Toolset.for_model("gpt-5.5", cwd=cwd, tools=[name])
    call = {"type": "function_call", "call_id": "1", "name": name, "arguments": json.dumps(arguments)}
    try:
        (output,) = await toolset.run([call])
    finally:
        await toolset.aclose()
    return str(output["output"])


@pytest.mark.parametrize("name", ["grep_files", "glob", "list_dir"])
async def test_s15_what_lies_above(tmp_path: Path, name: str) -> None:
    arguments: dict[str, dict[str, object]] = {
        "grep_files": {"pattern": "x", "path": "/"},
        "glob": {"pattern": "*", "path": "/"},
        "list_dir": {"dir_path": "/proc/self/fd"},
    }
    assert "a file system of the kernel" in await answer(tmp_path, name, arguments[name])


@pytest.mark.skipif(find_ripgrep(os.environ).path is None, reason="ripgrep is not installed")
async def test_s15_ripgrep_sees_what_commands_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration file that a variable of ours names must not change what is found, nor a key be handed on."""
    seen: list[dict[str, str]] = []

    async def search(request: object, program: str, launcher: object, env: dict[str, str]) -> object:
        seen.append(env)
        raise AssertionError

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("ferrule.builtin.searching.door.search_with_ripgrep", search)
    await answer(tmp_path, "grep_files", {"pattern": "x"})
    assert len(seen) == 1 and KEY not in seen[0].values() and "PATH" in seen[0]


async def test_s15_a_listing_does_not_go_into_what_the_kernel_shows(tmp_path: Path) -> None:
    listed = await answer(tmp_path, "list_dir", {"dir_path": "/", "depth": 3, "limit": 1_000_000})
    assert "\n  thread-self" not in listed and "\n    environ" not in listed
    assert "proc (a file system of the kernel)" in listed


def test_s15_only_what_is_known_to_store_files_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that nobody has heard of may be a new one of the kernel's."""
    with NamedTemporaryFile(dir="/dev/shm") as file:
        os.close(open_stored(file.name, os.O_RDONLY))
        monkeypatch.setattr(kernel_files, "STORING", frozenset())
        with pytest.raises(KernelFileError, match="not known to store files"):
            open_stored(file.name, os.O_RDONLY)


def test_s15_without_a_table_of_mounts_only_devices_and_our_root_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_files, "MOUNTS", f"{tmp_path}/missing")
    os.close(open_stored("/etc/passwd", os.O_RDONLY))
    with pytest.raises(KernelFileError, match="does not list"):
        open_stored("/proc/self/environ", os.O_RDONLY)


def test_s15_a_path_that_is_changed_meanwhile_never_leads_to_the_kernel(tmp_path: Path) -> None:
    """Another process puts a link in the file's place and takes it away again, as fast as it can."""
    changing = (
        "import os, sys\nos.chdir(sys.argv[1])\nopen('plain', 'w').write('plain')\n"
        "os.symlink('/proc/self/environ', 'link')\n"
        "while True:\n os.link('plain', 'new'); os.rename('new', 'file')\n"
        " os.symlink('/proc/self/environ', 'new'); os.rename('new', 'file')\n"
    )
    path = str(tmp_path / "file")
    with subprocess.Popen([sys.executable, "-c", changing, str(tmp_path)]) as changer:
        seen, refused = set(), 0
        try:
            assert eventually(lambda: os.path.lexists(path))
            deadline = time.monotonic() + 0.5
            while time.monotonic() < deadline:
                try:
                    with FileIO(open_stored(path, os.O_RDONLY)) as file:
                        seen.add(file.read())
                except KernelFileError:
                    refused += 1
        finally:
            changer.kill()
    assert seen == {b"plain"} and refused


def test_s15_links_that_the_kernel_makes_are_not_followed(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.write_text("secret")
    with held.open() as file:
        for path in (f"/proc/self/fd/{file.fileno()}", f"/dev/fd/{file.fileno()}", f"/proc/self/cwd{held}"):
            with pytest.raises(KernelFileError):
                open_stored(path, os.O_RDONLY)


def test_s15_a_mount_point_with_a_blank_is_seen_from_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b").mkdir()
    table = tmp_path / "mountinfo"
    point = str(tmp_path / "a b").replace(" ", "\\040")
    table.write_text(Path("/proc/self/mountinfo").read_text() + f"999 1 0:999 / {point} rw - proc proc rw\n")
    refuse_kernel_files(str(tmp_path), below=True)
    monkeypatch.setattr(kernel_files, "MOUNTS", str(table))
    with pytest.raises(KernelFileError, match=f"it contains {tmp_path}/a b"):
        refuse_kernel_files(str(tmp_path), below=True)


def test_ordinary_paths_pass(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "up").symlink_to("../../../../../../../../../etc")
    for path in (
        str(tmp_path),
        "/dev/null",
        "/etc/passwd",
        "/tmp",
        "/",
        f"{tmp_path}/up/passwd",
        f"{tmp_path}/up/../tmp",
    ):
        refuse_kernel_files(path)
    with pytest.raises(OSError, match="symbolic links"):
        refuse_kernel_files(f"{tmp_path}/self")
    with pytest.raises(FileNotFoundError):
        refuse_kernel_files(f"{tmp_path}/missing")
    with pytest.raises(KernelFileError, match="it contains /"):
        refuse_kernel_files("/", below=True)


def test_s15_a_patch_and_a_search_in_python_look_again_when_they_read() -> None:
    with pytest.raises(KernelFileError):
        ConfinedFiles(ConfinementPlan()).read("/proc/self/environ")
    found = search_in_python(Search(path="/proc/self/environ", cwd="/", pattern="PATH"))
    assert not found.files and "a file system of the kernel" in found.warnings[0]
