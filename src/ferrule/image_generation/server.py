"""Images by a server: `/images/generations` and `/images/edits` of the API, as many servers have them.

Its address is the user's own choice, so it is reached directly, wherever it is. Source: the Images API.
"""

import asyncio
import binascii
import logging
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
import msgspec

from ferrule.egress.http import client_of, no_cookies
from ferrule.image_generation.backend import MAX_BYTES, ImageFailed, ImageRequest, PartialTaker, Sent
from ferrule.images import read_header
from ferrule.model.sse import SseDecoder
from ferrule.model.stream import ModelError
from ferrule.protocol.errors import UsageError

log = logging.getLogger("ferrule.images")

MAX_ANSWER = MAX_BYTES * 4 // 3 + (1 << 20)
"""Bytes of an answer with one image in base64."""
MAX_STREAM = 4 * MAX_ANSWER
"""Bytes of a stream with the image and those on the way to it."""
MAX_SAID = 300
"""Characters of a server's own words that are passed on."""
CONNECT_S = 10.0
"""A server that does not take a connection by then is down."""
FIXED = ("gpt-image-", "chatgpt-image-")
"""Models that always send base64, and whose server refuses to be asked for it."""
STREAMING = frozenset({"stream", "partial_images"})
DISPENSABLE = (frozenset({"response_format"}), STREAMING)
"""Fields without which a server that refuses them is asked again."""
PORTS = {"http": 80, "https": 443}
SILENT = "dall-e-"
"""Models whose server takes no more than a prompt and a size."""
NO_PATH = "image_generation.base_url goes up to and with its /v1"
WRONG_REQUEST = (400, 403, 422)
"""Statuses whose words are about the request: what it shows or asks is not allowed."""


