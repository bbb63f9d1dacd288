"""`file_editor` and `str_replace_based_edit_tool` as models call them."""

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ferrule import Toolset
from ferrule.protocol.events import TurnDiff
from ferrule.protocol.payload import ToolOutput
from ferrule.tools.effects import PatchEffect
from tests.builtin.conftest import Benches
from tests.builtin.workbench import Bench

Call = Callable[..., Awaitable[ToolOutput]]


@pytest.fixture
def bench(benches: Benches) -> Bench:
    return benches("file_editor", "str_replace_based_edit_tool")


@pytest.fixture
def edit(bench: Bench) -> Call:
    async def call(command: str, path: object, **arguments: object) -> ToolOutput:
        return await bench.output("file_editor", command=command, path=str(path), **arguments)

    return call


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file.py"
    path.write_text("".join(f"line {n}\n" for n in range(1, 21)))
    return path


async def test_create_then_view(edit: Call, tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "a.txt"
    created = await edit("create", path, file_text="one\ntwo\n")
    assert (created.text, created.success) == (f"File created successfully at: {path}", True)
    assert path.read_text() == "one\ntwo\n"
    viewed = await edit("view", path)
    assert viewed.text == f"Here's the result of running `cat -n` on {path}:\n     1\tone\n     2\ttwo\n"


async def test_str_replace_shows_the_place(edit: Call, file: Path) -> None:
    output = await edit("str_replace", file, old_str="line 10\nline 11", new_str="ten\neleven\nmore")
    assert file.read_text().split("\n")[8:13] == ["line 9", "ten", "eleven", "more", "line 12"]
    assert output.text.startswith(
        f"The file {file} has been edited. Here's the result of running `cat -n` on a snippet of {file}:\n"
    )
    shown = [line.split("\t") for line in output.text.split("\n") if "\t" in line]
    assert shown[0] == ["     6", "line 6"] and shown[4] == ["    10", "ten"] and shown[-1] == ["    16", "line 15"]


async def test_str_replace_without_new_str_deletes(edit: Call, file: Path) -> None:
    await edit("str_replace", file, old_str="line 2\n")
    assert file.read_text().startswith("line 1\nline 3\n")


async def test_str_replace_wants_one_occurrence(edit: Call, file: Path) -> None:
    before = file.read_bytes()
    many = await edit("str_replace", file, old_str="line 1", new_str="x")
    assert "occurs 11 times" in many.text and "in lines 1, 10, 11" in many.text and many.success is False
    none = await edit("str_replace", file, old_str="line  3", new_str="x")
    assert "did not appear verbatim" in none.text and "Lines 3 to 3 differ from it only in white space" in none.text
    same = await edit("str_replace", file, old_str="line 3", new_str="line 3")
    assert "must differ" in same.text
    empty = await edit("str_replace", file, old_str="", new_str="x")
    assert "must not be empty" in empty.text
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("before", "line", "text", "after"),
    [
        (b"a\nb\n", 0, "x", b"x\na\nb\n"),
        (b"a\nb\n", 1, "x\ny\n", b"a\nx\ny\nb\n"),
        (b"a\nb\n", 2, "x", b"a\nb\nx\n"),
        (b"a\nb", 2, "x", b"a\nb\nx\n"),
        (b"", 0, "x", b"x\n"),
        (b"a\r\nb\r\n", 1, "x\ny", b"a\r\nx\r\ny\r\nb\r\n"),
        (b"a\r\nb", 2, "x", b"a\r\nb\r\nx\r\n"),
    ],
)
async def test_insert(edit: Call, tmp_path: Path, before: bytes, line: int, text: str, after: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(before)
    await edit("insert", path, insert_line=line, new_str=text)
    assert path.read_bytes() == after


async def test_bytes_that_are_not_touched_stay(edit: Call, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\xff\xfe three\r\nno end")
    path.chmod(0o751)
    await edit("str_replace", path, old_str="one\ntwo", new_str="1\n2")
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n\xff\xfe three\r\nno end"
    assert path.stat().st_mode & 0o777 == 0o751


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-8"])
async def test_n043_an_edit_keeps_encoding_mark_and_line_ends(edit: Call, tmp_path: Path, codec: str) -> None:
    path = tmp_path / "f"
    before = "\ufeffgröße\r\neins\r\nzwei".encode(codec)
    path.write_bytes(before)
    assert "\tgröße\n" in (await edit("view", path, view_range=[1, 1])).text
    edited = await edit("str_replace", path, old_str="größe\neins", new_str="世界\n→")
    assert edited.success and path.read_bytes() == "\ufeff世界\r\n→\r\nzwei".encode(codec)
    assert ("UTF" in edited.text) == (codec != "utf-8")
    await edit("insert", path, insert_line=0, new_str="top")
    assert path.read_bytes() == "\ufefftop\r\n世界\r\n→\r\nzwei".encode(codec)
    await edit("undo_edit", path)
    assert "\t→\n" in (await edit("undo_edit", path)).text or path.read_bytes() == before
    assert path.read_bytes() == before


async def test_n043_a_guessed_encoding(edit: Call, tmp_path: Path) -> None:
    path = tmp_path / "f"
    before = "日本語のテスト\nb\n".encode("cp932")
    path.write_bytes(before)
    refused = await edit("str_replace", path, old_str="テスト", new_str="😀")
    assert "is Shift-JIS, as far as its bytes tell, which has no '😀' (U+1F600)" in refused.text
    missed = await edit("str_replace", path, old_str="\ufffd\ufffd", new_str="x")
    assert missed.text.endswith("The file is Shift-JIS, as far as its bytes tell.")
    assert path.read_bytes() == before
    done = await edit("str_replace", path, old_str="テスト", new_str="試験")
    assert "It is Shift-JIS, as far as its bytes tell, and stays so." in done.text
    assert path.read_bytes() == "日本語の試験\nb\n".encode("cp932")


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le"])
async def test_n043_an_old_macs_line_ends(edit: Call, tmp_path: Path, codec: str) -> None:
    def data(text: str) -> bytes:
        return ("\ufeff" + text).encode(codec)

    path = tmp_path / "f"
    path.write_bytes(data("one\rtwo\rthree\r"))
    assert "     2\ttwo\n     3\tthree\n" in (await edit("view", path)).text
    assert "     3\tthree\n" in (await edit("view", path, view_range=[3, 3])).text
    edited = await edit("str_replace", path, old_str="one\ntwo\n", new_str="1\n2\n2.5\n")
    assert "     3\t2.5\n     4\tthree\n" in edited.text
    await edit("insert", path, insert_line=4, new_str="four\nfive")
    assert path.read_bytes() == data("1\r2\r2.5\rthree\rfour\rfive\r")
    await edit("undo_edit", path)
    assert "     2\ttwo\n     3\tthree\n" in (await edit("undo_edit", path)).text
    assert path.read_bytes() == data("one\rtwo\rthree\r")


async def test_n043_binary_and_damaged_files_are_named(edit: Call, tmp_path: Path) -> None:
    path = tmp_path / "f"
    for data, said in (
        (b"a\0b", "is a binary file"),
        (b"\xff\xfea\0\0\0b", "it starts like UTF-16LE, and the rest is not"),
    ):
        path.write_bytes(data)
        assert said in (await edit("view", path)).text
        assert said in (await edit("str_replace", path, old_str="a", new_str="b")).text
        assert path.read_bytes() == data
    path.write_bytes(b"caf\x80\x81\n")
    said = (await edit("str_replace", path, old_str="caf\ufffd", new_str="b")).text
    assert "\ufffd stands for bytes that are not UTF-8" in said


GUTTER = (
    "Without the line numbers in front it is in lines {}. Line numbers shown by a file reader are no part of the file"
)


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("     5\tline 5\n     6\tline 6", GUTTER.format("5 to 6")),
        ("L5: line 5", GUTTER.format("5 to 5")),
        ("5→line 5\n6→line 6", GUTTER.format("5 to 6")),
        (
            "line 5\\nline 6",
            'With its escapes read (`\\n` as a line end, `\\t` as a tab, `\\"` as a quote) it is in lines 5 to 6',
        ),
        ("line&#32;5&lt;", ""),
        ("line &#53;\nline 6", "With `&lt;`, `&gt;`, `&amp;` and their like read as characters it is in lines 5 to 6"),
        ("-line 5\n+five", "Without the signs of a diff it is in lines 5 to 5"),
        ("```python\nline 5\n```", "Without the code fence it is in lines 5 to 5"),
    ],
)
async def test_n049_what_changed_a_copied_text_is_named(edit: Call, file: Path, old: str, said: str) -> None:
    before = file.read_bytes()
    output = await edit("str_replace", file, old_str=old, new_str="x")
    assert "did not appear verbatim" in output.text and said in output.text and not output.success
    assert file.read_bytes() == before


