"""On a set of our own, words and vectors together find at least as much as each alone. `scripts/recall` has more."""

import pytest

from ferrule.protocol.embedding_settings import EmbeddingsSettings
from ferrule.retrieval.embedders import open_embedder
from tests.retrieval.questions import DOCS
from tests.retrieval.recall import documentation, measured


@pytest.fixture
def texts() -> dict[str, str]:
    """The pages that answer, by their beginnings: the whole takes a second."""
    return {name: text[:6000] for name, text in documentation().items()}


async def test_both_find_at_least_what_each_alone_finds(texts: dict[str, str]) -> None:
    embedder = open_embedder(EmbeddingsSettings(), {})
    assert embedder is not None
    found = await measured(texts, DOCS, embedder)
    assert found["both"].mrr >= max(found["words"].mrr, found["vectors"].mrr)
    assert found["both"].five > 0.8
