"""Embedders: a server that answers in every way, the vectors of the package, and which of them the settings mean."""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferrule.protocol.embedding_settings import EmbeddingsSettings
from ferrule.protocol.errors import UsageError
from ferrule.retrieval import embedders, server_embedder
from ferrule.retrieval.chunking import Chunk
from ferrule.retrieval.embedder import Embedder, EmbedderDown, TextRefused
from ferrule.retrieval.embedders import open_embedder
from ferrule.retrieval.index import Index
from ferrule.retrieval.static_embedder import StaticEmbedder
from ferrule.retrieval.vectors import VectorMemory
from tests.retrieval.embedding_server import EmbeddingServer
from tests.retrieval.toy import toy_vectors

KEY = "sk-very-secret"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    server = EmbeddingServer()
    yield server
    server.stop()


@pytest.fixture
async def embedder(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Embedder]:
    monkeypatch.setattr(server_embedder, "REST_SECONDS", 0.0)
    async with aclosing(opened(server)) as embedder:
        yield embedder


def opened(server: EmbeddingServer, env: dict[str, str] | None = None) -> Embedder:
    settings = EmbeddingsSettings(base_url=server.url, model="toy", env_key="EMBED_KEY")
    embedder = open_embedder(settings, {"EMBED_KEY": KEY} if env is None else env)
    assert embedder is not None
    return embedder


@pytest.mark.parametrize("form", ["float", "base64"])
async def test_a_servers_vectors_come_in_order_and_of_length_one(
    server: EmbeddingServer, embedder: Embedder, form: str
) -> None:
    server.form = form
    rows = await embedder.embed(["one two", "three"])
    assert rows.dtype == np.float32 and np.allclose(rows, toy_vectors(["one two", "three"], 32), atol=1e-6)
    assert server.requests == [{"model": "toy", "input": ["one two", "three"]}]
    assert server.keys == [f"Bearer {KEY}"]


NAN = base64.b64encode(np.array([np.nan, 1], "<f4").tobytes()).decode()


