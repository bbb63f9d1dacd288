"""A search, over one index or several: which chunks each question finds, and one ranking of all."""

import sqlite3
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from ferrule.retrieval import tables
from ferrule.retrieval.filters import Filter, Value
from ferrule.retrieval.fusion import Weights, fused
from ferrule.retrieval.tables import Found
from ferrule.retrieval.vectors import VectorMemory, nearest
from ferrule.retrieval.words import writable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Ranker = Literal["auto", "none"]

CANDIDATES = 100
"""Chunks that each ranking proposes, at least."""


class Search(msgspec.Struct, frozen=True):
    """What is wanted; see `Index.search`."""

    queries: Sequence[str]
    limit: int
    filter: Filter | None = None
    threshold: float = 0.0
    ranker: Ranker = "auto"
    weights: Weights = Weights()


class Hit(msgspec.Struct, frozen=True):
    """A chunk that was found. `score` goes from 1 down to 0; `start` is its place in the document's text."""

    document: str
    title: str
    text: str
    score: float
    attributes: Mapping[str, Value]
    start: int


class Vectors(msgspec.Struct, frozen=True):
    """Vectors, a row each. `model` is the name of the model and its dimension."""

    model: str
    rows: "NDArray[np.float32]"


class Rankings(msgspec.Struct, frozen=True):
    """The chunks that one question finds, by vectors with their cosines, and by words with their BM25 scores, the best
    first."""

    by_meaning: list[tuple[int, float]]
    by_words: list[tuple[int, float]]


class Searched(Protocol):
    """An `Index`, as a search uses it."""

    async def question_vectors(self, queries: Sequence[str]) -> Vectors | None: ...
    async def rank(self, search: Search, vectors: Vectors | None) -> list[Rankings]: ...
    async def found(self, chunks: Sequence[int]) -> dict[int, Found]: ...


async def search_all(indexes: Sequence[Searched], search: Search) -> list[tuple[int, Hit]]:
    """Search several indexes with one embedder. Returns each hit with the place of its index, the best first. Raises
    `IndexFault`."""
    queries = [writable(query) for query in search.queries]
    search = msgspec.structs.replace(search, queries=queries)
    wants_vectors = bool(indexes) and (search.weights.embedding > 0 or search.ranker == "none")
    vectors = await indexes[0].question_vectors(queries) if wants_vectors else None
    ranked = [await index.rank(search, vectors) for index in indexes]
    scores: dict[tuple[int, int], float] = {}
    for of_query in zip(*ranked, strict=True):
        near = _merged([rankings.by_meaning for rankings in of_query])
        worded = _merged([rankings.by_words for rankings in of_query])
        for key, score in _scored(near, worded, search).items():
            scores[key] = max(score, scores.get(key, 0.0))
    best = sorted((-score, key) for key, score in scores.items() if score >= search.threshold)[: search.limit]
    found = {
        (place, chunk): text
        for place, index in enumerate(indexes)
        if (chunks := [chunk for _, (of, chunk) in best if of == place])
        for chunk, text in (await index.found(chunks)).items()
    }
    return [(key[0], _hit(found[key], -score)) for score, key in best if key in found]


def ranked(
    tx: sqlite3.Connection, search: Search, vectors: Vectors | None, memory: VectorMemory, index: Hashable
) -> list[Rankings]:
    """Return what each question finds in one index."""
    allowed = None if search.filter is None else sorted(tables.passing(tx, search.filter))
    depth = max(CANDIDATES, search.limit)
    near: list[list[tuple[int, float]]] = [[] for _ in search.queries]
    if vectors is not None and vectors.model == tables.model(tx):
        near = nearest(memory.blocks(index, tx), vectors.rows, depth, allowed)
    by_words = search.weights.text > 0 or vectors is None
    return [
        Rankings(by_meaning, tables.by_words(tx, query, depth, allowed) if by_words or not by_meaning else [])
        for query, by_meaning in zip(search.queries, near, strict=True)
    ]


Merged = list[tuple[tuple[int, int], float]]
"""Indexes and chunks with their scores, the best first."""


def _merged(rankings: Sequence[Sequence[tuple[int, float]]]) -> Merged:
    """Join the rankings of several indexes. Cosines compare exactly; BM25 scores nearly, as each index has its own
    frequencies of words."""
    found = [((place, chunk), score) for place, ranking in enumerate(rankings) for chunk, score in ranking]
    return sorted(found, key=lambda one: (-one[1], one[0])) if len(rankings) > 1 else found


def _scored(near: Merged, worded: Merged, search: Search) -> dict[tuple[int, int], float]:
    """Return the scores of the chunks for one question."""
    if search.ranker == "none":
        if near:
            return {key: min(1.0, max(0.0, cosine)) for key, cosine in near}
        return {key: max(0.0, score / worded[0][1]) for key, score in worded}
    weights = search.weights if near else Weights()
    rankings = ((weights.embedding, near), (weights.text, worded))
    return fused([(weight, [key for key, _ in ranking]) for weight, ranking in rankings if weight])


def _hit(found: Found, score: float) -> Hit:
    return Hit(found.document, found.title, found.text, min(score, 1.0), found.attributes, found.start)