class ServerBackend:
    """A server. `key` is the secret, and `env_key` the variable that has it."""

    def __init__(
        self, base_url: str, *, key: str = "", env_key: str = "", timeout: float = 300.0, ca_file: str | None = None
    ) -> None:
        """Nothing is connected yet. Raises `UsageError`."""
        self._base = base_url.rstrip("/")
        self._place = _place(self._base)
        if self._place is None:
            text = f"{base_url!r} has to begin with http:// or https:// and the name of a host"
            raise UsageError(f"image_generation.base_url: {text}")
        self._key = key
        self._env_key = env_key
        self._timeout = timeout
        self._ca_file = ca_file
        self._client: httpx2.AsyncClient | None = None

    async def make(self, request: ImageRequest, partial: PartialTaker) -> Sent:
        """See `ImageBackend`."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._made(request, partial)
        except TimeoutError as error:
            raise self._failed(f"did not send an image within {self._timeout:g} seconds", error) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._failed("cannot be reached, or ended before its answer did", error) from error
        except UsageError as error:
            raise self._failed("cannot be asked with the proxy or the ca_file that are set here", error) from error

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _made(self, request: ImageRequest, partial: PartialTaker) -> Sent:
        """Ask for an image; again without what the server refuses, as far as it can be left out."""
        path, fields = _fields_of(request)
        while True:
            try:
                return await self._asked(path, _body_of(request, fields), partial)
            except _Refused as refusal:
                refused = [name for group in DISPENSABLE if refusal.is_about(group) for name in group if name in fields]
                if not refused:
                    raise
                fields = {name: value for name, value in fields.items() if name not in refused}

    async def _asked(self, path: str, body: Mapping[str, Any], partial: PartialTaker) -> Sent:
        async with self._opened.stream("POST", self._base + path, **body) as answer:
            if answer.status_code != httpx2.codes.OK:
                raise self._refusal(path, answer.status_code, await self._body(answer, MAX_ANSWER))
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                return await self._streamed(answer, partial)
            text = await self._body(answer, MAX_ANSWER)
        return await self._read(text)

    @property
    def _opened(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = client_of(
                self._base,
                ca_file=self._ca_file,
                timeout=httpx2.Timeout(self._timeout, connect=CONNECT_S),
                headers={"authorization": f"Bearer {self._key}"} if self._key else {},
                cookies=no_cookies(),
            )
        return self._client

    async def _body(self, answer: httpx2.Response, limit: int) -> bytes:
        body = bytearray()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > limit:
                raise self._failed(f"answered with more than {limit >> 20} MB", "too long")
        return bytes(body)

    async def _streamed(self, answer: httpx2.Response, partial: PartialTaker) -> Sent:
        """Read a stream up to the image."""
        decoder, size = SseDecoder(), 0
        try:
            async for piece in answer.aiter_bytes():
                size += len(piece)
                if size > MAX_STREAM:
                    raise self._failed(f"answered with more than {MAX_STREAM >> 20} MB", "too long")
                for data in decoder.feed(piece):
                    if sent := await self._event(data, partial):
                        return sent
            for data in decoder.flush():
                if sent := await self._event(data, partial):
                    return sent
        except ModelError as error:
            raise self._failed("answered with more than can be read", error) from error
        raise self._failed("sent no image", "the stream ended")

    async def _event(self, data: bytes, partial: PartialTaker) -> Sent | None:
        """Take an event of a stream. Returns the image once it is there."""
        try:
            event = msgspec.json.decode(data, type=_Event)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        if event.error is not None or event.type == "error":
            said = event.error if isinstance(event.error, Mapping) else {"message": event.message}
            raise self._said(said, "failed on the way")
        if event.b64_json is None:
            return None
        if event.type.endswith(".partial_image"):
            await partial(_decoded(event.b64_json) or b"")
            return None
        return await self._of(event, event)

    async def _read(self, body: bytes) -> Sent:
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self._failed("did not answer as the Images API does", body[:MAX_SAID]) from error
        if not answer.data:
            raise self._failed("sent no image", body[:MAX_SAID])
        return await self._of(answer.data[0], answer)

    async def _of(self, image: "_Image", told: "_Told") -> Sent:
        data = _decoded(image.b64_json or "") or (await self._fetched(image.url) if image.url else None)
        if not data:
            raise self._failed("sent no image", "no base64 and no address")
        return Sent(
            data=data,
            revised_prompt=_word(image.revised_prompt),
            size=_word(told.size),
            quality=_word(told.quality),
            background=_word(told.background),
        )

    async def _fetched(self, url: str) -> bytes | None:
        """Get an image that the server names by its address, which is its own: it may lead nowhere else."""
        if url[:5].lower() == "data:":
            return _decoded(url.partition(",")[2])
        try:
            address = urljoin(f"{self._base}/", url)
        except ValueError as error:
            raise self._failed("names an image at no address", url[:MAX_SAID]) from error
        if _place(address) != self._place:
            raise self._failed("names an image at another address than its own, which is not fetched", url[:MAX_SAID])
        async with self._opened.stream("GET", address) as answer:
            if answer.status_code != httpx2.codes.OK:
                raise self._failed(f"does not hand out its image (status {answer.status_code})", url[:MAX_SAID])
            return await self._body(answer, MAX_BYTES)

    def _refusal(self, path: str, status: int, body: bytes) -> ImageFailed:
        said = _error_in(body)
        if status == 401:
            key = f" in {self._env_key}" if self._env_key else ""
            return self._failed(f"does not accept the key{key}: the operator has to set image_generation.env_key", said)
        if status == 429:
            return self._failed("wants fewer requests: try again later", said)
        if 300 <= status < 400:
            return self._failed(f"sends elsewhere (status {status}): image_generation.base_url names its place", body)
        if said and status in (*WRONG_REQUEST, 404):
            hint = f", and {NO_PATH}" if status == 404 and not self._base.endswith("/v1") else ""
            return self._said(said, f"refused the request (status {status}{hint})", status)
        if status in (404, 405):
            return self._failed(f"has no {path}: {NO_PATH}", status)
        return self._failed(f"answered with the status {status}", body[:MAX_SAID])

    def _said(self, said: Mapping[str, Any], what: str, status: int = 0) -> ImageFailed:
        """Return an error with what the server itself says, without the key."""
        words, code = said.get("message"), said.get("code")
        text = " ".join(words.split())[:MAX_SAID] if isinstance(words, str) else ""
        if self._key:
            text = text.replace(self._key, "***")
        log.warning("the image server %s: %s", what, text)
        message = f"The image server {what}: {text}" if text else f"The image server {what}."
        return _Refused(message, code if isinstance(code, str) else None, status)

    def _failed(self, what: str, why: object) -> ImageFailed:
        log.warning("the image server %s: %s", what, why)
        return ImageFailed(f"The image server {what}.")


class _Refused(ImageFailed):
    """The server says why it makes no image."""

    def __init__(self, message: str, code: str | None, status: int) -> None:
        super().__init__(message, code)
        self._status = status

    def is_about(self, fields: Iterable[str]) -> bool:
        """Return whether the server names one of these fields of the request."""
        return self._status in WRONG_REQUEST and any(name in str(self) for name in fields)


class _Told(msgspec.Struct):
    """What a server says of an image; of any type, for no image is lost to that."""

    size: Any = None
    quality: Any = None
    background: Any = None


class _Image(_Told):
    b64_json: str | None = None
    url: str | None = None
    revised_prompt: Any = None


class _Answer(_Told):
    data: list[_Image] | None = None


class _Event(_Image):
    type: str = ""
    error: Any = None
    message: Any = None


def _fields_of(request: ImageRequest) -> tuple[str, dict[str, Any]]:
    """Return the path of a request, and its fields."""
    model, options = request.model or "", request.options()
    is_silent = model.startswith(SILENT)
    fields: dict[str, Any] = {"prompt": request.prompt, **({"model": model} if model else {})}
    fields |= {name: value for name, value in options.items() if name == "size" or not is_silent}
    if not model.startswith(FIXED):
        fields["response_format"] = "b64_json"
    if request.partial_images and not is_silent:
        fields |= {"stream": True, "partial_images": request.partial_images}
    return "/images/generations" if request.image is None else "/images/edits", fields


def _body_of(request: ImageRequest, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body as the client takes it: JSON, or a form with the images."""
    if request.image is None:
        return {"json": fields}
    files = [("image", _file("image", request.image))]
    if request.mask is not None:
        files.append(("mask", _file("mask", request.mask)))
    return {"data": {name: _text(value) for name, value in fields.items()}, "files": files}


def _file(name: str, data: bytes) -> tuple[str, bytes, str]:
    header = read_header(data)
    mime = header.mime if header else "application/octet-stream"
    return f"{name}.{mime.partition('/')[2]}", data, mime


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _decoded(text: str) -> bytes | None:
    """Return what base64 stands for, also behind the head of a data URL; None if it is none."""
    try:
        return b64decode(text.partition(",")[2] if text[:5].lower() == "data:" else text)
    except (binascii.Error, ValueError):
        return None


def _error_in(body: bytes) -> Mapping[str, Any]:
    """Return the error that an answer holds; empty if there is none."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    error = answer.get("error", answer) if isinstance(answer, Mapping) else None
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, Mapping) and error.get("message") else {}


def _place(url: str) -> tuple[str, str, int] | None:
    """Return the scheme, host and port of an address; None if it has none that could be asked."""
    try:
        parts = urlsplit(url)
        port = PORTS[parts.scheme] if parts.port is None else parts.port
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname and parts.scheme in PORTS else None
