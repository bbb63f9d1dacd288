"""What the model reads of a result."""

import base64
from typing import Any

import pytest

from ferrule.mcp.content import EMPTY, ERROR_MARK, MAX_IMAGE_BYTES, parts_of
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.json_text import JsonValue

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()


def texts(result: dict[str, JsonValue]) -> list[str]:
    return [part.text for part in parts_of(result) if isinstance(part, InputText)]


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def test_b115_every_kind_of_content_reaches_the_model_in_its_own_form() -> None:
    audio = base64.b64encode(b"sound" * 100).decode()
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
        (PIXEL, "image/tiff", "cannot see"),
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


def test_b116_what_differs_is_said_in_both_forms() -> None:
    assert texts({"content": [text("It is warm.")], "structuredContent": {"t": 22}}) == ["It is warm.", '{"t":22}']


def test_errors_are_marked_and_nothing_is_empty() -> None:
    assert texts({"content": [text("no such file")], "isError": True}) == [ERROR_MARK, "no such file"]
    assert texts({"content": []}) == [EMPTY]
    assert texts({"content": [text("")]}) == [EMPTY]


def test_text_that_utf8_cannot_carry_is_mended() -> None:
    assert texts({"content": [text("a\ud800b")]}) == ["a\ufffdb"]
