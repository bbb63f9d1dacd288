"""Files and uploads, by the SDK and by plain requests."""

import hashlib
import io
import os
from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI

from tests.gateway.served import Served

BOUNDARY = "x" * 20


@pytest.fixture(scope="module")
def client(gateway: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as made:
        yield made


def form(*parts: tuple[str, str, bytes]) -> bytes:
    """A form of fields: name, further attributes, content."""
    pieces = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content + b"\r\n"
        for name, more, content in parts
    ]
    return b"".join(pieces) + f"--{BOUNDARY}--\r\n".encode()


FORM_TYPE = "multipart/form-data"
FORM = {"content-type": f"{FORM_TYPE}; boundary={BOUNDARY}"}
PURPOSE = ("purpose", "", b"user_data")


def test_a_file_is_kept_listed_read_and_deleted(client: OpenAI) -> None:
    data = os.urandom(3 << 20)
    made = client.files.create(
        file=("../../täst.bin", io.BytesIO(data)), purpose="user_data",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )  # fmt: skip
    assert (made.bytes, made.filename, made.object, made.status) == (len(data), "täst.bin", "file", "processed")
    assert made.expires_at == made.created_at + 3600
    assert client.files.retrieve(made.id) == made
    assert client.files.content(made.id).read() == data
    assert made.id in [file.id for file in client.files.list(purpose="user_data")]
    assert made.id not in [file.id for file in client.files.list(purpose="vision")]
    gone = client.files.delete(made.id)
    assert (gone.id, gone.deleted) == (made.id, True)
    with pytest.raises(openai.NotFoundError):
        client.files.content(made.id)


def test_files_come_in_pages(client: OpenAI) -> None:
    made = [client.files.create(file=(f"{number}", b"x"), purpose="batch").id for number in range(3)]
    page = client.files.list(purpose="batch", limit=2, order="asc", after=made[0])
    assert [file.id for file in page.data] == made[1:] and not page.has_more
    page = client.files.list(purpose="batch", limit=2)
    assert [file.id for file in page.data] == made[:0:-1] and page.has_more


def test_the_purpose_may_follow_the_file(gateway: Served) -> None:
    body = form(("file", '; filename="a.txt"', b"hello"), PURPOSE)
    answer = gateway.ask("POST", "/files", body, headers=FORM)
    assert answer.status == 200 and answer.json["bytes"] == 5
    assert gateway.ask("GET", f"/files/{answer.json['id']}/content").body == b"hello"


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (form(PURPOSE), 400, "file"),
        (form(("file", "", b"text"), PURPOSE), 400, "file"),
        (form(("file", '; filename="a"', b"x")), 400, "purpose"),
        (form(("file", '; filename="a"', b"x"), ("purpose", "", b"fun")), 400, "purpose"),
        (form(("file", '; filename="a"', b"x"), PURPOSE, ("big", "", b"x" * 70_000)), 400, None),
        (b"no form at all", 400, None),
        (b"", 400, None),
    ],
)
def test_a_form_that_does_not_fit(gateway: Served, body: bytes, status: int, param: str | None) -> None:
    answer = gateway.ask("POST", "/files", body, headers=FORM)
    assert answer.status == status, answer.body
    if param is not None:
        assert answer.error["param"] == param


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (b"../../etc/passwd", "passwd"),
        (b"C:\\dir\\a.txt", "a.txt"),
        (b"..", "file"),
        (b"x/.. ", "file"),
        (b"", "file"),
        (b"a\x00\x1bb", "ab"),
        (b"\xff\xfe", "\xff\xfe"),
        (b"x" * 3000, "x" * 512),
    ],
)
def test_a_hostile_name_is_no_path(gateway: Served, given: bytes, shown: str) -> None:
    body = form(("file", '; filename="NAME"', b"hello"), PURPOSE).replace(b"NAME", given)
    made = gateway.ask("POST", "/files", body, headers=FORM).json
    assert made["filename"] == shown
    answer = gateway.ask("GET", f"/files/{made['id']}/content")
    assert answer.body == b"hello" and answer.headers["content-disposition"].startswith("attachment;")


