"""A model of vectors that needs no weights: words counted in a few places."""

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ferrule.retrieval.embedder import EmbedderDown, TextRefused


class ToyEmbedder:
    """Embeds, and can be down, refuse texts, or become another model. `asked` are all texts that it was given."""

    def __init__(self, name: str = "toy", width: int = 32) -> None:
        self.name = name
        self.width = width
        self.down = False
        self.refused = ""
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str], *, query: bool = False, seconds: float = 1.0) -> NDArray[np.float32]:
        if self.down:
            raise EmbedderDown("The toy is down.")
        if self.refused and any(self.refused in text for text in texts):
            raise TextRefused("The toy refuses that.")
        self.asked += texts
        return toy_vectors(texts, self.width)

    async def aclose(self) -> None:
        pass


def toy_vectors(texts: Sequence[str], width: int) -> NDArray[np.float32]:
    """Return a row of length 1 for each text."""
    rows = np.full((len(texts), width), 0.01, np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().split():
            row[zlib.crc32(word.encode()) % width] += 1
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows
