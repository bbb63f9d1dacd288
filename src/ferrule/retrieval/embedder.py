"""What turns texts into vectors: its contract, and how it fails."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ferrule.protocol.errors import FerruleError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PATIENT_SECONDS = 120.0
"""How long work in the background waits for a batch: a model on a CPU needs seconds for it."""


class EmbedderDown(FerruleError):
    """There are no vectors now: one sentence for the user, without keys."""


class TextRefused(EmbedderDown):
    """The model takes other texts, but not one of these: too long for it, say."""


class Embedder(Protocol):
    """A model of vectors."""

    @property
    def name(self) -> str:
        """The model: vectors of another one are stale, and so are those of another dimension."""
        ...

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, seconds: float = PATIENT_SECONDS
    ) -> "NDArray[np.float32]":
        """Return one row a text, each of length 1. `query`: the texts are questions. Raises `EmbedderDown`, at the
        latest after `seconds`."""
        ...

    async def aclose(self) -> None:
        """End what belongs to it."""
        ...
