"""What clients keep for us: summaries, and what a model's server wants back with its thinking. A client that keeps its
conversation itself sends them back, so they may come damaged, made up, from another server, or in great number.

They are compressed, not secret: they tell the client nothing that the client did not say or read.
"""

import base64
import hashlib
import zlib
from typing import Final

import msgspec

from ferrule.protocol.items import Origin, ResponseItem
from ferrule.protocol.json_text import JsonObject
from ferrule.responses.errors import ApiError

_SEAL = "ferrule.1."
MAX_OPENED_BYTES: Final = 4 << 20
"""Bytes of what one seal holds: thinking of the longest answers, twice (as text and in the server's own form)."""
MAX_ALL_OPENED_BYTES: Final = 32 << 20
"""Bytes of what all seals of one request hold, as many as a request may have: a few bytes can stand for a thousand."""


class _Thinking(msgspec.Struct, omit_defaults=True):
    """What the server of a reasoning item reads of it. Its text is among that: signatures are for it, and some clients
    (Codex) leave it out."""

    message_fields: JsonObject = {}
    chat_fields: JsonObject = {}
    chat_field: str = ""
    content: list[JsonObject] | None = None
    maker: str = ""
    """The server and the family of models that made it (`maker_of`); empty in seals of earlier versions."""

    @property
    def is_private(self) -> bool:
        """Return whether there is more than what the client gets anyway."""
        return bool(self.message_fields or self.chat_fields or self.chat_field)


def maker_of(origin: Origin | None) -> str:
    """Return a short text for a server and a family of models, empty if unknown. It is too short to guess the server's
    name by, which clients do not learn."""
    return "" if origin is None else hashlib.sha256(f"{origin.provider}\0{origin.family}".encode()).hexdigest()[:4]


def sealed(text: str) -> str:
    """Return a text as encrypted content, which only a server of ours reads."""
    return _SEAL + base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def sealed_thinking(item: ResponseItem) -> JsonObject:
    """Return what the server of a reasoning item wants back with it (signatures) as the item's encrypted content. Empty
    where there is nothing of the kind, or more than could be opened."""
    thinking = msgspec.json.decode(item.raw, type=_Thinking)
    thinking.maker = maker_of(item.origin)
    text = msgspec.json.encode(thinking)
    return {"encrypted_content": sealed(text.decode())} if thinking.is_private and len(text) <= MAX_OPENED_BYTES else {}


class Opener:
    """Opens the seals of one request. What another server has sealed stays as it is: None."""

    def __init__(self) -> None:
        self._left = MAX_ALL_OPENED_BYTES

    def text(self, content: str, param: str = "input") -> str | None:
        """Return a sealed text. Raises `ApiError` if it is damaged, or if there was too much already."""
        if not content.startswith(_SEAL):
            return None
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(base64.urlsafe_b64decode(content[len(_SEAL) :]), MAX_OPENED_BYTES)
            text = data.decode()
        except (ValueError, zlib.error) as error:
            raise _damaged(param) from error
        if not unpacker.eof:
            raise _damaged(param)
        self._left -= len(data)
        if self._left < 0:
            most = f"at most {MAX_ALL_OPENED_BYTES} bytes can be sealed in all items together"
            raise ApiError(f"{param}: {most}", code="invalid_value", param=param)
        return text

    def thinking(self, content: str, param: str = "input", maker: str = "") -> JsonObject | None:
        """Return the fields that go back with a reasoning item. What is for its maker alone is left out for another
        `maker`. Raises `ApiError` as `text` does."""
        if (text := self.text(content, param)) is None:
            return None
        try:
            thinking = msgspec.json.decode(text, type=_Thinking)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _damaged(param) from error
        if thinking.maker and maker and thinking.maker != maker:
            thinking = _Thinking(content=thinking.content)
        thinking.maker = ""
        fields: JsonObject = msgspec.to_builtins(thinking)
        return fields


def _damaged(param: str) -> ApiError:
    return ApiError(f"{param}: what a server of ours has sealed is damaged", code="invalid_value", param=param)
