"""How often a search finds what answers a question: by words, by vectors, by both. `scripts/recall` prints a table.

`recall@N` is the share of questions with an answer among the first N documents, `mrr` the mean of 1/place of the first.
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from ferrule.protocol.embedding_settings import EmbeddingsSettings
from ferrule.retrieval.chunking import Chunking, chunks
from ferrule.retrieval.embedder import Embedder
from ferrule.retrieval.embedders import open_embedder
from ferrule.retrieval.fusion import Weights
from ferrule.retrieval.index import Index
from ferrule.retrieval.vectors import VectorMemory
from tests.retrieval.questions import DOCS, PACKAGES, PYTHON, Question

ROOT = Path(__file__).parents[2]
WAYS = {"words": Weights(embedding=0), "vectors": Weights(text=0), "both": Weights()}
DEPTH = 10
CHUNKS = Chunking(400, 40)


class Figures(NamedTuple):
    """What one way of searching reached."""

    first: float
    five: float
    mrr: float


def documentation() -> dict[str, str]:
    """Return Ferrule's own pages, without the tables of tests."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tools").glob("*.md")]
    return {page.name: page.read_text() for page in pages}


def python_topics() -> dict[str, str]:
    """Return the topics of Python's language reference."""
    from pydoc_data.topics import topics

    return dict(topics)


def packages() -> dict[str, str]:
    """Return what installed packages say of themselves."""
    said = {one.metadata["Name"]: str(one.metadata.get_payload() or "") for one in distributions()}  # type: ignore[attr-defined]
    return {name: text for name, text in said.items() if len(text) > 1000 and name != "ferrule"}


async def measured(
    texts: Mapping[str, str], questions: Sequence[Question], embedder: Embedder, ways: Iterable[str] = WAYS
) -> dict[str, Figures]:
    """Index the texts, and ask the questions each way. Raises `AssertionError` for an answer that does not exist."""
    missing = {name for question in questions for name in question.answers} - set(texts)
    assert not missing, f"no such documents: {missing}"
    with tempfile.TemporaryDirectory() as folder:
        async with await Index.open(Path(folder) / "index", embedder=embedder, memory=VectorMemory()) as index:
            for name, text in texts.items():
                await index.put(name, chunks(text, CHUNKS), title=name)
            return {way: _figures([await _place(index, question, WAYS[way]) for question in questions]) for way in ways}


async def _place(index: Index, question: Question, weights: Weights) -> int:
    """Return the place of the first document that answers, from 1; 0 if there is none."""
    hits = await index.search([question.text], limit=50, weights=weights)
    found = list(dict.fromkeys(hit.document for hit in hits))[:DEPTH]
    return next((place for place, name in enumerate(found, 1) if name in question.answers), 0)


def _figures(places: Sequence[int]) -> Figures:
    count = len(places)
    return Figures(
        sum(place == 1 for place in places) / count,
        sum(0 < place <= 5 for place in places) / count,
        sum(1 / place for place in places if place) / count,
    )


async def main() -> int:
    """Print the table. Returns 1 if both together are worse than one of them."""
    embedder = open_embedder(EmbeddingsSettings(), {})
    assert embedder is not None, "install wordllama"
    sets = {"docs": (documentation(), DOCS), "python": (python_topics(), PYTHON), "packages": (packages(), PACKAGES)}
    together = {name: text for texts, _ in sets.values() for name, text in texts.items()}
    sets["all"] = (together, (*DOCS, *PYTHON, *PACKAGES))
    print("| documents | questions | way | recall@1 | recall@5 | mrr |\n|---|---|---|---|---|---|")
    worse = False
    for name, (texts, questions) in sets.items():
        figures = await measured(texts, questions, embedder)
        for way, found in figures.items():
            shown = " | ".join(f"{figure:.3f}" for figure in found)
            print(f"| {name}: {len(texts)} | {len(questions)} | {way} | {shown} |")
        worse |= name == "all" and figures["both"].mrr < max(figures["words"].mrr, figures["vectors"].mrr)
    return int(worse)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