ANCHOR = ("expires_after[anchor]", "", b"created_at")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ([ANCHOR], "expires_after.seconds"),
        ([ANCHOR, ("expires_after[seconds]", "", b"0")], "expires_after.seconds"),
        ([ANCHOR, ("expires_after[seconds]", "", b"2592001")], "expires_after.seconds"),
        ([ANCHOR, ("expires_after[seconds]", "", b"an hour")], "expires_after.seconds"),
        ([("expires_after[seconds]", "", b"3600")], "expires_after.anchor"),
        ([("expires_after[anchor]", "", b"now"), ("expires_after[seconds]", "", b"3600")], "expires_after.anchor"),
        ([("expires_after", "", b'{"anchor":"created_at","seconds":3600}')], "expires_after"),
    ],
)
def test_a_time_that_cannot_be(gateway: Served, fields: list[tuple[str, str, bytes]], param: str) -> None:
    body = form(("file", '; filename="a"', b"x"), PURPOSE, *fields)
    answer = gateway.ask("POST", "/files", body, headers=FORM)
    assert (answer.status, answer.error["param"]) == (400, param), answer.body


def test_how_long_files_are_kept(client: OpenAI) -> None:
    batch = client.files.create(file=("a", b"x"), purpose="batch")
    assert batch.expires_at == batch.created_at + 30 * 86_400
    expiry = {"anchor": "created_at", "seconds": 2_592_000}
    for purpose in ("user_data", "batch"):
        upload = client.uploads.create(
            bytes=1, filename="a", mime_type="text/plain", purpose=purpose, expires_after=expiry,  # type: ignore[arg-type]
        )  # fmt: skip
        part = client.uploads.parts.create(upload.id, data=b"x")
        file = client.uploads.complete(upload.id, part_ids=[part.id]).file
        assert file is not None and file.expires_at == file.created_at + 2_592_000


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("expires_after", {"anchor": "created_at", "seconds": 0}, "expires_after.seconds"),
        ("expires_after", {"anchor": "created_at", "seconds": "3600"}, "expires_after.seconds"),
        ("expires_after", {"anchor": "created_at", "seconds": True}, "expires_after.seconds"),
        ("expires_after", {"anchor": "last_active_at", "seconds": 3600}, "expires_after.anchor"),
        ("expires_after", {"seconds": 3600}, "expires_after.anchor"),
        ("expires_after", 3600, "expires_after"),
        ("bytes", -1, "bytes"),
        ("mime_type", "x" * 256, "mime_type"),
        ("purpose", "fun", "purpose"),
        ("filename", 1, "filename"),
    ],
)
def test_an_upload_that_does_not_fit(gateway: Served, field: str, value: object, param: str) -> None:
    fields = {"bytes": 1, "filename": "a", "mime_type": "text/plain", "purpose": "vision"}
    answer = gateway.ask("POST", "/uploads", fields | {field: value})
    assert (answer.status, answer.error["param"]) == (400, param), answer.body


def test_what_is_no_form_is_said_to_be_none(gateway: Served) -> None:
    answer = gateway.ask("POST", "/files", {"file": "x"})
    assert answer.status == 415 and "multipart/form-data" in answer.error["message"]
    for boundary in ("", "; boundary=", f"; boundary={'x' * 300}"):
        assert gateway.ask("POST", "/files", b"x", headers={"content-type": FORM_TYPE + boundary}).status == 400


def test_a_file_comes_in_parts(client: OpenAI) -> None:
    data = os.urandom(1 << 20)
    upload = client.uploads.create(bytes=len(data), filename="a.bin", mime_type="text/plain", purpose="user_data")
    assert upload.status == "pending" and upload.expires_at == upload.created_at + 3600
    half = len(data) // 2
    parts = [client.uploads.parts.create(upload.id, data=piece) for piece in (data[half:], data[:half])]
    done = client.uploads.complete(
        upload.id, part_ids=[parts[1].id, parts[0].id], md5=hashlib.md5(data, usedforsecurity=False).hexdigest()
    )
    assert done.status == "completed" and done.file is not None and done.file.bytes == len(data)
    assert client.files.content(done.file.id).read() == data
    with pytest.raises(openai.BadRequestError):
        client.uploads.parts.create(upload.id, data=b"more")


def test_an_upload_is_cancelled(client: OpenAI, gateway: Served) -> None:
    upload = client.uploads.create(bytes=5, filename="a", mime_type="text/plain", purpose="user_data")
    assert client.uploads.cancel(upload.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError):
        client.uploads.complete(upload.id, part_ids=[])
    for path in ("parts", "complete", "cancel"):
        body = form(("data", '; filename="a"', b"x")) if path == "parts" else {"part_ids": []}
        headers = FORM if path == "parts" else {}
        assert gateway.ask("POST", f"/uploads/upload_none/{path}", body, headers=headers).status == 404
