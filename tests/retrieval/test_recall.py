"""On a set of our own, words and vectors together find at least as much as each alone. `scripts/recall` has more."""

from ferrule.protocol.embedding_settings import EmbeddingsSettings
from ferrule.retrieval.embedders import open_embedder
from tests.retrieval.questions import PYTHON
from tests.retrieval.recall import measured, python_topics

BEGINNING = 3000
"""Characters of a topic: the whole takes twice as long."""


async def test_both_find_at_least_what_each_alone_finds() -> None:
    embedder = open_embedder(EmbeddingsSettings(), {})
    assert embedder is not None
    found = await measured({name: text[:BEGINNING] for name, text in python_topics().items()}, PYTHON, embedder)
    assert found["both"].mrr >= max(found["words"].mrr, found["vectors"].mrr)
    assert found["both"].five > 0.8
