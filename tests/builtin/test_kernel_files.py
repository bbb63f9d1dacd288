"""Tools that read files do not read file systems of the kernel, where our own environment and open files are."""

import json
import os
import sys
from pathlib import Path

import pytest

from ferrule import Toolset
from ferrule.builtin.searching.ripgrep import find_ripgrep
from ferrule.kernel_files import KernelFileError, refuse_kernel_files

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


async def answer(cwd: Path, name: str, arguments: dict[str, str]) -> str:
    toolset = Toolset.for_model("gpt-5.5", cwd=cwd, tools=[name])
    call = {"type": "function_call", "call_id": "1", "name": name, "arguments": json.dumps(arguments)}
    try:
        (output,) = await toolset.run([call])
    finally:
        await toolset.aclose()
    return str(output["output"])


@pytest.mark.parametrize("name", ["grep_files", "glob", "list_dir"])
async def test_s15_what_lies_above(tmp_path: Path, name: str) -> None:
    arguments = {
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


def test_ordinary_paths_pass(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("self")
    for path in (str(tmp_path), "/dev/null", "/etc/passwd", f"{tmp_path}/missing", "/tmp"):
        refuse_kernel_files(path)
    with pytest.raises(OSError, match="symbolic links"):
        refuse_kernel_files(f"{tmp_path}/self")
    with pytest.raises(KernelFileError, match="it holds /"):
        refuse_kernel_files("/", below=True)
