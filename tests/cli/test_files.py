"""`ferrule files` as a command."""

import json
from pathlib import Path

import pytest

from ferrule.cli.main import main
from ferrule.retrieval import embedders

ANSWER = "The tower of Brix is 42 m high.\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(embedders, "find_spec", lambda name: None)  # no vectors: loading them takes half a second
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tower.md").write_text(ANSWER)
    return (tmp_path / "docs").resolve()


def test_a_folder_is_added_searched_listed_and_removed(
    docs: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    (home / "config.toml").write_text('# mine\nmodel = "m"\n')
    assert main(["files", "add", "docs"]) == 0
    assert capsys.readouterr().out.startswith(f"{docs}  1 file, 1 passage, ")
    assert (home / "config.toml").read_text() == f'# mine\nmodel = "m"\n\n[file_search]\nfolders = ["{docs}"]\n'
    assert main(["files", "search", "how high is the tower"]) == 0
    assert capsys.readouterr().out == f"{docs}/tower.md:1\n{ANSWER}\n"
    assert main(["files", "search", "--json", "tower"]) == 0
    assert json.loads(capsys.readouterr().out)["line"] == 1
    assert main(["files", "add", str(docs)]) == 0
    capsys.readouterr()
    assert main(["files", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["folder"], listed["searched"], listed["files"], listed["passages"]) == (str(docs), True, 1, 1)
    assert main(["files", "rm", "docs"]) == 0
    assert (home / "config.toml").read_text() == '# mine\nmodel = "m"\n\n'
    assert [*(home / "file_search").iterdir()] == []
    capsys.readouterr()
    assert main(["files"]) == 0
    assert capsys.readouterr().out == "no folder is searched; `ferrule files add FOLDER` adds one\n"


def test_an_index_is_brought_up_to_date(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["files", "list", "-c", "file_search.folders=['docs']"]) == 0
    assert capsys.readouterr().out == f"{docs}  not indexed yet\n"
    assert main(["files", "index", "-c", "file_search.folders=['docs', 'gone']"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0].startswith(f"{docs}  1 file, ")
    assert "gone cannot be indexed: No such file or directory." in shown.err
    assert main(["files", "list"]) == 0
    assert "(not searched: no setting names it)" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["add", "gone"], ["rm", "gone"], ["search", "x"], ["index"]])
def test_wrong_usage(arguments: list[str], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["files", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not home.exists()
