"""Vectors from any server with `/v1/embeddings`. Its address is the user's own choice, so it is reached directly.

Source of the format: OpenAI's API, "Create embeddings". The key goes into the request and nowhere else.
"""

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec

from ferrule.egress.http import client_of
from ferrule.retrieval.embedder import PATIENT_SECONDS, EmbedderDown, TextRefused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_ANSWER = 64 << 20
"""Bytes: 32 vectors of 4,096 numbers with 20 characters each take 3 MB."""
REST_SECONDS = 2.0
"""How long a server that failed is not asked again: thousands of documents do not wait for it one after the other."""
CONNECT_SECONDS = 3.0
_OF_TEXTS = frozenset({400, 413, 422, 500})
"""Statuses by which servers refuse a text that is too long for their model; llama.cpp's was 500."""
_SHOWN = 200
"""Characters of a server's own words."""


class _Data(msgspec.Struct):
    """One vector of an answer."""

    embedding: list[float | None] | str
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Data]


class ServerEmbedder:
    """Asks a server. `env_key` names the variable of `env` that has its key."""

    def __init__(
        self, base_url: str, model: str, *, env_key: str | None, env: Mapping[str, str], ca_file: str | None = None
    ) -> None:
        self.name = model
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._env_key = env_key
        self._key = env.get(env_key, "").strip() if env_key else ""
        self._ca_file = ca_file
        self._client: httpx2.AsyncClient | None = None
        self._failed: tuple[float, str] | None = None

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, seconds: float = PATIENT_SECONDS
    ) -> "NDArray[np.float32]":
        """See `Embedder`."""
        if self._env_key and not self._key:
            raise EmbedderDown(
                f"The variable {self._env_key}, in which embeddings.env_key expects the key, has no value."
            )
        if not self._key.isascii() or not self._key.isprintable():
            raise EmbedderDown(f"The variable {self._env_key} is no key: it has characters that no header can hold.")
        if self._failed is not None and time.monotonic() < self._failed[0] + REST_SECONDS:
            raise EmbedderDown(self._failed[1])
        try:
            async with asyncio.timeout(seconds):
                status, body = await self._ask({"model": self.name, "input": list(texts)})
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise self._down(f"did not answer within {seconds:g} seconds") from error
        except httpx2.HTTPError as error:
            raise self._down("cannot be reached") from error
        if status in _OF_TEXTS:
            raise TextRefused(_sentence(f"refused a text with the status {status}{self._said(body)}"))
        if status != 200:
            raise self._down(self._refusal(status) + self._said(body))
        rows = await asyncio.to_thread(_vectors, body, len(texts))
        if rows is None:
            raise self._down("did not answer with a vector for each text")
        self._failed = None
        if not await asyncio.to_thread(_are_numbers, rows):
            raise TextRefused(_sentence("answered a text with a vector that holds no numbers"))
        return rows

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _ask(self, body: Mapping[str, object]) -> tuple[int, bytes]:
        if self._client is None:
            self._client = client_of(
                self._url,
                ca_file=self._ca_file,
                timeout=httpx2.Timeout(PATIENT_SECONDS, connect=CONNECT_SECONDS),
                headers={"authorization": f"Bearer {self._key}"} if self._key else {},
            )
        async with self._client.stream("POST", self._url, json=body) as answer:
            read = bytearray()
            async for piece in answer.aiter_bytes():
                read += piece
                if len(read) > MAX_ANSWER:
                    raise httpx2.DecodingError("the answer is too long")
            return answer.status_code, bytes(read)

    def _refusal(self, status: int) -> str:
        if status in (401, 403):
            return (
                f"does not accept the key in {self._env_key}"
                if self._env_key
                else "wants a key: set embeddings.env_key"
            )
        return f"answered with the status {status}"

    def _said(self, body: bytes) -> str:
        """Return what the server said, without the key."""
        try:
            answer: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return ""
        error = answer.get("error", answer) if isinstance(answer, Mapping) else None
        words = error.get("message") if isinstance(error, Mapping) else error
        if not isinstance(words, str) or not words.strip():
            return ""
        if self._key:
            words = words.replace(self._key, "(the key)")
        return f": {' '.join(words.split())[:_SHOWN]}"

    def _down(self, what: str) -> EmbedderDown:
        said = _sentence(what)
        self._failed = (time.monotonic(), said)
        return EmbedderDown(said)


def _sentence(what: str) -> str:
    return f"The server of embeddings.base_url {what.rstrip('.')}."


def _vectors(body: bytes, count: int) -> "NDArray[np.float32] | None":
    """Return the vectors of an answer in the order of the texts, each of length 1; None if it has not as many. Models
    make NaN of some texts, which servers send as null."""
    import numpy as np

    try:
        data = msgspec.json.decode(body, type=_Answer).data
        with np.errstate(over="ignore"):
            rows = [
                np.frombuffer(base64.b64decode(one.embedding), "<f4")
                if isinstance(one.embedding, str)
                else np.array(one.embedding, np.float32)
                for one in sorted(data, key=lambda one: one.index or 0)
            ]
    except (msgspec.MsgspecError, ValueError, UnicodeError, RecursionError):
        return None
    if len(rows) != count or len({len(row) for row in rows}) > 1 or not len(rows[0]):
        return None
    matrix = np.stack(rows)
    with np.errstate(invalid="ignore"):  # the caller looks whether they are numbers
        norms = np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
        unit: NDArray[np.float32] = (matrix / np.maximum(norms, np.finfo(np.float32).tiny)).astype(np.float32)
    return unit


def _are_numbers(rows: "NDArray[np.float32]") -> bool:
    import numpy as np

    return bool(np.isfinite(rows).all())
