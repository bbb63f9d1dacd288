"""`view_image` as a model calls it."""

import base64
import io
import os
import socket
import struct
import sys
import time
import zlib
from pathlib import Path

import pytest
from PIL import Image

from ferrule.builtin.view_image.fitting import LONG_EDGE, MAX_BYTES, SHORT_EDGE, BadImage, fitted
from ferrule.images import read_header
from ferrule.protocol.content import InputImage
from ferrule.protocol.events import ViewImage
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.profiles import ModelProfile
from tests.builtin.conftest import Benches
from tests.builtin.states import conversation
from tests.builtin.workbench import Bench

FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


def picture(form: str = "PNG", size: tuple[int, int] = (20, 10), noise: bool = False) -> bytes:
    image = Image.frombytes("RGB", size, os.urandom(size[0] * size[1] * 3)) if noise else Image.new("RGB", size, "red")
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()


@pytest.fixture
def bench(benches: Benches, tmp_path: Path) -> Bench:
    return benches("view_image", state=conversation(tmp_path, profile=ModelProfile(name="seeing", image_input=True)))


def shown(output: ToolOutput) -> tuple[str, bytes]:
    """Media type and bytes of the one image that was answered."""
    assert output.success and isinstance(output.body, tuple)
    (part,) = output.body
    assert isinstance(part, InputImage) and part.image_url is not None
    head, _, data = part.image_url.partition(";base64,")
    return head.removeprefix("data:"), base64.b64decode(data)


@pytest.mark.parametrize("form", FORMATS)
async def test_an_image_that_fits_is_shown_as_it_is(bench: Bench, tmp_path: Path, form: str) -> None:
    data = picture(form)
    (tmp_path / "named.txt").write_bytes(data)
    output = await bench.output("view_image", path="named.txt")
    assert shown(output) == (f"image/{form.lower()}", data)
    assert bench.host.told(ViewImage)[0].path == str(tmp_path / "named.txt")


@pytest.mark.parametrize("form", FORMATS)
def test_the_header_tells_format_and_size(form: str) -> None:
    header = read_header(picture(form, (300, 77)))
    assert header == (f"image/{form.lower()}", 300, 77)


def test_webp_of_every_kind() -> None:
    for options in ({"lossless": True}, {"exact": True, "quality": 10}):
        out = io.BytesIO()
        Image.new("RGBA", (33, 44), (1, 2, 3, 4)).save(out, "WEBP", **options)
        assert read_header(out.getvalue()) == ("image/webp", 33, 44)


async def test_b146_a_huge_image_is_resized(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "huge.png").write_bytes(picture(size=(5000, 5000)))
    mime, data = shown(await bench.output("view_image", path="huge.png"))
    assert (mime, Image.open(io.BytesIO(data)).size) == ("image/png", (SHORT_EDGE, SHORT_EDGE))
    (tmp_path / "wide.png").write_bytes(picture(size=(8000, 1000)))
    assert Image.open(io.BytesIO(shown(await bench.output("view_image", path="wide.png"))[1])).size == (LONG_EDGE, 256)


async def test_b146_a_heavy_image_is_encoded_again(bench: Bench, tmp_path: Path) -> None:
    data = picture(size=(1900, 1500), noise=True)
    assert len(data) > 8_000_000
    (tmp_path / "noise.png").write_bytes(data)
    mime, smaller = shown(await bench.output("view_image", path="noise.png"))
    assert len(smaller) <= MAX_BYTES
    assert min(Image.open(io.BytesIO(smaller)).size) == SHORT_EDGE and mime in ("image/png", "image/jpeg")
    assert fitted(picture(size=(2048, 768), noise=True)).mime == "image/jpeg"


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"\x89PNG\r\n\x1a\n", picture()[:40], picture("JPEG")[:-200], b"GIF89a\0\0\0\0", b"RIFF....WEBP"],
)
async def test_b146_what_cannot_be_decoded_is_a_text(bench: Bench, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "broken.png").write_bytes(data)
    output = await bench.output("view_image", path="broken.png")
    assert output.text.startswith(f"unable to process image at `{tmp_path}/broken.png`: invalid or unsupported")
    assert output.success is False


def test_a_bomb_is_not_decoded() -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000)))
    with pytest.raises(BadImage, match="100000 x 100000 pixels are too many"):
        fitted(bomb)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("edge", [11_000, 40_000])
def test_a_gif_that_is_larger_than_it_says_is_not_decoded(edge: int) -> None:
    head, _, rest = picture("GIF", (1, 1)).rpartition(b"\x2c")
    with pytest.raises(BadImage, match=r"pixels are too many|exceeds limit"):
        fitted(head + b"\x2c" + rest[:4] + struct.pack("<HH", edge, edge) + rest[8:])


def test_an_animation_becomes_its_first_picture() -> None:
    out = io.BytesIO()
    frames = [Image.new("RGB", (10, 10), color) for color in ("red", "blue")]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])
    still = fitted(out.getvalue())
    assert still.mime == "image/png" and Image.open(io.BytesIO(still.data)).convert("RGB").getpixel((0, 0)) == (
        255,
        0,
        0,
    )


async def test_a_model_that_cannot_see_gets_a_sentence(benches: Benches, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture())
    output = await benches("view_image").output("view_image", path="a.png")
    assert output.text == "view_image is not allowed because you do not support image inputs"
    assert output.success is False


async def test_places_that_hold_no_image(bench: Bench, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10 * 2**30)
    started = time.monotonic()
    missing = "unable to locate image at `{}`: No such file or directory (os error 2)"
    for name, text in (
        ("none.png", missing),
        ("dangling", missing),
        (".", "image path `{}` is not a file"),
        ("p", "image path `{}` is not a file"),
        ("s", "image path `{}` is not a file"),
        ("sparse", "unable to process image at `{}`: the file is too large (10240 MB, at most 64 MB)"),
    ):
        path = os.path.normpath(tmp_path / name)
        assert await bench.call("view_image", path=name) == text.format(path)
    assert "unable to" in await bench.call("view_image", path="loop")
    assert await bench.call("view_image", path="/dev/zero") == "image path `/dev/zero` is not a file"
    assert time.monotonic() - started < 30
    listening.close()


async def test_without_pillow(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.png").write_bytes(small := picture())
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert shown(await bench.output("view_image", path="small.png")) == ("image/png", small)
    large = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">II", 4000, 3000) + bytes(20)
    (tmp_path / "large.png").write_bytes(large)
    text = await bench.call("view_image", path="large.png")
    assert "it is too large (4000 x 3000 pixels" in text and text.endswith(
        "install ferrule[images] to have images resized"
    )
