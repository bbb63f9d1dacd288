"""Images by a server: what it is asked, what comes of its answers, and what becomes of bad ones."""

import asyncio
import io
import json
import struct
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from PIL import Image

from ferrule.image_generation.backend import ImageFailed, ImageRequest
from ferrule.image_generation.maker import ImageMaker
from ferrule.image_generation.opening import open_maker
from ferrule.image_generation.picture import Picture, fitting
from ferrule.images import read_header
from ferrule.protocol.errors import UsageError
from ferrule.protocol.image_settings import ImageGenerationSettings
from tests.image_generation.painter import Asked, Painter, Reply, colour_at, drawn, in_json, refusal
from tests.processes import DEADLINE

KEY = "sk-of-the-server"


async def no_program(folder: str) -> Any:
    raise AssertionError("there is no program")


def made_by(server: Painter, **table: Any) -> ImageMaker:
    settings = ImageGenerationSettings(base_url=server.base_url, env_key="IMAGES_KEY", **table)
    return open_maker(settings, no_program, env={"IMAGES_KEY": KEY})


@pytest.fixture
async def maker(paints: Painter) -> AsyncIterator[ImageMaker]:
    made = made_by(paints, timeout_sec=5.0)
    yield made
    await made.aclose()


def png(width: int, height: int) -> bytes:
    """The beginning of a PNG of this size."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))


def gif_of(edge: int) -> bytes:
    """A GIF of one pixel whose picture is larger."""
    out = io.BytesIO()
    Image.new("P", (1, 1)).save(out, "GIF")
    head, _, rest = out.getvalue().rpartition(b"\x2c")
    return head + b"\x2c" + rest[:4] + struct.pack("<HH", edge, edge) + rest[8:]


async def test_an_image_is_made_with_what_was_chosen(maker: ImageMaker, paints: Painter) -> None:
    made = await maker.make(ImageRequest(prompt="a red wall"))
    assert (made.picture.size, made.picture.format, made.quality) == ("64x48", "png", "high")
    assert colour_at(made.picture.data, 1, 1) == (255, 0, 0)
    request = ImageRequest(
        prompt="green", model="sd", size="32x16", quality="low", background="opaque", output_format="webp",
        output_compression=80, moderation="auto", input_fidelity="high",
    )  # fmt: skip
    assert (await maker.make(request)).picture.size == "32x16"
    assert [asked.path for asked in paints.asked] == ["/v1/images/generations"] * 2
    assert {asked.key for asked in paints.asked} == {f"Bearer {KEY}"}
    assert paints.asked[0].fields == {"prompt": "a red wall", "response_format": "b64_json"}
    assert paints.asked[1].fields == {
        "prompt": "green", "model": "sd", "size": "32x16", "quality": "low", "background": "opaque",
        "output_format": "webp", "output_compression": 80, "response_format": "b64_json",
    }  # fmt: skip


async def test_names_of_models_are_mapped_and_others_passed_on(paints: Painter) -> None:
    maker = made_by(paints, model="usual", models={"gpt-image-1": "flux"})
    for model in ("gpt-image-1", "gpt-image-1.5", "dall-e-3", None):
        await maker.make(ImageRequest(prompt="x", model=model, quality="high", size="64x48"))
    await maker.aclose()
    assert [asked.fields["model"] for asked in paints.asked] == ["flux", "gpt-image-1.5", "dall-e-3", "usual"]
    assert ["response_format" in asked.fields for asked in paints.asked] == [True, False, True, True]
    assert ["quality" in asked.fields for asked in paints.asked] == [True, True, False, True]


async def test_an_image_is_edited_with_its_mask(maker: ImageMaker, paints: Painter) -> None:
    source, mask = drawn("white", "40x20", "webp"), drawn("black", "40x20")
    request = ImageRequest(prompt="blue", image=source, mask=mask, input_fidelity="high", partial_images=1)
    seen: list[Picture] = []
    made = await maker.make(request, seen.append)
    assert [colour_at(made.picture.data, x, 5) for x in (5, 35)] == [(0, 0, 255), (255, 255, 255)]
    (asked,) = paints.asked
    assert asked.path == "/v1/images/edits" and asked.files == {"image": source, "mask": mask}
    assert asked.fields == {
        "prompt": "blue", "input_fidelity": "high", "response_format": "b64_json", "stream": "true",
        "partial_images": "1",
    }  # fmt: skip
    assert [picture.size for picture in seen] == ["8x8"]


async def test_images_on_the_way_are_as_many_as_were_wanted(maker: ImageMaker, paints: Painter) -> None:
    def many(asked: Asked) -> Reply:
        more = Asked(asked.path, None, {**asked.fields, "partial_images": 5}, {})
        reply = paints.streamed(more, paints.drawn(asked))
        damaged = json.dumps({"type": "image_generation.partial_image", "b64_json": "aGVsbG8="}).encode()
        return Reply([b": hello\n\n", b"data: " + damaged + b"\n\n", *reply.pieces], reply.type)

    paints.answer = many
    seen: list[Picture] = []
    made = await maker.make(ImageRequest(prompt="red", partial_images=2), seen.append)
    assert [(picture.size, picture.format) for picture in seen] == [("8x8", "png")] * 2
    assert colour_at(made.picture.data, 1, 1) == (255, 0, 0)


@pytest.mark.parametrize("refused", [("stream", "response_format"), ("partial_images",), ("response_format",), ()])
async def test_a_server_is_asked_again_without_what_it_refuses(
    maker: ImageMaker, paints: Painter, refused: tuple[str, ...]
) -> None:
    def plain(asked: Asked) -> Reply:
        for name in refused:
            if name in asked.fields:
                return refusal(400, f"Unknown parameter: '{name}'.")
        return in_json(drawn("red"))  # it knows no streams

    paints.answer = plain
    seen: list[Picture] = []
    assert (await maker.make(ImageRequest(prompt="red", partial_images=3), seen.append)).picture.size == "64x48"
    assert len(paints.asked) == 1 + len(refused) and seen == []
    paints.answer = lambda asked: refusal(400, "The stream of words is not allowed.")
    with pytest.raises(ImageFailed, match="not allowed"):
        await maker.make(ImageRequest(prompt="red"))


@pytest.mark.parametrize(("sent", "wanted"), [("png", "jpeg"), ("jpeg", "webp"), ("webp", "png"), ("gif", "png")])
async def test_another_format_than_was_wanted_is_written_anew(
    maker: ImageMaker, paints: Painter, sent: str, wanted: Any
) -> None:
    paints.answer = lambda asked: in_json(drawn("red", form=sent))
    picture = (await maker.make(ImageRequest(prompt="x", output_format=wanted))).picture
    header = read_header(picture.data)
    assert header is not None and header.mime == f"image/{wanted}" == picture.mime
    assert colour_at(picture.data, 3, 3)[0] > 250


def test_what_was_transparent_is_white_in_a_jpeg() -> None:
    assert colour_at(fitting(drawn("#00000000"), "jpeg").data, 1, 1) == (255, 255, 255)


async def test_an_image_at_the_servers_own_address_is_fetched(maker: ImageMaker, paints: Painter) -> None:
    paints.pages["/made/1.png"] = Reply([drawn("blue")], "image/png")
    url = f"{paints.base_url.removesuffix('/v1')}/made/1.png"
    for address in (url, "/made/1.png", f"data:image/png;base64,{b64encode(drawn('blue')).decode()}"):
        paints.answer = lambda asked, address=address: Reply([json.dumps({"data": [{"url": address}]}).encode()])
        assert colour_at((await maker.make(ImageRequest(prompt="x"))).picture.data, 1, 1) == (0, 0, 255)


def of(*pieces: bytes, status: int = 200, kind: str = "application/json") -> Callable[[Asked], Reply]:
    return lambda asked: Reply(pieces, kind, status)


def streamed(event: object) -> Callable[[Asked], Reply]:
    return of(f"data: {json.dumps(event)}\n\n".encode(), kind="text/event-stream")


BAD: list[tuple[Callable[[Asked], Reply], str]] = [
    (of(b"<html>", kind="text/html"), "did not answer as the Images API does"),
    (of(b'{"data": [7]}'), "did not answer as the Images API does"),
    (of(b'{"data": [{"b64_json": 7}]}'), "did not answer as the Images API does"),
    (of(b"[" * 100_000), "did not answer as the Images API does"),
    (of(b"{}"), "sent no image"),
    (of(b'{"data": []}'), "sent no image"),
    (of(b'{"data": [{"b64_json": ""}]}'), "sent no image"),
    (of(b'{"data": [{"b64_json": "%%%"}]}'), "sent no image"),
    (of(b'{"data": [{"url": "http://169.254.169.254/latest"}]}'), "at another address than its own"),
    (of(b'{"data": [{"url": "file:///etc/passwd"}]}'), "at another address than its own"),
    (of(b'{"data": [{"url": "/gone.png"}]}'), r"does not hand out its image \(status 404\)"),
    (lambda asked: in_json(b"hello"), "cannot be used: it is no PNG, WebP, JPEG or GIF"),
    (lambda asked: in_json(drawn()[:60]), "cannot be used: it is damaged"),
    (lambda asked: in_json(png(10_000, 10_000)), "cannot be used: it has 100 megapixels, more than 33"),
    (lambda asked: refusal(401, f"Incorrect API key provided: {KEY}"), "does not accept the key in IMAGES_KEY"),
    (lambda asked: refusal(400, f"Unsafe. {KEY}", "moderation_blocked"), r"\(status 400\): Unsafe. \*\*\*$"),
    (of(b"no", status=404), "has no /images/generations: image_generation.base_url goes up to and with its /v1"),
    (lambda asked: refusal(404, "model 'x' not found"), "model 'x' not found"),
    (lambda asked: refusal(429, "slow down"), "wants fewer requests"),
    (of(b"Traceback: secret", status=500), "answered with the status 500.$"),
    (of(b"", status=302), r"sends elsewhere \(status 302\): image_generation.base_url names its place"),
    (of(b'{"data": [{"url": "http://127.0.0.1:none/1.png"}]}'), "at another address than its own"),
    (of(b'{"data": [{"url": "http://127.0.0.1:99999/1.png"}]}'), "at another address than its own"),
    (of(b'{"data": [{"url": "http://[::1/1.png"}]}'), "names an image at no address"),
    (lambda asked: in_json(gif_of(7_000)), "cannot be used: it has 49 megapixels, more than 33"),
    (lambda asked: in_json(gif_of(20_000)), "cannot be used: it has far too many pixels"),
    (streamed({"type": "error", "error": {"message": "boom", "code": "server_error"}}), "failed on the way: boom"),
    (streamed({"error": "cut"}), "failed on the way.$"),
    (streamed({"type": "image_generation.partial_image", "b64_json": "aGVsbG8="}), "sent no image"),
    (of(b"data: [DONE]\n\n", kind="text/event-stream"), "sent no image"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
async def test_a_bad_answer_is_told_in_one_sentence(maker: ImageMaker, paints: Painter, number: int) -> None:
    paints.answer, words = BAD[number]
    with pytest.raises(ImageFailed, match=words) as failed:
        await maker.make(ImageRequest(prompt="x", output_format="webp", partial_images=2))
    text = str(failed.value)
    assert KEY not in text and "secret" not in text and "127.0.0.1" not in text and "169.254" not in text
    assert failed.value.code == (
        "moderation_blocked" if "Unsafe" in text else "server_error" if "boom" in text else None
    )


async def test_what_has_no_end_is_cut(maker: ImageMaker, paints: Painter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.image_generation.server.MAX_ANSWER", 1000)
    monkeypatch.setattr("ferrule.image_generation.server.MAX_STREAM", 1000)
    for kind in ("application/json", "text/event-stream"):
        paints.answer = of(b": wait\n\n" * 1000, kind=kind)
        with pytest.raises(ImageFailed, match="answered with more than"):
            await maker.make(ImageRequest(prompt="x"))


async def test_a_server_that_hangs_or_is_not_there_is_left(paints: Painter) -> None:
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    def hang(asked: Asked) -> Reply:
        loop.call_soon_threadsafe(begun.set)
        paints.held.wait()
        return in_json(drawn())

    paints.answer = hang
    slow = made_by(paints, timeout_sec=0.2)
    with pytest.raises(ImageFailed, match=r"did not send an image within 0.2 seconds"):
        await slow.make(ImageRequest(prompt="x"))
    begun.clear()
    patient = made_by(paints)
    waiting = asyncio.create_task(patient.make(ImageRequest(prompt="x")))
    await asyncio.wait_for(begun.wait(), DEADLINE)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await patient.aclose()
    await slow.aclose()
    nobody = open_maker(ImageGenerationSettings(base_url="http://127.0.0.1:9/v1"), no_program)
    with pytest.raises(ImageFailed, match="cannot be reached"):
        await nobody.make(ImageRequest(prompt="x"))
    await nobody.aclose()


async def test_images_that_are_given_are_checked_before_they_are_sent(maker: ImageMaker, paints: Painter) -> None:
    for field, words in (("image", "The image to edit"), ("mask", "The mask")):
        images: Any = {"image": drawn(), field: png(10_000, 10_000)}
        request = ImageRequest(prompt="x", **images)
        with pytest.raises(ImageFailed, match=f"{words} cannot be used: it has 100 megapixels"):
            await maker.make(request)
    assert paints.asked == []


def test_settings_that_are_wrong_are_named() -> None:
    missing = [
        (ImageGenerationSettings(), "image_generation.base_url is missing"),
        (ImageGenerationSettings(base_url="http://x/v1", command=("a",)), "exclude each other"),
        (ImageGenerationSettings(base_url="http://x/v1", env_key="NO_KEY"), "NO_KEY"),
    ]
    for settings, words in missing:
        assert words in str(settings.missing({}))
    assert ImageGenerationSettings(command=("a",)).missing({}) is None
    for url in ("localhost:1", "http://", "http://[::1", "http://127.0.0.1:99999/v1", "http://127.0.0.1:one/v1"):
        with pytest.raises(UsageError, match="has to begin with http"):
            open_maker(ImageGenerationSettings(base_url=url), no_program)


async def test_a_server_on_this_machine_is_asked_without_a_proxy(
    paints: Painter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    maker = made_by(paints)
    assert (await maker.make(ImageRequest(prompt="x"))).picture.size == "64x48"
    await maker.aclose()
    monkeypatch.setenv("ALL_PROXY", "what://127.0.0.1:9")
    elsewhere = open_maker(ImageGenerationSettings(base_url="http://images.example/v1"), no_program)
    with pytest.raises(ImageFailed, match="cannot be asked with the proxy"):
        await elsewhere.make(ImageRequest(prompt="x"))


async def test_what_a_server_says_of_an_image_may_be_anything(maker: ImageMaker, paints: Painter) -> None:
    paints.answer = lambda asked: in_json(drawn(), size=[64, 48], quality=7, background={})
    made = await maker.make(ImageRequest(prompt="x"))
    assert (made.quality, made.background, made.revised_prompt) == (None, None, None)
