"""Images by a program: what it is told, what it may do, and what becomes of a bad one."""

import asyncio
import json
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from ferrule.image_generation.backend import ImageFailed, ImageRequest
from ferrule.image_generation.folder import private_folder
from ferrule.image_generation.maker import ImageMaker
from ferrule.image_generation.opening import open_maker
from ferrule.protocol.image_settings import ImageGenerationSettings
from ferrule.sandbox.alone import confined_to_a_folder
from tests.image_generation.painter import colour_at, drawn
from tests.processes import DEADLINE

PROGRAM = str(Path(__file__).with_name("program.py"))


def program(home: Path, seconds: float = 30.0, *argv: str) -> ImageMaker:
    command = argv or (sys.executable, PROGRAM)
    settings = ImageGenerationSettings(command=command, timeout_sec=seconds)
    return open_maker(settings, confined_to_a_folder(str(home)))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of this test alone."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def test_a_program_reads_json_and_writes_a_file(tmp_path: Path, temporary: Path) -> None:
    maker = program(tmp_path)
    made = await maker.make(ImageRequest(prompt="x", model="m", quality="low", output_format="webp"))
    assert (made.picture.size, made.picture.format) == ("30x40", "webp")
    source, mask = drawn("red", "20x10"), drawn("white", "20x5")
    edited = await maker.make(ImageRequest(prompt="x", image=source, mask=mask, partial_images=3))
    assert edited.picture.size == "10x20"
    assert [colour_at(edited.picture.data, x, 3) for x in (1, 8)] == [(0, 0, 0), (255, 0, 0)]
    assert not [*temporary.iterdir()]


async def test_what_a_killed_process_left_is_removed_and_what_is_in_use_is_not(temporary: Path) -> None:
    left, link = temporary / "ferrule-image-left", temporary / "ferrule-image-link"
    left.mkdir()
    (left / "image.png").write_bytes(b"private")
    (temporary / "other").mkdir()
    link.symlink_to(temporary / "other")
    async with private_folder() as first, private_folder() as second:
        assert {path.name for path in temporary.iterdir()} == {
            *map(os.path.basename, (first, second)),
            "other",
            link.name,
        }
    assert {path.name for path in temporary.iterdir()} == {"other", link.name}


async def test_a_folder_is_removed_though_its_image_is_cancelled_twice(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    remove = shutil.rmtree

    def slowly(*args: Any, **options: Any) -> None:
        begun.set()
        may_end.wait(DEADLINE)
        remove(*args, **options)

    made = asyncio.Event()

    async def hold() -> None:
        async with private_folder():
            made.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(shutil, "rmtree", slowly)
    holding = asyncio.create_task(hold())
    await made.wait()
    holding.cancel()
    await asyncio.to_thread(begun.wait, DEADLINE)
    holding.cancel()
    for _ in range(10):  # what a cancellation takes to arrive, several times over
        await asyncio.sleep(0)
    assert not holding.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await holding
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 1", "ended with the code 1."),
        ("kill -9 $$", "ended with the code 137."),
        ("true", "wrote no image."),
        ("echo words > output.png", "cannot be used: it is no PNG"),
        ("ln -s /etc/passwd output.png", "leads out of"),
        ("mkfifo output.png", "is a named pipe, not a file"),
        ("head -c 2000 /dev/zero > output.png", "ended with the code 153."),
        ("mkdir output.png", "is a folder, not a file"),
        ("cat > /dev/null; sleep 60", "did not end within 0.2 seconds"),
    ],
)
async def test_a_program_that_makes_no_image_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr("ferrule.image_generation.command.MAX_FILE", 1000)
    maker = program(tmp_path, 0.2 if "sleep" in script else 30.0, "/bin/sh", "-c", script)
    with pytest.raises(ImageFailed, match=words):
        await maker.make(ImageRequest(prompt="x"))


async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ImageFailed, match="is not installed"):
        await program(tmp_path, 1, "no-such-program").make(ImageRequest(prompt="x"))
    with pytest.raises(ImageFailed, match=r"cannot be started|the code 12[67]"):
        await program(tmp_path, 1, str(tmp_path)).make(ImageRequest(prompt="x"))


async def test_a_program_is_confined_to_its_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, caplog.at_level(logging.WARNING, "ferrule.images"):
        prompt = f"escape {tmp_path} {listening.getsockname()[1]}"
        with pytest.raises(ImageFailed, match="the code 1"):
            await program(tmp_path / "home").make(ImageRequest(prompt=prompt))
    tried = json.loads(re.findall(r"{.*}", caplog.text)[-1])
    assert tried["write"] != "done" and tried["network"] != "done"
    assert not (tmp_path / "left.txt").exists()


async def test_without_a_place_for_its_files_there_is_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(ImageFailed, match="has no folder to work in"):
        await program(tmp_path).make(ImageRequest(prompt="x"))
