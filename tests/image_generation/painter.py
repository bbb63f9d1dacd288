"""A loopback server with the Images API that draws with Pillow, for tests."""

import io
import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from PIL import Image, ImageColor

from tests.http_servers import HttpServer, Silent, listening

Json = dict[str, Any]
COLOURS = ("red", "green", "blue", "yellow", "black")


class Asked(NamedTuple):
    """A request: its path, key, fields and files."""

    path: str
    key: str | None
    fields: Json
    files: Mapping[str, bytes]


class Reply(NamedTuple):
    """An HTTP answer; its pieces are sent one by one."""

    pieces: Sequence[bytes]
    type: str = "application/json"
    status: int = 200


def drawn(colour: str = "white", size: str = "64x48", form: str = "png", base: bytes | None = None) -> bytes:
    """An image all of one colour; on `base` only its left half."""
    width, height = map(int, size.split("x"))
    image = Image.new("RGBA", (width, height), colour)
    if base is not None:
        with Image.open(io.BytesIO(base)) as under:
            image = under.convert("RGBA")
        image.paste(ImageColor.getrgb(colour), (0, 0, image.width // 2, image.height))
    out = io.BytesIO()
    (image.convert("RGB") if form == "jpeg" else image).save(out, form.upper())
    return out.getvalue()


def colour_at(data: bytes, x: int, y: int) -> tuple[int, ...]:
    """The colour of a pixel, without its transparency."""
    with Image.open(io.BytesIO(data)) as image:
        found = image.convert("RGB").getpixel((x, y))
    assert isinstance(found, tuple)
    return found


def in_json(*images: bytes, **told: object) -> Reply:
    """An answer with images in base64."""
    data = [{"b64_json": b64encode(image).decode()} for image in images]
    return Reply([json.dumps({"created": 1, "data": data, **told}).encode()])


def refusal(status: int, message: str, code: str | None = None) -> Reply:
    """An error as the API has it."""
    return Reply([json.dumps({"error": {"message": message, "code": code}}).encode()], status=status)


class Painter:
    """What the server answers: a picture in the colour that the prompt names, unless `answer` says otherwise."""

    def __init__(self) -> None:
        self.base_url = ""
        self.asked: list[Asked] = []
        self.answer: Callable[[Asked], Reply] | None = None
        self.pages: dict[str, Reply] = {}
        self.held = threading.Event()
        """Set: nothing waits. An answer may wait for it."""

    def reply(self, asked: Asked) -> Reply:
        """Answer a request."""
        self.asked.append(asked)
        if self.answer is not None:
            return self.answer(asked)
        image = self.drawn(asked)
        if str(asked.fields.get("stream")).lower() == "true":
            return self.streamed(asked, image)
        return in_json(image, quality="high")

    def drawn(self, asked: Asked) -> bytes:
        """The picture that a request asks for."""
        colour = next((name for name in COLOURS if name in asked.fields["prompt"]), "white")
        size, form = asked.fields.get("size", "64x48"), asked.fields.get("output_format", "png")
        return drawn(colour, size, form, asked.files.get("image"))

    def streamed(self, asked: Asked, image: bytes) -> Reply:
        """A stream with as many pictures on the way as were asked for."""
        kind = "image_edit" if asked.files else "image_generation"
        partials: list[Json] = [
            {
                "type": f"{kind}.partial_image",
                "b64_json": b64encode(drawn("grey", "8x8")).decode(),
                "partial_image_index": index,
            }
            for index in range(int(asked.fields.get("partial_images", 0)))
        ]
        last = {"type": f"{kind}.completed", "b64_json": b64encode(image).decode(), "quality": "high"}
        pieces = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in (*partials, last)]
        return Reply(pieces, "text/event-stream")


def _read(handler: BaseHTTPRequestHandler) -> Asked:
    body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
    kind, key = handler.headers.get("content-type", ""), handler.headers.get("authorization")
    if not kind.startswith("multipart/form-data"):
        return Asked(handler.path, key, json.loads(body or b"{}"), {})
    form = message_from_bytes(f"content-type: {kind}\r\n\r\n".encode() + body)
    fields: Json = {}
    files: dict[str, bytes] = {}
    for part in form.get_payload():
        assert not isinstance(part, str)
        name = str(part.get_param("name", header="content-disposition"))
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        if part.get_filename():
            files[name] = content
        else:
            fields[name] = content.decode()
    return Asked(handler.path, key, fields, files)


@contextmanager
def painter() -> Iterator[Painter]:
    """Run a server."""
    served = Painter()

    class Handler(Silent):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self._send(served.reply(_read(self)))

        def do_GET(self) -> None:
            self._send(served.pages.get(self.path) or refusal(404, "Not found"))

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            self.send_header("content-type", reply.type)
            self.send_header("content-length", str(sum(map(len, reply.pieces))))
            self.end_headers()
            for piece in reply.pieces:
                self.wfile.write(piece)

    with listening(HttpServer(Handler)) as server:
        served.base_url = f"http://127.0.0.1:{server.server_port}/v1"
        try:
            yield served
        finally:
            served.held.set()
