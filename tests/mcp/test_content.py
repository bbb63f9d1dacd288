"""What the model reads of a result."""

from base64 import b64encode, encodebytes, urlsafe_b64encode
from typing import Any

import pytest

from ferrule.mcp.content import EMPTY, ERROR_MARK, MAX_IMAGE_BYTES, parts_of
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.json_text import JsonValue

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200, 256)) * 2
PIXEL = b64encode(PNG).decode()


def texts(result: dict[str, JsonValue]) -> list[str]:
    return [part.text for part in parts_of(result) if isinstance(part, InputText)]


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def test_b115_every_kind_of_content_reaches_the_model_in_its_own_form() -> None:
    audio = b64encode(b"sound" * 100).decode()
    result = {
        "content": [
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "f:///a.txt", "text": "hi"}},
            {"type": "resource_link", "uri": "x://y", "name": "y", "mimeType": "text/csv"},
            {"type": "audio", "data": audio, "mimeType": "audio/wav"},
            {"type": "future", "data": audio},
            {"type": "resource", "resource": {"uri": "f:///b.bin", "blob": audio, "mimeType": "application/zip"}},
            {"type": "resource", "resource": {"uri": "f:///c.png", "blob": PIXEL, "mimeType": "image/png"}},
            "no block",
        ]
    }
    parts = parts_of(result)
    image = InputImage(image_url=f"data:image/png;base64,{PIXEL}")
    assert [part for part in parts if isinstance(part, InputImage)] == [image, image]
    said = texts(result)
    assert said[0] == "hi"
    assert said[1] == "[resource x://y: y, text/csv]"
    assert [len(note.splitlines()) for note in said] == [1] * len(said)
    assert "audio/wav" in said[2]
    assert "future" in said[3]
    assert "application/zip" in said[4]
    assert not any(audio[:40] in note for note in said)


