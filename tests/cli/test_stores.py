"""`ferrule stores` as a command, on what a gateway keeps."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ferrule.cli.main import main
from ferrule.hosted.vector_stores import index_folder
from ferrule.retrieval import embedders
from ferrule.retrieval.chunking import Chunk
from ferrule.retrieval.index import Index
from ferrule.retrieval.vectors import VectorMemory
from ferrule.store import FileRecord, NewStoreFile, Store, VectorStore

TEXT = b"The tower of Brix is 42 m high."


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(embedders, "find_spec", lambda name: None)  # no vectors: loading them takes half a second
    return tmp_path / "home"


async def content() -> AsyncIterator[bytes]:
    yield TEXT


async def make(state: Path) -> None:
    """A store with a file as the gateway would leave it, of a client with a key, and one that is empty."""
    async with await Store.open(state) as store:
        await store.add_key("ann")
        file = FileRecord(id="file-1", owner="ann", created_at=1, filename="tower.txt", purpose="assistants")
        await store.create_file(file, content())
        added = NewStoreFile(file="file-1", param="file_ids[0]", max_tokens=800, overlap_tokens=400)
        record = VectorStore(id="vs_1", owner="ann", created_at=1, last_active_at=1, name="towers")
        _, [unread] = await store.create_vector_store(record, [added])
        await store.create_vector_store(VectorStore(id="vs_2", owner="", created_at=2, last_active_at=2), [])
        index_folder(state).mkdir()
        path = index_folder(state) / "vs_1.index"
        async with await Index.open(path, embedder=None, memory=VectorMemory()) as index:
            used = await index.put("file-1", [Chunk(TEXT.decode(), 0)], title="tower.txt")
        await store.end_store_file(unread.number, usage_bytes=used)


def test_stores_are_listed_searched_and_removed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = home / "gateway" / "state.sqlite"
    asyncio.run(make(state))
    assert main(["stores"]) == 0
    assert capsys.readouterr().out == "vs_2  -  0 files, 0.0 MB\nvs_1  towers  1 files, 0.0 MB, of the key ann\n"
    assert main(["stores", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[1])["bytes"] == len(TEXT)
    assert main(["stores", "search", "vs_1", "how high is the tower"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"tower.txt  1.00\n{TEXT.decode()}\n\n" and "There are no vectors" in shown.err
    assert main(["stores", "rm", "vs_1"]) == 0
    assert [*index_folder(state).iterdir()] == []
    assert main(["stores", "search", "vs_1", "x"]) == 2
    assert "there is no vector store vs_1" in capsys.readouterr().err


def test_without_a_gateway_there_are_none_and_nothing_is_made(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stores", "list"]) == 0
    assert capsys.readouterr().out == "there are no vector stores; clients of `ferrule serve` make them\n"
    assert main(["stores", "rm", "vs_1"]) == 2
    assert not home.exists()
