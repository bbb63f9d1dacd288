"""One ranking from several: reciprocal-rank fusion (Cormack, Clarke, Büttcher 2009)."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)

SMOOTHING = 60
"""The constant of the formula, as its authors found it: the higher, the less the first places count."""


class Weights(msgspec.Struct, frozen=True):
    """How much each ranking counts. Not both are 0."""

    embedding: float = 1.0
    text: float = 1.0


def fused(rankings: Sequence[tuple[float, Sequence[K]]]) -> dict[K, float]:
    """Return the score of each key in rankings with weights. 1 is the first place in all that found anything."""
    scores: dict[K, float] = {}
    found = [(weight, ranking) for weight, ranking in rankings if ranking]
    most = max((weight for weight, _ in found), default=1.0)
    found = [(weight / most, ranking) for weight, ranking in found]  # no sum is too large or too small for a number
    whole = sum(weight for weight, _ in found) / (SMOOTHING + 1)
    for weight, ranking in found:
        for place, key in enumerate(ranking, SMOOTHING + 1):
            scores[key] = scores.get(key, 0.0) + weight / place / whole
    return scores