@pytest.mark.parametrize("old", ["two\nthree", "two\r\nthree"])
async def test_n046_a_file_with_crlf_stays_so(edit: Call, tmp_path: Path, old: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one\r\ntwo\r\nthree\r\nlone\nend\r\n")
    await edit("str_replace", path, old_str=old, new_str="2\n3\r\n4")
    assert path.read_bytes() == b"one\r\n2\r\n3\r\n4\r\nlone\nend\r\n"
    await edit("insert", path, insert_line=4, new_str="x\ny")
    assert path.read_bytes() == b"one\r\n2\r\n3\r\n4\r\nx\r\ny\r\nlone\nend\r\n"


async def test_n047_tabs_stay_and_other_white_space_is_named(edit: Call, tmp_path: Path) -> None:
    path = tmp_path / "f"
    before = b"a:\n\tpass\n\nb:\n\tpass\n\ttail  \nlast\n"
    path.write_bytes(before)
    spaces = await edit("str_replace", path, old_str="b:\n    pass", new_str="x")
    assert "Lines 4 to 5 differ from it only in white space" in spaces.text
    twice = await edit("str_replace", path, old_str=":\n\tpass", new_str="x")
    assert "occurs 2 times" in twice.text and "in lines 1, 4." in twice.text
    assert path.read_bytes() == before
    await edit("str_replace", path, old_str="last", new_str="end")
    assert path.read_bytes() == before.replace(b"last", b"end")


@pytest.mark.parametrize("name", ["a b.txt", " lead", "new\nline", "tab\t", "'quoted'", "ä\u0308", "-rf", "$x", "*"])
async def test_n043_any_name_of_a_file(edit: Call, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("one\n")
    assert (await edit("str_replace", path, old_str="one", new_str="two")).success
    assert path.read_text() == "two\n" and "\ttwo\n" in (await edit("view", path)).text


async def test_a_link_is_edited_where_it_leads_and_stays(edit: Call, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("one\n")
    (tmp_path / "link").symlink_to("real")
    await edit("str_replace", tmp_path / "link", old_str="one", new_str="two")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "two\n"


async def test_undo_takes_back_edit_by_edit(edit: Call, file: Path, tmp_path: Path) -> None:
    original = file.read_bytes()
    await edit("insert", file, insert_line=0, new_str="top")
    await edit("str_replace", file, old_str="top", new_str="TOP")
    first = await edit("undo_edit", file)
    assert first.text.startswith(f"Last edit to {file} undone successfully.") and file.read_text().startswith("top\n")
    await edit("undo_edit", file)
    assert file.read_bytes() == original
    assert (await edit("undo_edit", file)).text == f"No edit history found for {file}."
    await edit("create", tmp_path / "new", file_text="x")
    await edit("undo_edit", tmp_path / "new")
    assert not (tmp_path / "new").exists()


async def test_undo_never_destroys_somebody_elses_work(edit: Call, file: Path) -> None:
    await edit("insert", file, insert_line=0, new_str="top")
    file.write_text("theirs\n")
    assert "nothing was undone" in (await edit("undo_edit", file)).text
    assert file.read_text() == "theirs\n"


async def test_view_ranges(edit: Call, file: Path) -> None:
    def numbers(output: ToolOutput) -> list[int]:
        return [int(line.split("\t")[0]) for line in output.text.split("\n") if "\t" in line]

    assert numbers(await edit("view", file, view_range=[3, 5])) == [3, 4, 5]
    assert numbers(await edit("view", file, view_range=[18, -1])) == [18, 19, 20]
    beyond = await edit("view", file, view_range=[19, 99])
    assert numbers(beyond) == [19, 20] and beyond.text.startswith("NOTE: the file has only 20 lines.\n")
    for wrong in ([0, 3], [5, 4], [21, 22], [1], [1, 2, 3], [-1, -1]):
        output = await edit("view", file, view_range=wrong)
        assert output.text.startswith(f"Invalid `view_range` parameter: {wrong}.") and output.success is False


async def test_view_of_a_folder(edit: Call, tmp_path: Path) -> None:
    (tmp_path / "d" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "d" / ".git").mkdir()
    (tmp_path / ".hidden").touch()
    (tmp_path / "new\nline").touch()
    lines = (await edit("view", tmp_path)).text.split("\n")
    assert lines[1:] == [f"{tmp_path}/", f"{tmp_path}/d/", f"{tmp_path}/d/deep/", f"{tmp_path}/new\\nline"]
    assert "not allowed for a directory" in (await edit("view", tmp_path, view_range=[1, 2])).text


async def test_long_output_is_clipped_at_its_end(benches: Benches, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("some words\n" * 100_000)
    output = await benches("file_editor").output("file_editor", command="view", path=str(path))
    assert output.text.endswith("<response clipped>\n") and len(output.text) < 60_000 and output.bounded


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"command": "create"}, "Parameter `file_text` is required for command: create."),
        ({"command": "str_replace"}, "Parameter `old_str` is required for command: str_replace."),
        ({"command": "insert"}, "Parameter `insert_line` is required for command: insert."),
        ({"command": "insert", "insert_line": 1}, "Parameter `new_str` is required for command: insert."),
        ({"command": "insert", "insert_line": 21, "new_str": "x"}, "It should be within [0, 20]"),
        ({"command": "insert", "insert_line": -1, "new_str": "x"}, "It should be within [0, 20]"),
        ({"command": "create", "file_text": "x"}, "It exists already"),
        ({"command": "delete"}, "command"),
    ],
)
async def test_bad_parameters(edit: Call, file: Path, arguments: dict[str, object], text: str) -> None:
    before = file.read_bytes()
    output = await edit(**arguments, path=file)
    assert text in output.text and output.success is False and file.read_bytes() == before


