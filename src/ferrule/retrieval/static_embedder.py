"""Vectors of words from the package `wordllama`, 256 dimensions, averaged over a text. No model runs.

Its own loader is not used: it looks for the tokenizer in the wrong folder, and then downloads one.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.retrieval.embedder import PATIENT_SECONDS, EmbedderDown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

WEIGHTS = "weights/l2_supercat_256.safetensors"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class StaticEmbedder:
    """The average of a text's word vectors. `folder` is the package's; it is read at first use, in half a second."""

    name = "wordllama l2_supercat"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._table: NDArray[np.float32] | None = None
        self._tokenizer: Tokenizer | None = None
        self._loading = asyncio.Lock()

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, seconds: float = PATIENT_SECONDS
    ) -> "NDArray[np.float32]":
        """See `Embedder`."""
        async with self._loading:
            if self._table is None:
                await asyncio.to_thread(self._load)
        return await asyncio.to_thread(self._embed, texts)

    async def aclose(self) -> None:
        """Do nothing: memory is all that it holds."""

    def _load(self) -> None:
        import numpy as np
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        try:
            [table] = load_file(self._folder / WEIGHTS).values()
            self._tokenizer = Tokenizer.from_str((self._folder / TOKENIZER).read_text("utf-8"))
        except (OSError, ValueError, SafetensorError) as error:
            raise EmbedderDown(f"The package wordllama cannot be used: {error}") from error
        self._table = table.astype(np.float32)

    def _embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        import numpy as np

        assert self._table is not None and self._tokenizer is not None
        rows = np.zeros((len(texts), self._table.shape[1]), np.float32)
        for row, encoded in zip(rows, self._tokenizer.encode_batch(list(texts), add_special_tokens=False), strict=True):
            if encoded.ids:
                self._table[encoded.ids].sum(axis=0, out=row)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return rows
