"""Images by a program: what it is told, what it may do, and what becomes of a bad one."""

import json
import logging
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from ferrule.image_generation.backend import ImageFailed, ImageRequest
from ferrule.image_generation.maker import ImageMaker
from ferrule.image_generation.opening import open_maker
from ferrule.protocol.image_settings import ImageGenerationSettings
from ferrule.sandbox.alone import confined_to_a_folder
from tests.image_generation.painter import drawn

PROGRAM = str(Path(__file__).with_name("program.py"))


def program(home: Path, seconds: float = 30.0, *argv: str) -> ImageMaker:
    command = argv or (sys.executable, PROGRAM)
    settings = ImageGenerationSettings(command=command, timeout_sec=seconds)
    return open_maker(settings, confined_to_a_folder(str(home)))


async def test_a_program_reads_json_and_writes_a_file(tmp_path: Path) -> None:
    maker = program(tmp_path)
    made = await maker.make(ImageRequest(prompt="x", model="m", quality="low", output_format="webp"))
    assert (made.picture.size, made.picture.format) == ("30x40", "webp")
    source, mask = drawn("red", "20x10"), drawn("black", "20x10")
    edited = await maker.make(ImageRequest(prompt="x", image=source, mask=mask, partial_images=3))
    assert edited.picture.size == "10x20"
    assert not [name for name in os.listdir("/tmp") if name.startswith("ferrule-image-")]


async def test_a_program_that_makes_no_image_is_told_in_one_sentence(tmp_path: Path) -> None:
    maker = program(tmp_path)
    for prompt, words in (
        ("fail", "ended with the code 1."),
        ("nothing", "wrote no image."),
        ("words", "cannot be used: it is no PNG"),
        ("link", "leads out of"),
        ("pipe", "is a named pipe, not a file"),
    ):
        with pytest.raises(ImageFailed, match=words):
            await maker.make(ImageRequest(prompt=prompt))
    with pytest.raises(ImageFailed, match=r"did not end within 0.2 seconds"):
        await program(tmp_path, 0.2).make(ImageRequest(prompt="slow"))
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