@pytest.mark.parametrize(
    ("data", "kind", "why"),
    [
        ("A" * (MAX_IMAGE_BYTES * 4 // 3 + 8), "image/png", "larger than"),
        ("not base64!", "image/png", "not base64"),
        (b64encode(b"II*\0 tiff").decode(), "image/tiff", "image/tiff"),
        (b64encode(b"<svg/>").decode(), "image/png", "its bytes are none of these"),
    ],
)
def test_b115_an_image_that_no_provider_takes_is_a_note(data: str, kind: str, why: str) -> None:
    (note,) = texts({"content": [{"type": "image", "data": data, "mimeType": kind}]})
    assert why in note
    assert len(note) < 200


@pytest.mark.parametrize(
    "result",
    [
        {"content": [], "structuredContent": {"n": 1}},
        {"content": [text('{"n": 1}')], "structuredContent": {"n": 1}},
        {"content": [text('{"n":1}'), text("Done.")], "structuredContent": {"n": 1}},
        {"content": [{"type": "future"}], "structuredContent": {"n": 1}},
        {"structuredContent": {"n": 1}},
        {"content": None, "structuredContent": {"n": 1}},
    ],
)
def test_b116_structured_content_is_said_exactly_once(result: dict[str, Any]) -> None:
    said = "".join(texts(result)).replace(" ", "")
    assert said.count('{"n":1}') == 1


@pytest.mark.parametrize(
    ("content", "structured"),
    [
        ([text("3")], {"result": 3}),
        ([text("three")], {"result": "three"}),
        ([text('{"a": 1}'), text('{"a": 2}')], {"result": [{"a": 1}, {"a": 2}]}),
        ([text("x"), text("y")], {"result": ["x", "y"]}),
        ([text('["x", "y"]')], {"result": ["x", "y"]}),
    ],
)
def test_b116_a_wrapped_value_is_not_said_again(content: list[Any], structured: dict[str, Any]) -> None:
    said = texts({"content": content, "structuredContent": structured})
    assert said == [block["text"] for block in content]


BLOCKS = [{"type": "image", "data": PIXEL, "mimeType": "image/png"}, text("a")]


@pytest.mark.parametrize(
    ("content", "structured"),
    [
        ([text('{\n  "b": [1.0, {"c": "\\u00e9"}],\n  "a": null\n}')], {"a": None, "b": [1, {"c": "é"}]}),
        ([text('```json\n{"a": [1]}\n```')], {"a": [1]}),
        ([text('Here it is: {"a": {"b": 1}}. {brace}')], {"a": {"b": 1}}),
        ([text('"{\\"a\\": 1}"')], {"a": 1}),
        ([{"type": "resource", "resource": {"uri": "x:y", "text": '{"a": 1}'}}], {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        (text('{"a": 1}'), {"a": 1}),
    ],
)
def test_m054_content_that_says_it_in_another_way_is_read_alone(content: Any, structured: dict[str, Any]) -> None:
    assert parts_of({"content": content, "structuredContent": structured}) == parts_of({"content": content})


@pytest.mark.parametrize("wrap", [{"annotations": None, "_meta": None}, {}])
def test_m054_mirrored_content_blocks_are_not_pasted_as_base64(wrap: dict[str, Any]) -> None:
    mirrored = {"result": [{**block, **wrap} for block in BLOCKS]}
    assert parts_of({"content": BLOCKS, "structuredContent": mirrored}) == parts_of({"content": BLOCKS})


@pytest.mark.parametrize(
    ("content", "structured", "said"),
    [
        ([], {"result": []}, ['{"result":[]}']),
        ([text("1")], {"result": True}, ["1", '{"result":true}']),
        ([text('{"n": 1}')], {"n": 1, "m": 2}, ['{"n": 1}', '{"n":1,"m":2}']),
        ([text("It is warm.")], {"t": 22}, ["It is warm.", '{"t":22}']),
    ],
)
def test_m054_what_the_content_does_not_say_is_added(content: Any, structured: Any, said: list[str]) -> None:
    assert texts({"content": content, "structuredContent": structured}) == said


JPEG, GIF, WEBP = b"\xff\xd8\xff\xe0" + b"\1" * 80, b"GIF89a" + b"\2" * 80, b"RIFF\1\1\1\1WEBP" + b"\3" * 80


@pytest.mark.parametrize("said", ["image/png", "image/jpeg", "image/jpg", "image/x-png", "application/octet-stream"])
@pytest.mark.parametrize(
    ("data", "kind"),
    [(PNG, "image/png"), (JPEG, "image/jpeg"), (GIF, "image/gif"), (WEBP, "image/webp")],
    ids=["png", "jpeg", "gif", "webp"],
)
def test_m053_the_type_of_an_image_is_that_of_its_bytes(said: str, data: bytes, kind: str) -> None:
    image = InputImage(image_url=f"data:{kind};base64,{b64encode(data).decode()}")
    plain = b64encode(data).decode()
    for written in (
        plain, encodebytes(data).decode(), encodebytes(data).decode().replace("\n", "\r\n"), plain.rstrip("="),
        urlsafe_b64encode(data).decode(), f"data:{said};base64,{plain}", f" {plain} ",
    ):  # fmt: skip
        assert parts_of({"content": [{"type": "image", "data": written, "mimeType": said}]}) == (image,)
    blob = {"uri": "x:y", "blob": plain, "mimeType": said}
    assert parts_of({"content": [{"type": "resource", "resource": blob}]}) == (image,)


@pytest.mark.parametrize("data", ["", "\n", "data:image/png;base64,"])
def test_m053_an_image_without_data_is_a_note(data: str) -> None:
    (note,) = texts({"content": [{"type": "image", "data": data, "mimeType": "image/png"}]})
    assert note == "[image (image/png) without any data, left out]"


def test_m055_errors_are_marked_and_nothing_is_empty() -> None:
    assert texts({"content": [text("no such file")], "isError": True}) == [ERROR_MARK, "no such file"]
    assert texts({"content": []}) == [EMPTY]
    assert texts({"content": [text("")]}) == [EMPTY]
    assert texts({"content": [], "isError": True}) == [ERROR_MARK, EMPTY]


def test_text_that_utf8_cannot_carry_is_mended() -> None:
    assert texts({"content": [text("a\ud800b")]}) == ["a\ufffdb"]
