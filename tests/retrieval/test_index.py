"""The index: what is found, in which order, and what happens when the embedder or the program ends."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ferrule.retrieval import vectors
from ferrule.retrieval.chunking import Chunk, Chunking, chunks
from ferrule.retrieval.connection import IndexDamaged, IndexFault
from ferrule.retrieval.filters import read_filter
from ferrule.retrieval.fusion import Weights
from ferrule.retrieval.index import BATCH, CHANGED, NO_EMBEDDER, Index
from ferrule.retrieval.searching import Search, search_all
from ferrule.retrieval.tables import Document
from ferrule.retrieval.vectors import VectorMemory
from tests.retrieval.toy import ToyEmbedder

TEXTS = {
    "fox": "the quick brown fox jumps over the lazy dog",
    "cat": "a cat sleeps on the warm roof",
    "sea": "ships sail on the open sea",
}


@pytest.fixture
def embedder() -> ToyEmbedder:
    return ToyEmbedder()


@pytest.fixture
def memory() -> VectorMemory:
    return VectorMemory()


@pytest.fixture
async def index(tmp_path: Path, embedder: ToyEmbedder, memory: VectorMemory) -> AsyncIterator[Index]:
    async with await Index.open(tmp_path / "index.sqlite3", embedder=embedder, memory=memory) as index:
        yield index


@pytest.fixture
async def lexical(tmp_path: Path, memory: VectorMemory) -> AsyncIterator[Index]:
    async with await Index.open(tmp_path / "lexical.sqlite3", embedder=None, memory=memory) as index:
        yield index


async def fill(index: Index, texts: dict[str, str] = TEXTS) -> None:
    for name, text in texts.items():
        await index.put(name, chunks(text, Chunking()), title=f"{name}.txt")


async def names(index: Index, question: str, **options: object) -> list[str]:
    found = await index.search([question], **{"limit": 10, **options})  # type: ignore[arg-type]
    return [hit.document for hit in found]


async def test_a_document_is_found_by_its_words(lexical: Index) -> None:
    await fill(lexical)
    assert (lexical.mode, lexical.reason) == ("lexical", NO_EMBEDDER)
    [hit] = await lexical.search(["lazy"], limit=5)
    assert (hit.document, hit.title, hit.text, hit.score, hit.start) == ("fox", "fox.txt", TEXTS["fox"], 1.0, 0)
    assert await lexical.embed_missing() == 0


async def test_a_document_is_found_by_its_title(lexical: Index) -> None:
    await fill(lexical)
    assert (await names(lexical, "sea.txt"))[0] == "sea"


@pytest.mark.parametrize(
    "question",
    [
        "",
        " ",
        '"',
        "AND OR NOT",
        "a*",
        "(((",
        "near(x",
        "text:",
        "\x00",
        "'; --",
        "-",
        "é" * 5000,
        "世界",
        "w " * 9000,
        "\ud800",
    ],
)
async def test_any_text_is_answered(lexical: Index, question: str) -> None:
    await fill(lexical)
    await lexical.search([question], limit=5)


async def test_a_text_is_found_by_any_word_of_the_question(lexical: Index) -> None:
    await fill(lexical)
    assert set(await names(lexical, "LAZY captain, any ships?")) == {"fox", "sea"}


async def test_scripts_without_blanks_are_found_by_parts_of_a_sentence(lexical: Index) -> None:
    await fill(lexical, {"zh": "向量数据库可以很快地找到文件。", "th": "สวัสดีครับ", "other": "数量 据说"})
    assert await names(lexical, "数据库") == ["zh"]
    assert await names(lexical, "ดีค") == ["th"]


async def test_halves_of_characters_are_no_hindrance(index: Index) -> None:
    await index.put("d", [Chunk("half \ud83d of\0 it é", 0)], title="\udc80.txt")
    [hit] = await index.search(["half \ud83d"], limit=5)
    assert (hit.text, hit.title) == ("half ? of\0 it é", "?.txt")


async def test_a_put_replaces_the_document_of_that_name(index: Index) -> None:
    await fill(index)
    await index.put("fox", [Chunk("nothing of that", 0)], title="", attributes={"a": 1}, stamp="2")
    assert await index.chunks_of("fox") == ["nothing of that"]
    assert await names(index, "lazy", weights=Weights(embedding=0)) == []
    assert await index.stamps() == {"fox": "2", "cat": "", "sea": ""}


async def test_a_removal_holds_when_it_has_returned(index: Index) -> None:
    await fill(index)
    assert "cat" in await names(index, "cat roof")
    assert await index.remove("cat")
    assert "cat" not in await names(index, "cat roof")
    assert await index.chunks_of("cat") == []
    assert not await index.remove("cat")


async def test_scores_go_from_one_down(index: Index) -> None:
    await fill(index)
    hits = await index.search(["ships on the sea"], limit=10)
    assert hits[0].document == "sea" and hits[0].score == 1.0
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True) and scores[-1] > 0
    assert await index.search(["ships on the sea"], limit=10, threshold=0.99) == hits[:1]


async def test_the_ranker_none_scores_by_cosine(index: Index, embedder: ToyEmbedder) -> None:
    await fill(index)
    hits = await index.search(["ships on the sea"], limit=10, ranker="none")
    question, *rows = await embedder.embed(["ships on the sea", *(TEXTS[hit.document] for hit in hits)])
    assert [hit.score for hit in hits] == pytest.approx([float(row @ question) for row in rows], abs=1e-6)


async def test_the_ranker_none_without_vectors_scores_by_words(lexical: Index) -> None:
    await fill(lexical)
    hits = await lexical.search(["on the open sea"], limit=10, ranker="none")
    assert hits[0].document == "sea" and hits[0].score == 1.0 and 0 <= hits[-1].score < 1


async def test_weights_decide_which_ranking_counts(index: Index) -> None:
    await index.put("word", [Chunk("zebra " + "filler words that say nothing at all " * 9, 0)], title="")
    await index.put("near", [Chunk("zebras", 0)], title="")
    assert (await names(index, "zebra", weights=Weights(embedding=0))) == ["word"]
    assert len(await names(index, "zebra", weights=Weights(text=0))) == 2


@pytest.mark.parametrize("weights", [Weights(5e-324, 5e-324), Weights(5e-324, 1e308), Weights(1e308, 1e308)])
async def test_weights_of_any_size_are_only_compared(index: Index, weights: Weights) -> None:
    await fill(index)
    assert (await index.search(["sea ships"], limit=1, weights=weights))[0].score == 1.0
    assert len(await index.search(["zebra"], limit=5, weights=weights)) == 3, "no word is found"


async def test_a_vector_of_nothing_finds_nothing(index: Index, embedder: ToyEmbedder) -> None:
    await fill(index)

    async def nothing(texts: Sequence[str], **options: object) -> NDArray[np.float32]:
        return np.zeros((len(texts), embedder.width), np.float32)

    embedder.embed = nothing  # type: ignore[method-assign]
    assert await names(index, "?!") == []


async def test_each_of_several_questions_is_answered(index: Index) -> None:
    await fill(index)
    found = await index.search(["lazy dog", "open sea"], limit=2)
    assert {hit.document for hit in found} == {"fox", "sea"}
    assert await index.search([], limit=2) == []


async def test_a_blank_question_is_not_sent_to_the_embedder(index: Index, embedder: ToyEmbedder) -> None:
    await fill(index)
    embedder.asked.clear()
    assert len(await index.search([" ", "lazy", ""], limit=10)) == 3 and embedder.asked == ["lazy"]
    assert await index.search([""], limit=10) == [] and embedder.asked == ["lazy"]


async def test_filters_hold_for_words_and_vectors(index: Index) -> None:
    for number, (name, text) in enumerate(TEXTS.items()):
        await index.put(name, [Chunk(text, 0)], title="", attributes={"n": number})
    taken = read_filter({"type": "gte", "key": "n", "value": 1})
    assert set(await names(index, "the lazy dog", filter=taken)) == {"cat", "sea"}
    assert await index.set_attributes("fox", {"n": 7})
    assert not await index.set_attributes("gone", {"n": 7})
    assert (await names(index, "the lazy dog", filter=taken))[0] == "fox"
    [hit] = await index.search(["the lazy dog"], limit=1, filter=taken)
    assert hit.attributes == {"n": 7}


@pytest.mark.parametrize("limit", [0, 10**9], ids=["from the file", "in memory"])
async def test_vectors_are_exact(
    tmp_path: Path, embedder: ToyEmbedder, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "BLOCK", 64)
    async with await Index.open(tmp_path / "exact", embedder=embedder, memory=VectorMemory(limit)) as index:
        await are_exact(index, embedder)


async def are_exact(index: Index, embedder: ToyEmbedder) -> None:
    drawn = np.random.default_rng(7)
    texts = {f"d{n}": " ".join(f"w{k}" for k in drawn.integers(0, 60, 12)) for n in range(300)}
    await index.put_all([Document(name, [Chunk(text, 0)]) for name, text in texts.items()])
    for question in ("w1 w2 w3", "w10 w20", "w59"):
        hits = await index.search([question], limit=20, ranker="none")
        cosines = await embedder.embed(list(texts.values())) @ (await embedder.embed([question]))[0]
        order = sorted(range(len(texts)), key=lambda n: (-cosines[n], n))[:20]
        assert [hit.score for hit in hits] == pytest.approx([float(cosines[n]) for n in order], abs=1e-6)
        assert {hit.document for hit in hits if hit.score > cosines[order[-1]] + 1e-6} <= {f"d{n}" for n in order}


async def test_what_is_searched_changes_while_vectors_are_in_memory(index: Index) -> None:
    texts = {f"d{n}": f"w{n} x{n}" for n in range(10)}
    await fill(index, texts)
    for n in range(10):
        assert (await names(index, f"w{n} x{n}", limit=1)) == [f"d{n}"]
        await index.remove(f"d{n}")
        await index.put(f"e{n}", [Chunk(f"y{n}", 0)], title="")
        assert f"d{n}" not in await names(index, f"w{n}", limit=50)
        assert (await names(index, f"y{n}", limit=1)) == [f"e{n}"]


async def test_vectors_that_do_not_fit_are_read_from_the_file(tmp_path: Path, embedder: ToyEmbedder) -> None:
    memory = VectorMemory(limit=0)
    async with await Index.open(tmp_path / "small.sqlite3", embedder=embedder, memory=memory) as index:
        await fill(index)
        assert (await names(index, "ships sail", weights=Weights(text=0)))[0] == "sea"
    assert memory.nbytes == 0


async def test_the_longest_unused_vectors_leave_the_memory(tmp_path: Path, embedder: ToyEmbedder) -> None:
    memory = VectorMemory(limit=2 * 3 * (4 * embedder.width + 24))
    indexes = [await Index.open(tmp_path / f"{n}.sqlite3", embedder=embedder, memory=memory) for n in range(3)]
    for index in indexes:
        await fill(index)
        assert (await names(index, "ships sail"))[0] == "sea"
        assert memory.nbytes <= 2 * 3 * (4 * embedder.width + 24)
    assert (await names(indexes[0], "ships sail"))[0] == "sea"
    for index in indexes:
        await index.aclose()
    assert memory.nbytes == 0


async def test_without_its_embedder_a_document_is_found_by_words_and_embedded_later(
    index: Index, embedder: ToyEmbedder
) -> None:
    embedder.down = True
    await fill(index)
    assert (index.mode, index.reason) == ("lexical", "The toy is down.")
    assert await names(index, "lazy") == ["fox"]
    assert await index.embed_missing() == 0
    embedder.down = False
    assert await index.embed_missing() == 3
    assert (index.mode, index.reason) == ("hybrid", None)
    assert len(await names(index, "lazy")) == 3
    embedder.asked.clear()
    assert await index.embed_missing() == 0 and embedder.asked == []


@pytest.mark.parametrize(("name", "width"), [("other", 32), ("toy", 16)])
async def test_vectors_of_another_model_or_dimension_are_made_again(
    tmp_path: Path, memory: VectorMemory, index: Index, name: str, width: int
) -> None:
    await fill(index)
    assert len(await names(index, "lazy")) == 3
    other = ToyEmbedder(name, width)
    async with await Index.open(tmp_path / "index.sqlite3", embedder=other, memory=memory) as again:
        assert await names(again, "lazy") == ["fox"]  # no vector of its model yet
        assert await again.embed_missing() == 3
        assert len(await names(again, "lazy")) == 3
        assert await names(index, "lazy") == ["fox"]  # its vectors went, in memory, too


async def test_a_server_whose_dimension_changes_is_followed(index: Index, embedder: ToyEmbedder) -> None:
    await fill(index)
    assert len(await names(index, "lazy")) == 3
    embedder.width = 8
    assert await names(index, "lazy") == ["fox"]
    assert await index.embed_missing() == 3
    assert len(await names(index, "lazy")) == 3


async def test_models_that_take_turns_are_not_asked_for_ever(
    index: Index, embedder: ToyEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = embedder.embed

    async def turns(texts: Sequence[str], **how: Any) -> NDArray[np.float32]:
        embedder.width = 24 - embedder.width if embedder.width < 24 else 8
        return await embed(texts, **how)

    embedder.down = True
    await index.put("many", [Chunk(f"text {n}", n) for n in range(3 * BATCH)], title="")
    embedder.down = False
    monkeypatch.setattr(embedder, "embed", turns)
    async with asyncio.timeout(10):
        await index.embed_missing()
    assert (index.mode, index.reason) == ("lexical", CHANGED)
    monkeypatch.setattr(embedder, "embed", embed)
    while index.mode == "lexical":
        await index.embed_missing()
    assert (await index.counts()).waiting == 0


async def test_a_text_that_the_model_refuses_keeps_no_other_from_its_vector(
    index: Index, embedder: ToyEmbedder
) -> None:
    embedder.refused = "sea"
    await index.put("all", [Chunk(text, 0) for text in TEXTS.values()], title="")
    assert index.mode == "hybrid"
    assert await index.embed_missing() == 2
    embedder.asked.clear()
    assert await index.embed_missing() == 0 and embedder.asked == []
    assert await names(index, "sea", weights=Weights(embedding=0)) == ["all"]


async def test_texts_are_embedded_in_batches(index: Index, embedder: ToyEmbedder) -> None:
    sizes: list[int] = []
    embed = embedder.embed

    async def counted(texts: list[str], **options: object) -> object:
        sizes.append(len(texts))
        return await embed(texts)

    embedder.embed = counted  # type: ignore[method-assign,assignment]
    await index.put("long", [Chunk(f"w{n}", n) for n in range(BATCH * 2 + 1)], title="")
    assert sizes == [BATCH, BATCH, 1]


async def test_the_bytes_of_a_document_are_those_of_its_text_and_vectors(index: Index, embedder: ToyEmbedder) -> None:
    assert await index.put("é", [Chunk("é", 0), Chunk("b", 1)], title="") == 3 + 2 * 4 * embedder.width


async def test_a_document_that_could_not_be_written_leaves_the_one_before(lexical: Index, tmp_path: Path) -> None:
    await fill(lexical)
    with pytest.raises(IndexFault):
        await lexical.put("fox", [Chunk("new", 0)], title="", stamp=None)  # type: ignore[arg-type]
    assert await lexical.chunks_of("fox") == [TEXTS["fox"]]
    assert await names(lexical, "lazy") == ["fox"]
    assert (tmp_path / "lexical.sqlite3").stat().st_mode & 0o777 == 0o600


async def test_a_file_that_is_no_index_is_told(tmp_path: Path, memory: VectorMemory) -> None:
    (tmp_path / "bad").write_bytes(b"no database" * 100)
    with pytest.raises(IndexFault, match="is damaged"):
        await Index.open(tmp_path / "bad", embedder=None, memory=memory)
    with pytest.raises(IndexFault, match="cannot be opened: No such file"):
        await Index.open(tmp_path / "gone" / "index", embedder=None, memory=memory)
    sqlite3.connect(tmp_path / "new").execute("pragma user_version = 99").connection.close()
    with pytest.raises(IndexFault, match="another version"):
        await Index.open(tmp_path / "new", embedder=None, memory=memory)


async def test_an_index_whose_vectors_have_yet_to_come_is_searched(index: Index) -> None:
    assert await index.embed_missing() == 0
    await index.put_all([Document("d", [Chunk("words", 0)])], embed=False)
    assert await names(index, "words") == ["d"]


async def test_several_indexes_answer_as_one(tmp_path: Path, embedder: ToyEmbedder, memory: VectorMemory) -> None:
    indexes = [await Index.open(tmp_path / f"{n}.sqlite3", embedder=embedder, memory=memory) for n in range(2)]
    await fill(indexes[0], {"a": "apples and pears", "b": "birds"})
    await fill(indexes[1], {"c": "the open sea", "d": "pears of the south"})
    hits = await search_all(indexes, Search(["pears of the south"], limit=2))
    assert [(place, hit.document) for place, hit in hits] == [(1, "d"), (0, "a")]
    assert hits[0][1].score == 1.0
    assert await search_all([], Search(["x"], limit=2)) == []
    for index in indexes:
        await index.aclose()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
async def test_a_file_that_cannot_be_used_is_let_go(tmp_path: Path) -> None:
    """Whoever keeps the error keeps the frames in which the connection was."""
    path = tmp_path / "no.index"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(IndexDamaged) as _kept:
        await Index.open(path, embedder=None, memory=VectorMemory())
    open_files = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    assert str(path) not in open_files
