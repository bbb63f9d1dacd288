"""One ranking from several: reciprocal-rank fusion (Cormack, Clarke, Büttcher 2009)."""

from collections.abc import Sequence

import msgspec

SMOOTHING = 60
"""The constant of the formula, as its authors found it: the higher, the less the first places count."""


class Weights(msgspec.Struct, frozen=True):
    """How much each ranking counts. Not both are 0."""

    embedding: float = 1.0
    text: float = 1.0


def fused(rankings: Sequence[tuple[float, Sequence[int]]]) -> dict[int, float]:
    """Return the score of each number in rankings with weights. 1 is the first place in all that found anything."""
    scores: dict[int, float] = {}
    whole = sum(weight for weight, ranking in rankings if ranking) / (SMOOTHING + 1)
    for weight, ranking in rankings:
        for place, number in enumerate(ranking, SMOOTHING + 1):
            scores[number] = scores.get(number, 0.0) + weight / place / whole
    return scores
