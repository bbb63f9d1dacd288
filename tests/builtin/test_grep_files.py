"""`grep_files` as a model calls it, with ripgrep and without."""

import os
import shutil
import socket
import time
from pathlib import Path

import pytest

from ferrule import Toolset
from ferrule.builtin.searching.ripgrep import find_ripgrep
from ferrule.lookup import Located
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.permissions import WorkspaceWrite
from tests.builtin.conftest import Benches
from tests.builtin.workbench import unaffected

CALL = {"type": "function_call", "call_id": "1", "name": "grep_files", "arguments": '{"pattern": "needle"}'}

needs_ripgrep = pytest.mark.skipif(find_ripgrep(os.environ).path is None, reason="ripgrep is not installed")


@pytest.fixture(params=[pytest.param("ripgrep", marks=needs_ripgrep), "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr("ferrule.builtin.searching.door.find_ripgrep", lambda *given: Located(None))
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory."""
    return tmp_path


def files(place: Path, *names: str, text: str = "needle\n") -> list[str]:
    """Files, each a second younger than the one before; their paths, the youngest first."""
    paths = []
    for age, name in enumerate(names):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
        paths.append(str(path))
    return paths[::-1]


async def grep(benches: Benches, pattern: str, **arguments: object) -> ToolOutput:
    return await benches("grep_files").output("grep_files", pattern=pattern, **arguments)


async def test_paths_newest_first_then_cut(benches: Benches, place: Path, engine: str) -> None:
    paths = files(place, "a", "b", "sub/c", "d e")
    files(place, "other", text="hay\n")
    output = await grep(benches, "need[l]e")
    assert (output.text.split("\n"), output.success) == (paths, True)
    many = files(place, *(f"many/{number}" for number in range(101)))
    assert (await grep(benches, "needle", path="many")).text.split("\n") == many[:100], "100 by default"
    shutil.rmtree(place / "many")
    assert (await grep(benches, " needle ", limit=2)).text.split("\n") == paths[:2]
    assert (await grep(benches, "needle", limit=99_999)).text.split("\n") == paths
    assert (await grep(benches, "needle", path="sub")).text.split("\n") == [paths[1]]
    assert (await grep(benches, "needle", path=paths[0])).text.split("\n") == [paths[0]]


async def test_include(benches: Benches, place: Path, engine: str) -> None:
    paths = files(place, "a.py", "b.ts", "sub/c.tsx", "d.md")
    assert (await grep(benches, "needle", include="*.{ts,tsx}")).text.split("\n") == paths[1:3]
    assert (await grep(benches, "needle", include="  ")).text.split("\n") == paths
    assert (await grep(benches, "needle", include="!*.md")).text.split("\n") == paths[1:]
    bad = await grep(benches, "needle", include="[a")
    assert bad.success is False and "error parsing glob '[a'" in bad.text


async def test_b059_no_match_is_success(benches: Benches, place: Path, engine: str) -> None:
    files(place, "a")
    output = await grep(benches, "nosuch")
    assert (output.text, output.success) == ("No matches found.", True)


async def test_b059_a_bad_pattern_is_an_error_and_not_no_match(benches: Benches, place: Path, engine: str) -> None:
    files(place, "a")
    for pattern in ("(", "a{", "[z", "*a", "\\"):
        output = await grep(benches, pattern)
        assert output.success is False and output.text.startswith("rg failed: "), pattern


async def test_b059_a_pattern_may_start_with_a_dash(benches: Benches, place: Path, engine: str) -> None:
    paths = files(place, "a", text="--foo -e\n")
    for pattern in ("--foo", "-e", "--foo -e"):
        assert (await grep(benches, pattern)).text.split("\n") == paths


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_b059_hits_beside_an_unreadable_file(benches: Benches, place: Path, engine: str) -> None:
    paths = files(place, "secret", "a")
    (place / "secret").chmod(0)
    output = await grep(benches, "needle")
    assert output.text.startswith(f"{paths[0]}\nNot searched: ") and output.success


async def test_b059_odd_names(benches: Benches, place: Path, engine: str) -> None:
    files(place, "with space", "new\nline", os.fsdecode(b"bad\xff"), "ünï")
    names = {os.path.basename(line) for line in (await grep(benches, "needle")).text.split("\n")}
    assert names == {"with space", "new\\nline", "bad\ufffd", "ünï"}


async def test_b148_fifos_sockets_and_loops_are_passed_over(benches: Benches, place: Path, engine: str) -> None:
    paths = files(place, "a")
    os.mkfifo(place / "p")
    (place / "loop").symlink_to(".")
    (place / "to_pipe").symlink_to("p")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(place / "s"))
    started = time.monotonic()
    assert (await grep(benches, "needle")).text.split("\n") == paths
    fifo = await grep(benches, "needle", path="p")
    assert fifo.text == f"unable to access `{place}/p`: it is a FIFO, not searched" and fifo.success is False
    assert (await grep(benches, "needle", path="/dev/zero")).text.endswith("it is a device, not searched")
    assert time.monotonic() - started < 30
    listening.close()


async def test_b046_a_huge_line_is_no_trouble(benches: Benches, place: Path, engine: str) -> None:
    paths = files(place, "min.js", text="needle " + "x" * 120_000)
    assert (await grep(benches, "needle")).text.split("\n") == paths


async def test_binary_and_sparse_files(benches: Benches, place: Path, engine: str) -> None:
    files(place, "binary", text="needle\n\0\n")
    with (place / "sparse").open("wb") as file:
        file.write(b"needle\n")
        file.truncate(2**42)  # read through, it would take longer than the test may
    started = time.monotonic()
    assert (await grep(benches, "needle")).text == "No matches found."
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"pattern": "  "}, "pattern must not be empty"),
        ({"pattern": "a", "limit": 0}, "limit must be greater than zero"),
        ({"pattern": "a", "limit": 2.5}, "limit must be a whole number, not 2.5"),
        ({"pattern": "a", "path": "/no/such"}, "unable to access `/no/such`: No such file or directory (os error 2)"),
    ],
)
async def test_bad_parameters(
    benches: Benches, place: Path, engine: str, arguments: dict[str, object], text: str
) -> None:
    output = await benches("grep_files").output("grep_files", **arguments)
    assert (output.text, output.success) == (text, False)


async def test_a_dangling_link_as_path(benches: Benches, place: Path, engine: str) -> None:
    (place / "dangling").symlink_to("nowhere")
    assert "No such file" in (await grep(benches, "a", path="dangling")).text


async def test_settings_of_the_user_change_nothing(benches: Benches, place: Path, engine: str) -> None:
    paths = files(place, "a")
    (place / "rc").write_text("--files-without-match\n")
    state = unaffected(place, RIPGREP_CONFIG_PATH=str(place / "rc"))
    bench = benches("grep_files", state=state)
    assert (await bench.call("grep_files", pattern="needle")).split("\n") == paths


@needs_ripgrep
@pytest.mark.parametrize(
    "sandbox",
    ["read-only", WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True), "danger-full-access"],
    ids=["read-only", "workspace-write", "danger-full-access"],
)
async def test_ripgrep_of_the_system_runs_plainly(place: Path, sandbox: str | WorkspaceWrite) -> None:
    """Ripgrep may come with an environment below /tmp, so that is no root here."""
    (path,) = files(place, "a")
    async with Toolset.for_model("gpt-5.5", cwd=place, sandbox=sandbox, tools=["grep_files"]) as tools:
        (answer,) = await tools.run([CALL])
        assert answer["output"] == path
        assert tools.workspace._sandbox is None


@pytest.mark.parametrize("link", [False, True])
async def test_s09_a_program_that_commands_could_write_is_passed_over(
    place: Path, monkeypatch: pytest.MonkeyPatch, link: bool
) -> None:
    """A project's own `bin` on PATH."""
    (work := place / "work").mkdir()
    (path,) = files(work, "a")
    program = work / ("real" if link else "rg")
    program.write_text(f"#!/bin/sh\ntouch {work}/ran\nexit 1\n")
    program.chmod(0o755)
    if link:
        (work / "rg").symlink_to("real")
    monkeypatch.setenv("PATH", f"{work}:{os.environ['PATH']}")
    policy = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    async with Toolset.for_model("gpt-5.5", cwd=work, sandbox=policy, tools=["grep_files"]) as tools:
        (answer,) = await tools.run([CALL])
    assert answer["output"] == path and not (work / "ran").exists()
