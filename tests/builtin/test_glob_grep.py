"""`glob` and `grep` as a model calls them, with ripgrep and without."""

import os
from pathlib import Path

import pytest

from ferrule.protocol.payload import ToolOutput
from tests.builtin.conftest import Benches
from tests.builtin.test_grep_files import engine, files, place

__all__ = ["engine", "place"]


async def glob(benches: Benches, pattern: str, **arguments: object) -> list[str]:
    return (await benches("glob").call("glob", pattern=pattern, **arguments)).split("\n")


async def grep(benches: Benches, pattern: str, **arguments: object) -> ToolOutput:
    return await benches("grep").output("grep", pattern=pattern, **arguments)


async def test_glob_newest_first(benches: Benches, place: Path, engine: str) -> None:
    paths = files(place, "a.py", "sub/b.py", "sub/deep/c.py", ".hidden/d.py", "e.txt")
    found = await glob(benches, "**/*.py")
    assert found == [f"Found 4 file(s) matching pattern '**/*.py' in '{place}':", *paths[1:]]
    assert (await glob(benches, "*.py"))[1:] == paths[1:]
    assert (await glob(benches, "sub/*.py"))[1:] == [paths[3]]
    assert (await glob(benches, "*.{txt,md}"))[1:] == [paths[0]]
    assert (await glob(benches, "deep/*", path="sub"))[1:] == [paths[2]]
    assert (await glob(benches, f"{place}/sub/**/*.py"))[1:] == paths[2:4]
    assert (await glob(benches, f"{place}/e.txt"))[1:] == [paths[0]]


async def test_glob_leaves_out_git_and_what_is_ignored(benches: Benches, place: Path, engine: str) -> None:
    files(place, ".git/config", "build/x", "keep")
    (place / ".gitignore").write_text("build/\n")
    assert sorted(await glob(benches, "**/*"))[:-1] == [f"{place}/.gitignore", f"{place}/keep"]


async def test_glob_is_cut_and_says_so(benches: Benches, place: Path, engine: str) -> None:
    for number in range(101):
        (place / f"f{number}").touch()
    found = await glob(benches, "f*")
    assert len(found) == 103 and found[0].startswith("Found 100 file(s)") and "truncated to first 100" in found[-1]


async def test_glob_finds_nothing_or_cannot(benches: Benches, place: Path, engine: str) -> None:
    assert await glob(benches, "*.py") == [f"No files found matching pattern '*.py' in directory '{place}'"]
    assert await glob(benches, " ") == ["pattern must not be empty"]
    assert await glob(benches, "{a") == ["error parsing glob '{a': an opening brace has no closing one"]
    (place / "file").touch()
    for wrong in ("file", "none", "/dev/null"):
        assert "is not a valid directory" in (await glob(benches, "*", path=wrong))[0]


async def test_b148_glob_passes_over_what_is_no_file(benches: Benches, place: Path, engine: str) -> None:
    os.mkfifo(place / "p")
    (place / "loop").symlink_to(".")
    (place / "a\nb").touch()
    assert (await glob(benches, "*"))[1:] == [f"{place}/a\\nb"]


async def test_grep_files(benches: Benches, place: Path, engine: str) -> None:
    paths = files(place, "a.py", "b.md", text="Needle\n")
    output = await grep(benches, "needle")
    assert output.text.split("\n") == [f"Found 2 file(s) containing pattern 'needle' in '{place}':", *paths]
    assert (await grep(benches, "needle", include="*.py")).text.split("\n") == [
        f"Found 1 file(s) containing pattern 'needle' in '{place}' (filtered by '*.py'):",
        paths[1],
    ]
    assert (await grep(benches, "needle", path=paths[0])).text.split("\n")[1:] == paths[:1]
    none = await grep(benches, "nosuch")
    assert none.text == f"No files found containing pattern 'nosuch' in directory '{place}'" and none.success


async def test_grep_content_and_context(benches: Benches, place: Path, engine: str) -> None:
    text = "".join(f"line {n}\n" for n in range(1, 21))
    (path,) = files(place, "a", text=text)
    plain = (await grep(benches, "line 1[05]", output_mode="content")).text.split("\n")[1:]
    assert plain == [f"{path}:10:line 10", f"{path}:15:line 15"]
    around = (await grep(benches, "line 1[05]", output_mode="content", context=1)).text.split("\n")[1:]
    assert around == [
        f"{path}-9-line 9",
        f"{path}:10:line 10",
        f"{path}-11-line 11",
        "--",
        f"{path}-14-line 14",
        f"{path}:15:line 15",
        f"{path}-16-line 16",
    ]


async def test_grep_count(benches: Benches, place: Path, engine: str) -> None:
    one, two = sorted(files(place, "a", "b", text="x\nx\ny\n"))
    counted = (await grep(benches, "x", output_mode="count")).text.split("\n")
    assert counted == [f"Found 2 file(s) containing pattern 'x' in '{place}':", f"{one}:2", f"{two}:2"]


async def test_b046_grep_cuts_a_huge_line(benches: Benches, place: Path, engine: str) -> None:
    (path,) = files(place, "min.js", text="needle " + "x" * 120_000 + "\n")
    output = await grep(benches, "needle", output_mode="content")
    assert output.text.split("\n")[1] == f"{path}:1:needle " + "x" * 493 + " [line cut]"


async def test_b059_grep_partial_and_wrong(benches: Benches, place: Path, engine: str) -> None:
    (path,) = files(place, "-x", text="--foo\n")
    assert f"{path}:1:--foo" in (await grep(benches, "--foo", output_mode="content")).text
    for wrong in ("(", "[z"):
        output = await grep(benches, wrong)
        assert output.text.startswith("rg failed: ") and output.success is False
    for arguments in ({"context": -1}, {"context": 51}, {"output_mode": "lines"}, {"path": "none"}):
        assert (await grep(benches, "x", **arguments)).success is False
    assert (await grep(benches, "")).text == "pattern must not be empty"


async def test_grep_names_with_newlines_in_content(benches: Benches, place: Path, engine: str) -> None:
    files(place, "a\n1:b", "c")
    lines = (await grep(benches, "needle", output_mode="content")).text.split("\n")[1:]
    assert lines == [f"{place}/a\\n1:b:1:needle", f"{place}/c:1:needle"]


@pytest.mark.parametrize("mode", ["content", "count"])
async def test_many_lines_are_cut(benches: Benches, place: Path, engine: str, mode: str) -> None:
    files(place, *(f"f{number}" for number in range(120)), text="x\n" * 120)
    output = await grep(benches, "x", output_mode=mode)
    assert "[Results truncated." in output.text
