"""Files and images that input names by address: had through the guard, never by the model's server."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ferrule.egress.guard import Guard
from ferrule.responses import attachments
from ferrule.responses.attachments import Attachments
from ferrule.responses.errors import ApiError
from ferrule.store import Store
from ferrule.web.download import Downloads
from tests.web.conftest import server, web  # noqa: F401 - fixtures
from tests.web.site import SITE, Answer, Site, redirect

PIXEL = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(24)
PAPER = b"%PDF-1.7 and more"


@pytest.fixture
async def files(web: Site, tmp_path: Path) -> AsyncIterator[Attachments]:  # noqa: F811
    web.pages |= {
        "/a.png": Answer(PIXEL, "application/octet-stream"),
        "/papers/the%20paper.pdf": Answer(PAPER, "application/pdf"),
        "/odd": Answer(b"odd", "application/x-odd; charset=x"),
        "/on": redirect("/a.png"),
        "/away": redirect("http://127.0.0.1:9/a.png"),
        "/gone": Answer(b"", status=404),
    }
    async with await Store.open(tmp_path / "store.db") as store:
        downloads = Downloads(Guard(None, hosts=web.hosts), most=attachments.MAX_BYTES, seconds=10)
        yield Attachments(store, "", downloads)
        await downloads.aclose()


def message(**part: object) -> dict[str, object]:
    return {"type": "message", "content": [{"type": "input_text", "text": "x"}, part]}


async def within(files: Attachments, **part: object) -> dict[str, object]:
    found = await files.within(message(**part), "input[3]")
    shown: dict[str, object] = found["content"][1]
    return shown


def data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


async def test_what_is_at_an_address_is_sent_itself(files: Attachments) -> None:
    for path in ("/a.png", "/on"):
        image = await within(files, type="input_image", detail="low", image_url=SITE + path)
        assert image == {"type": "input_image", "detail": "low", "image_url": data_url("image/png", PIXEL)}
    paper = await within(files, type="input_file", file_url=f"{SITE}/papers/the%20paper.pdf")
    assert paper == {
        "type": "input_file",
        "file_data": data_url("application/pdf", PAPER),
        "filename": "the paper.pdf",
    }
    odd = await within(files, type="input_file", file_url=f"{SITE}/odd", filename="named.bin")
    assert (odd["file_data"], odd["filename"]) == (data_url("application/x-odd", b"odd"), "named.bin")
    inline = {"type": "input_image", "image_url": data_url("image/png", PIXEL)}
    assert await within(files, **inline) == inline


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("http://127.0.0.1/a.png", 403),
        ("http://169.254.169.254/latest/meta-data", 403),
        ("http://localhost/a.png", 403),
        ("http://[::1]/a.png", 403),
        (f"{SITE}/away", 403),
        (f"{SITE}/gone", 400),
        ("file:///etc/passwd", 400),
        ("http://user:word@brix.example/a.png", 400),
    ],
)
async def test_what_must_not_be_reached_is_an_error_with_its_field(files: Attachments, url: str, status: int) -> None:
    for kind, field in (("input_image", "image_url"), ("input_file", "file_url")):
        with pytest.raises(ApiError) as raised:
            await within(files, type=kind, **{field: url})
        assert (raised.value.status, raised.value.param) == (status, f"input[3].content[1].{field}")


async def test_what_is_no_image_and_what_is_too_large_is_refused(
    files: Attachments, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ApiError, match="is no image"):
        await within(files, type="input_image", image_url=f"{SITE}/odd")
    monkeypatch.setattr(attachments, "MAX_BYTES", 20)
    with pytest.raises(ApiError, match="at most 20 can be"):
        await within(files, type="input_file", file_url=f"{SITE}/a.png")