async def test_places_that_cannot_be_edited(edit: Call, tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "binary").write_bytes(b"a\0b")
    os.mkfifo(tmp_path / "p")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10 * 2**30)
    (tmp_path / "f").write_text("x\n")
    started = time.monotonic()
    for name, text in (
        ("none", "The path does not exist"),
        ("dangling", "It is a link to something that does not exist"),
        ("loop", ""),
        ("binary", "is a binary file"),
        ("p", "It is no regular file"),
        ("sparse", "is too large: 10240.0 MB"),
        ("f/below", "The path does not exist"),
    ):
        for command, more in (("view", {}), ("str_replace", {"old_str": "a", "new_str": "b"})):
            output = await edit(command, tmp_path / name, **more)
            assert text in output.text and output.success is False, (name, command, output.text)
    assert "only `view` works on directories" in (await edit("str_replace", tmp_path, old_str="a")).text
    assert "It exists already" in (await edit("create", tmp_path / "dangling", file_text="x")).text
    assert "is a binary file" in (await edit("view", tmp_path / "sparse", view_range=[1, 2])).text
    assert time.monotonic() - started < 30
    relative = await edit("view", "f")
    assert f"Maybe you meant {tmp_path}/f?" in relative.text


async def test_a_read_only_file_stays(edit: Call, file: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    file.chmod(0o444)
    assert "is read-only" in (await edit("str_replace", file, old_str="line 3", new_str="x")).text


async def test_writing_is_a_patch_to_the_approval_and_to_the_front_end(bench: Bench, edit: Call, file: Path) -> None:
    await edit("str_replace", file, old_str="line 3", new_str="x")
    (effect,) = bench.host.effects
    assert isinstance(effect, PatchEffect) and effect.paths == (str(file),) and "-line 3\n+x" in effect.text
    (diff,) = bench.host.told(TurnDiff)
    assert "-line 3\n+x" in diff.unified_diff


async def test_it_writes_only_where_the_sandbox_lets_it(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    outside = tmp_path / "outside.txt"
    async with Toolset.for_model("devstral", cwd=tmp_path / "work", sandbox="read-only") as tools:
        call = {"type": "function_call", "call_id": "1", "name": "file_editor"}
        arguments = f'{{"command": "create", "path": "{outside}", "file_text": "x", "security_risk": "LOW"}}'
        (answer,) = await tools.run([{**call, "arguments": arguments}])
    assert "blocked by read-only sandbox" in str(answer["output"]) and not outside.exists()


async def test_claudes_editor_inserts_insert_text(bench: Bench, file: Path) -> None:
    name = "str_replace_based_edit_tool"
    await bench.call(name, command="insert", path=str(file), insert_line=1, insert_text="between")
    await bench.call(name, command="insert", path=str(file), insert_line=0, new_str="older spelling")
    assert file.read_text().split("\n")[:3] == ["older spelling", "line 1", "between"]
    missing = await bench.call(name, command="insert", path=str(file), insert_line=0)
    assert missing == "Parameter `insert_text` is required for command: insert."
    assert "undo_edit" in await bench.call(name, command="undo_edit", path=str(file))
    viewed = await bench.call(name, command="view", path=str(file), view_range=[2, 2])
    assert viewed.endswith("     2\tline 1\n")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_n046_a_file_with_crlf_stays_one(edit: Call, tmp_path: Path, end: str) -> None:
    file = tmp_path / "f.txt"
    file.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await edit("str_replace", file, old_str=f"one{end}two", new_str=f"1{end}2")
    assert file.read_bytes() == b"1\r\n2\r\nthree\r\n"
    await edit("insert", file, insert_line=1, new_str=f"a{end}b")
    assert file.read_bytes() == b"1\r\na\r\nb\r\n2\r\nthree\r\n"


async def test_n047_tabs_stay_and_other_blanks_are_named(edit: Call, tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_bytes(b"def f():\n\treturn 1\n\nx = 1\ny = 2\nx = 1\ny = 2\n")
    missed = await edit("str_replace", file, old_str="def f():\n    return 1", new_str="")
    assert missed.success is False and "only in white space" in missed.text
    twice = await edit("str_replace", file, old_str="x = 1\ny = 2", new_str="")
    assert twice.success is False and "in lines 4, 6." in twice.text
    await edit("str_replace", file, old_str="\n\nx = 1", new_str="\n\nz = 1")
    assert file.read_bytes() == b"def f():\n\treturn 1\n\nz = 1\ny = 2\nx = 1\ny = 2\n"