@pytest.mark.parametrize(
    ("status", "answer", "says"),
    [
        (200, b"<html>", "did not answer with a vector for each text"),
        (200, {"data": []}, "did not answer with"),
        (200, {"data": [{"embedding": [1.0]}, {"embedding": [1.0]}]}, "did not answer with"),
        (200, {"data": [{"embedding": []}]}, "did not answer with"),
        (200, {"data": [{"embedding": ["x"]}]}, "did not answer with"),
        (200, {"data": [{"embedding": "AAA"}]}, "did not answer with"),
        (401, {"error": {"message": f"bad key {KEY}"}}, r"does not accept the key in EMBED_KEY: bad key \(the key\)"),
        (404, {"error": "no model toy"}, "answered with the status 404: no model toy"),
        (503, b"", "answered with the status 503"),
        (302, b"", "answered with the status 302"),
    ],
)
async def test_a_server_that_does_not_answer_as_it_should_is_told(
    server: EmbeddingServer,
    embedder: Embedder,
    caplog: pytest.LogCaptureFixture,
    status: int,
    answer: Any,
    says: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    server.status, server.answer = status, answer
    with pytest.raises(EmbedderDown, match=says) as caught:
        await embedder.embed(["x"])
    assert not isinstance(caught.value, TextRefused)
    assert KEY not in str(caught.value) and KEY not in caplog.text


@pytest.mark.parametrize("vector", [NAN, [None, None], [1e300, 1.0]])
async def test_a_text_of_which_a_model_makes_no_numbers_is_told_apart(
    server: EmbeddingServer, embedder: Embedder, vector: object
) -> None:
    server.answer = {"data": [{"embedding": vector}]}
    with pytest.raises(TextRefused, match="no numbers"):
        await embedder.embed(["x"])


async def test_a_text_of_which_a_model_makes_no_numbers_keeps_no_other_from_its_vector(
    server: EmbeddingServer, embedder: Embedder, tmp_path: Path
) -> None:
    server.spoilt = "poison"
    async with await Index.open(tmp_path / "i", embedder=embedder, memory=VectorMemory()) as index:
        await index.put("d", [Chunk("poison", 0), Chunk("words", 11)], title="")
        assert await index.embed_missing() == 1
        assert (await index.counts()).waiting == 0 and index.mode == "hybrid"


@pytest.mark.parametrize("status", [400, 413, 422, 500])
async def test_a_text_that_a_server_refuses_is_told_apart(
    server: EmbeddingServer, embedder: Embedder, status: int
) -> None:
    server.status = status
    with pytest.raises(TextRefused):
        await embedder.embed(["x"])


async def test_a_server_that_hangs_is_given_up(server: EmbeddingServer, embedder: Embedder) -> None:
    server.hang.clear()
    async with asyncio.timeout(15):
        with pytest.raises(EmbedderDown, match=r"within 0\.05 seconds"):
            await embedder.embed(["x"], seconds=0.05)


async def test_a_server_that_failed_is_left_alone_for_a_while(server: EmbeddingServer) -> None:
    async with aclosing(opened(server)) as embedder:
        server.status = 503
        for _ in range(3):
            with pytest.raises(EmbedderDown, match="503"):
                await embedder.embed(["x"])
        assert len(server.requests) == 1


async def test_a_missing_key_is_told_by_its_variable(server: EmbeddingServer) -> None:
    async with aclosing(opened(server, {})) as embedder:
        with pytest.raises(EmbedderDown, match="variable EMBED_KEY"):
            await embedder.embed(["x"])
    assert server.requests == []


async def test_a_key_that_no_header_can_hold_is_told_and_blanks_around_it_are_not_sent(server: EmbeddingServer) -> None:
    for key in ("sk-s\u00e9cret", "sk-s\x01cret"):
        async with aclosing(opened(server, {"EMBED_KEY": key})) as embedder:
            with pytest.raises(EmbedderDown, match="variable EMBED_KEY is no key") as caught:
                await embedder.embed(["x"])
        assert key not in str(caught.value) and server.requests == []
    async with aclosing(opened(server, {"EMBED_KEY": f" {KEY}\n"})) as embedder:
        await embedder.embed(["x"])
    assert server.keys == [f"Bearer {KEY}"]


async def test_a_vector_of_nothing_is_no_number_that_spoils_others(server: EmbeddingServer, embedder: Embedder) -> None:
    server.answer = {"data": [{"embedding": [0.0, 0.0]}]}
    assert (await embedder.embed(["x"])).tolist() == [[0.0, 0.0]]


async def test_a_server_that_comes_back_is_used_again_and_its_key_is_in_no_file(
    server: EmbeddingServer, embedder: Embedder, tmp_path: Path
) -> None:
    server.stop()
    async with await Index.open(tmp_path / "i", embedder=embedder, memory=VectorMemory()) as index:
        await index.put("d", [Chunk("some words", 0), Chunk("others", 11)], title="")
        assert (index.mode, "cannot be reached" in str(index.reason)) == ("lexical", True)
        assert [hit.document for hit in await index.search(["words"], limit=5)] == ["d"]
        again = EmbeddingServer(server.port)
        try:
            assert await index.embed_missing() == 2
            assert (index.mode, index.reason) == ("hybrid", None)
            assert len(await index.search(["words"], limit=5)) == 2
        finally:
            again.stop()
        assert all(KEY.encode() not in file.read_bytes() for file in tmp_path.iterdir())


async def test_a_text_too_long_for_the_model_gets_the_vector_of_its_beginning(
    server: EmbeddingServer, embedder: Embedder, tmp_path: Path
) -> None:
    server.longest = 300
    async with await Index.open(tmp_path / "i", embedder=embedder, memory=VectorMemory()) as index:
        await index.put("d", [Chunk("word " * 200, 0), Chunk("short", 1000)], title="")
        assert await index.embed_missing() == 2
    assert sorted({len(text) for text in server.texts() if len(text) <= 300}) == [5, 9, 250]


async def test_the_package_has_vectors_by_which_like_finds_like() -> None:
    embedder = open_embedder(EmbeddingsSettings(), {})
    assert isinstance(embedder, StaticEmbedder)
    rows = await embedder.embed(["The cat sleeps.", "A kitten is napping.", "Interest rates rose.", ""])
    assert rows.shape == (4, 256) and np.allclose(np.linalg.norm(rows[:3], axis=1), 1, atol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] and not rows[3].any()


async def test_a_package_without_its_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(EmbedderDown, match="wordllama cannot be used"):
        await StaticEmbedder(tmp_path).embed(["x"])


def test_without_server_and_package_there_is_no_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedders, "find_spec", lambda name: None)
    assert open_embedder(EmbeddingsSettings(), {}) is None
    with pytest.raises(UsageError, match="install 'ferrule"):
        open_embedder(EmbeddingsSettings(base_url="http://x", model="m"), {})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (EmbeddingsSettings(base_url="ftp://x", model="m"), "http://"),
        (EmbeddingsSettings(base_url="http://x"), "embeddings.model is missing"),
        (EmbeddingsSettings(model="m"), "embeddings.base_url is missing"),
        (EmbeddingsSettings(env_key="K"), "embeddings.base_url is missing"),
    ],
)
def test_settings_that_say_too_little_are_refused(settings: EmbeddingsSettings, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        open_embedder(settings, {})
