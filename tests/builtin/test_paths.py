"""A path that only a shell would expand, in every tool that takes one."""

from pathlib import Path

import pytest

from ferrule.protocol.profiles import ModelProfile
from tests.builtin.conftest import Benches
from tests.builtin.states import conversation

CALLS: dict[str, tuple[str, dict[str, object]]] = {
    "read_file": ("file_path", {}),
    "list_dir": ("dir_path", {}),
    "grep_files": ("path", {"pattern": "x"}),
    "grep": ("path", {"pattern": "x"}),
    "glob": ("path", {"pattern": "*"}),
    "view_image": ("path", {}),
    "file_editor": ("path", {"command": "view"}),
    "str_replace_based_edit_tool": ("path", {"command": "create", "file_text": "x"}),
    "exec_command": ("workdir", {"cmd": "true"}),
    "shell_command": ("workdir", {"command": "true"}),
    "shell": ("workdir", {"command": ["true"]}),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / "d").mkdir(parents=True)
    (home / "d" / "f").write_text("x")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.mark.parametrize("tool", CALLS)
@pytest.mark.parametrize("start", ["~", "$HOME", "${HOME}"])
async def test_n025_the_path_that_was_meant_is_named(
    benches: Benches, tmp_path: Path, home: Path, tool: str, start: str
) -> None:
    parameter, arguments = CALLS[tool]
    bench = benches(tool, state=conversation(tmp_path, profile=ModelProfile(name="seeing", image_input=True)))
    output = await bench.output(tool, **arguments, **{parameter: f"{start}/d/f"})
    assert f"no shell expands `{start}` here: write {home}/d/f, or" in output.text
    assert output.success is False
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


async def test_n025_a_patch_makes_no_folder_of_that_name(benches: Benches, tmp_path: Path, home: Path) -> None:
    text = "*** Begin Patch\n*** Add File: ~/new/f\n+x\n*** End Patch"
    assert f"write {home}/new/f" in await benches("apply_patch").call("apply_patch", input=text)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


@pytest.mark.parametrize("tool", ["grep", "grep_files"])
async def test_n025_an_absolute_glob_of_a_search(benches: Benches, tmp_path: Path, home: Path, tool: str) -> None:
    (tmp_path / "a.py").write_text("x")
    bench = benches(tool)
    found = await bench.call(tool, pattern="x", include=f"{tmp_path}/*.py")
    assert f"{tmp_path}/a.py" in found and f"{home}/d/f" not in found
    assert f"write {home}/d/*" in await bench.call(tool, pattern="x", include="~/d/*")
    elsewhere = await bench.call(tool, pattern="x", path=str(tmp_path / "a.py"), include="/etc/*.conf")
    assert f"include is matched below {tmp_path}: give /etc as path, and *.conf as include" in elsewhere


async def test_n025_the_pattern_of_a_glob(benches: Benches, home: Path) -> None:
    bench = benches("glob")
    assert f"{home}/d/f" in await bench.call("glob", pattern="~/d/*")
    assert f"write {home}/d/*" in await bench.call("glob", pattern="$HOME/d/*")
