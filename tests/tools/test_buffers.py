"""What stands in an editor counts before what is on disk."""

import os
from pathlib import Path

import pytest

from ferrule.patch import Kind, apply_patch
from ferrule.patch.files import PlainFiles
from ferrule.tools.buffers import OpenedFiles, opened_at, save
from ferrule.tools.files import Files


class Editor:
    """Holds texts; takes all but one."""

    def __init__(self, **held: str) -> None:
        self.held = {os.path.realpath(path): text for path, text in held.items()}
        self.asked: list[str] = []

    async def read(self, path: str) -> str | None:
        self.asked.append(path)
        return self.held.get(path)

    async def write(self, path: str, text: str) -> str:
        if path.endswith("refused"):
            return "no"
        self.held[path] = text
        return ""


@pytest.mark.parametrize(
    ("saved", "held", "seen"),
    [
        (b"a\n", "a\n", None),
        (b"a\r\nb\r\n", "a\nb\n", None),  # editors hold lines, and know how the file ends them
        (b"\xef\xbb\xbfa\n", "a\n", None),
        (b"a\n", "b\n", b"b\n"),
        (b"a\r\nb\r\n", "a\nc\n", b"a\r\nc\r\n"),
        (b"\xef\xbb\xbfa\n", "b\n", b"\xef\xbb\xbfb\n"),
        (b"\xff\xfe\x00", "b\n", None),  # no text: an editor shows something else of it
        (None, "new\n", b"new\n"),
    ],
)
async def test_only_what_differs_is_held_and_in_the_form_of_the_file(
    tmp_path: Path, saved: bytes | None, held: str, seen: bytes | None
) -> None:
    path = tmp_path / "a"
    if saved is not None:
        path.write_bytes(saved)
    opened = await opened_at([str(path)], Editor(**{str(path): held}), PlainFiles())
    assert opened == ({} if seen is None else {os.path.realpath(path): seen})


async def test_what_cannot_be_read_is_not_asked_for(tmp_path: Path) -> None:
    editor = Editor()
    os.mkfifo(tmp_path / "fifo")
    await opened_at([str(tmp_path), str(tmp_path / "fifo"), "a\0b", "/proc/self/environ"], editor, PlainFiles())
    assert (
        str(tmp_path / "fifo") not in editor.asked and str(tmp_path) not in editor.asked and "a\0b" not in editor.asked
    )


async def test_a_file_that_only_an_editor_has_is_there_and_is_written(tmp_path: Path) -> None:
    path = tmp_path / "only"
    opened = await opened_at([str(path)], Editor(**{str(path): "one\ntwo\n"}), PlainFiles())
    layer = OpenedFiles(PlainFiles(), opened)
    assert layer.look(str(path)).kind is Kind.FILE and layer.read(str(path)) == b"one\ntwo\n"
    apply_patch(f"*** Begin Patch\n*** Update File: {path}\n@@\n-two\n+2\n*** End Patch", str(tmp_path), layer)
    assert path.read_text() == "one\n2\n"


async def test_files_see_it_by_every_way_and_tell_what_was_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("saved")
    editor = Editor(**{str(path): "held"})
    files = Files(PlainFiles(), str(tmp_path), buffers=editor)
    seeing = await files.seeing(["a"])
    with seeing.open("a") as file:
        assert file.readall() == b"held"
    assert await seeing.read_text("a") == "held" and await files.read_text("a") == "saved"
    assert await seeing.is_still_seen(PlainFiles())
    editor.held[str(path)] = "typed on"
    assert not await seeing.is_still_seen(PlainFiles())
    told = await save([(str(path), b"x"), ("/refused", b"y"), ("/binary", b"\xff")], editor)
    assert editor.held[str(path)] == "x" and told == ["the editor did not take what was written to /refused: no"]
