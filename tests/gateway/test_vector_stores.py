"""Vector stores, search and citations through a real gateway, for the SDK, with an embedding server on loopback."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import openai
import pytest
from openai import OpenAI

from ferrule.testing import ScriptedModel, function_call, step
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.cli.command import Place
from tests.documents.papers import pdf
from tests.gateway.served import Json, Served, new_place, serving
from tests.retrieval.embedding_server import EmbeddingServer

TOWER = ("tower.pdf", pdf("The tower has 42 metres"))
PEARS = ("pears.txt", "Pears are sweet【7】. Grüße".encode("utf-16"))
BROKEN = ("broken.pdf", b"%PDF-1.7 and nothing more")


def does(request: Request) -> Simple:
    """Search twice, then say what was found, with marks."""
    number = len(request.outputs)
    calls = [function_call("file_search", {"queries": [text]}) for text in ("tower", "pears")]
    return calls[number] if number < 2 else step("It is 42 m【1】. Pears are sweet【3】.【9】", delta_chars=2)


def configured(folder: Path, embedding: EmbeddingServer) -> Place:
    """A place whose configuration names the embedding server."""
    place = new_place(folder)
    place.home.mkdir(parents=True)
    Path(place.home, "config.toml").write_text(
        f'[embeddings]\nbase_url = "{embedding.url}"\nmodel = "toy"\n[gateway]\nmax_upload_bytes = 200000\n'
    )
    return place


@pytest.fixture(scope="module")
def embedding() -> Iterator[EmbeddingServer]:
    server = EmbeddingServer()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, embedding: EmbeddingServer) -> Iterator[Served]:
    place = configured(tmp_path_factory.mktemp("vectors"), embedding)
    with ScriptedModel(does) as model, serving(place, model.base_url) as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as made:
        yield made


def wait(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_the_sdk_makes_fills_and_searches_a_store(client: OpenAI) -> None:
    stores = client.vector_stores
    store = stores.create(name="Fruit", metadata={"a": "b"}, expires_after={"anchor": "last_active_at", "days": 3})
    assert (store.status, store.expires_at) == ("completed", (store.last_active_at or 0) + 3 * 86_400)
    tower = stores.files.upload_and_poll(vector_store_id=store.id, file=TOWER)
    pears = stores.files.upload_and_poll(vector_store_id=store.id, file=PEARS, attributes={"kind": "fruit", "n": 1})
    assert (tower.status, pears.status) == ("completed", "completed") and pears.usage_bytes > 0
    assert tower.chunking_strategy is not None and tower.chunking_strategy.type == "static"
    sizes = tower.chunking_strategy.static
    assert (sizes.max_chunk_size_tokens, sizes.chunk_overlap_tokens) == (800, 400)

    found = stores.search(store.id, query="tower metres")
    assert found.object == "vector_store.search_results.page"
    assert found.search_query == ["tower metres"]  # type: ignore[attr-defined]
    assert (found.data[0].file_id, found.data[0].filename, found.data[0].score) == (tower.id, "tower.pdf", 1.0)
    scores = [one.score for one in found.data]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    some = stores.search(store.id, query=["tower", "'\"*( AND"], filters={"type": "eq", "key": "n", "value": 1.0})
    assert [one.file_id for one in some.data] == [pears.id]
    assert stores.search(store.id, query="pears", filters={"type": "eq", "key": "n", "value": True}).data == []
    for odd in ("", "\0", "NEAR(", "x" * 100_000, "🍐" * 50):
        stores.search(store.id, query=odd)
    high = stores.search(store.id, query="tower", ranking_options={"score_threshold": 0.9}, max_num_results=1)
    assert [one.file_id for one in high.data] == [tower.id]

    stores.files.update(pears.id, vector_store_id=store.id, attributes={"n": 2})
    assert stores.files.retrieve(pears.id, vector_store_id=store.id).attributes == {"n": 2}
    of_two = stores.search(store.id, query="pears", filters={"type": "gte", "key": "n", "value": 2})
    assert [one.attributes for one in of_two.data] == [{"n": 2}]
    assert [one.text for one in stores.files.content(pears.id, vector_store_id=store.id)] == [
        "Pears are sweet【7】. Grüße"
    ]


def test_a_batch_tells_what_cannot_be_read_and_a_store_changes_and_goes(client: OpenAI) -> None:
    stores = client.vector_stores
    store = stores.create(name="Fruit", metadata={"a": "b"}, expires_after={"anchor": "last_active_at", "days": 3})
    tower = stores.files.upload_and_poll(vector_store_id=store.id, file=TOWER)
    stores.files.upload_and_poll(vector_store_id=store.id, file=PEARS)
    broken = client.files.create(file=BROKEN, purpose="assistants")
    batch = stores.file_batches.create_and_poll(store.id, file_ids=[tower.id, broken.id, tower.id])
    counts = batch.file_counts
    assert (batch.status, counts.completed, counts.failed, counts.total) == ("completed", 1, 1, 2)
    failed = stores.files.list(store.id, filter="failed").data
    assert [one.id for one in failed] == [broken.id] and failed[0].last_error is not None
    assert failed[0].last_error.code == "invalid_file" and "/" not in failed[0].last_error.message
    listed = stores.file_batches.list_files(batch.id, vector_store_id=store.id)
    assert {one.id for one in listed} == {tower.id, broken.id}
    assert stores.file_batches.cancel(batch.id, vector_store_id=store.id).status == "completed"
    assert len(stores.files.list(store.id).data) == 3, "a file that is added again is one entry"
    assert [len(page.data) for page in stores.files.list(store.id, limit=2).iter_pages()] == [2, 1]

    changed = stores.update(store.id, name="Pears", expires_after=None)
    assert (changed.name, changed.expires_at, changed.metadata) == ("Pears", None, {"a": "b"})
    assert changed.file_counts.total == 3 and changed.usage_bytes > 0 and store.id in {one.id for one in stores.list()}
    assert stores.delete(store.id).deleted
    with pytest.raises(openai.NotFoundError):
        stores.retrieve(store.id)


def test_what_is_deleted_is_not_found_any_more(client: OpenAI, gateway: Served) -> None:
    stores = client.vector_stores
    one, two, three = (client.files.create(file=PEARS, purpose="assistants").id for _ in range(3))
    store = stores.create(file_ids=[one, two, three])
    wait(lambda: stores.retrieve(store.id).status == "completed")
    stores.files.delete(one, vector_store_id=store.id)
    client.files.delete(two)
    assert {hit.file_id for hit in stores.search(store.id, query="pears")} == {three}
    assert [entry.id for entry in stores.files.list(store.id)] == [three]
    for path in (f"/files/{one}", f"/files/{two}", f"/files/{two}/content"):
        assert gateway.ask("GET", f"/vector_stores/{store.id}{path}").status == 404
    assert client.files.retrieve(one).id == one, "the file itself stays"
    stores.delete(store.id)
    assert not list(gateway.place.home.rglob(f"{store.id}*"))


def test_a_file_expires_with_its_bytes_and_its_place_in_the_store(client: OpenAI, gateway: Served) -> None:
    contents = next(gateway.place.home.rglob("*.files"))
    before = set(contents.iterdir())
    file = client.files.create(file=PEARS, purpose="assistants", expires_after={"anchor": "created_at", "seconds": 1})
    store = client.vector_stores.create()
    with suppress(openai.NotFoundError):  # on a busy machine its second is over
        client.vector_stores.files.create(store.id, file_id=file.id)
    wait(lambda: set(contents.iterdir()) <= before)
    assert gateway.ask("GET", f"/files/{file.id}").status == 404
    wait(lambda: client.vector_stores.retrieve(store.id).file_counts.total == 0)
    assert client.vector_stores.search(store.id, query="pears").data == []


def test_marks_become_citations_whole_and_streamed(client: OpenAI, gateway: Served) -> None:
    files = [client.files.create(file=file, purpose="assistants").id for file in (TOWER, PEARS)]
    store = client.vector_stores.create(file_ids=files)
    wait(lambda: client.vector_stores.retrieve(store.id).status == "completed")
    tools = [{"type": "file_search", "vector_store_ids": [store.id]}]
    asked = {"model": "m", "input": "x", "tools": tools, "include": ["file_search_call.results"]}
    reply = gateway.ask("POST", "/responses", asked).json
    first, second, said = reply["output"]
    assert (first["type"], first["status"], first["queries"]) == ("file_search_call", "completed", ["tower"])
    assert {one["file_id"] for one in first["results"]} == set(files)
    assert second["results"][0]["filename"] == "pears.txt"
    (part,) = said["content"]
    assert part["text"] == "It is 42 m. Pears are sweet."
    assert part["annotations"] == [
        {"type": "file_citation", "index": 10, "file_id": files[0], "filename": "tower.pdf"},
        {"type": "file_citation", "index": 27, "file_id": files[1], "filename": "pears.txt"},
    ]
    with client.responses.stream(model="m", input="x", tools=tools) as stream:  # type: ignore[arg-type]
        events = [*stream]
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    calls = [event.type for event in events if event.type.startswith("response.file_search_call")]
    assert deltas == part["text"] and calls == [
        f"response.file_search_call.{one}" for one in ("in_progress", "searching", "completed")
    ] * 2  # fmt: skip
    item = stream.get_final_response().output[0].model_dump()
    assert item["results"] is None
    again = client.responses.create(model="m", input=[*reply["output"], {"role": "user", "content": "y"}], tools=tools)  # type: ignore[arg-type]
    assert again.status == "completed"


def test_a_search_of_the_model_is_bounded_as_its_client_says(client: OpenAI, gateway: Served) -> None:
    tower, pears = (client.files.create(file=file, purpose="assistants").id for file in (TOWER, PEARS))
    store = client.vector_stores.create(file_ids=[tower])
    client.vector_stores.files.create(store.id, file_id=pears, attributes={"kind": "fruit"})
    wait(lambda: client.vector_stores.retrieve(store.id).file_counts.completed == 2)
    for wish, found in (
        ({}, [tower, pears]),
        ({"max_num_results": 1}, [tower]),
        ({"filters": {"type": "ne", "key": "kind", "value": "fruit"}}, [tower]),
        ({"filters": {"type": "and", "filters": [{"type": "eq", "key": "kind", "value": "fruit"}]}}, [pears]),
        ({"ranking_options": {"score_threshold": 0.9}}, [tower]),
    ):
        tool = {"type": "file_search", "vector_store_ids": [store.id], **wish}
        asked = {"model": "m", "input": "x", "tools": [tool], "include": ["file_search_call.results"]}
        results = gateway.ask("POST", "/responses", asked).json["output"][0]["results"]
        assert [one["file_id"] for one in results] == found, wish


def strategy(most: int, overlap: int) -> Json:
    return {"type": "static", "static": {"max_chunk_size_tokens": most, "chunk_overlap_tokens": overlap}}


DEEP: Json = {"type": "eq", "key": "a", "value": 1}
for _ in range(32):
    DEEP = {"type": "and", "filters": [DEEP]}

WRONG: dict[str, tuple[str, Json, int, str]] = {
    "size": ("/files", {"chunking_strategy": strategy(99, 0)}, 400, "chunking_strategy"),
    "large": ("/files", {"chunking_strategy": strategy(4097, 0)}, 400, "chunking_strategy"),
    "overlap": ("/files", {"chunking_strategy": strategy(101, 51)}, 400, "chunking_strategy"),
    "attributes": ("/files", {"attributes": {f"k{n}": 1 for n in range(17)}}, 400, "attributes"),
    "key": ("/files", {"attributes": {"k" * 65: 1}}, 400, "attributes"),
    "value": ("/files", {"attributes": {"k": "v" * 513}}, 400, "attributes"),
    "kind": ("/files", {"attributes": {"k": [1]}}, 400, "attributes"),
    "number": ("/files", {"attributes": {"k": 10**309}}, 400, "attributes"),
    "file": ("/files", {"file_id": "file-none"}, 404, "file_id"),
    "batch": ("/file_batches", {"file_ids": ["file-none"]}, 404, "file_ids[0]"),
    "both": ("/file_batches", {"file_ids": [], "files": []}, 400, "file_ids"),
    "none": ("/file_batches", {"file_ids": []}, 400, "file_ids"),
    "test": ("/search", {"filters": {"type": "like", "key": "a", "value": 1}}, 400, "filters"),
    "compared": ("/search", {"filters": {"type": "gt", "key": "a", "value": True}}, 400, "filters"),
    "empty": ("/search", {"filters": {"type": "and", "filters": []}}, 400, "filters"),
    "deep": ("/search", {"filters": DEEP}, 400, "filters"),
    "many": ("/search", {"max_num_results": 51}, 400, "max_num_results"),
    "score": ("/search", {"ranking_options": {"score_threshold": 1.5}}, 400, "ranking_options.score_threshold"),
    "weights": (
        "/search",
        {"ranking_options": {"hybrid_search": {"embedding_weight": 0, "text_weight": 0}}},
        400,
        "ranking_options.hybrid_search",
    ),
}


def test_wrong_requests_name_what_is_wrong(client: OpenAI, gateway: Served) -> None:
    store = client.vector_stores.create().id
    file = client.files.create(file=PEARS, purpose="assistants").id
    for name, (path, body, status, param) in WRONG.items():
        whole = {"file_id": file} if path == "/files" else {"query": "x"} if path == "/search" else {}
        answer = gateway.ask("POST", f"/vector_stores/{store}{path}", whole | body)
        assert (answer.status, answer.error["param"]) == (status, param), (name, answer.body)
    for method, path in (("GET", ""), ("POST", "/search"), ("POST", "/files"), ("GET", "/files"), ("DELETE", "")):
        assert gateway.ask(method, f"/vector_stores/vs_none{path}", {"query": "x", "file_id": file}).status == 404
    tool: Json = {"type": "file_search", "vector_store_ids": [store]}
    for more, status, param in (
        ({"vector_store_ids": ["vs_none"]}, 404, "tools[0].vector_store_ids[0]"),
        ({"vector_store_ids": []}, 400, "tools[0].vector_store_ids"),
        ({"filters": {"type": "or", "filters": []}}, 400, "tools[0].filters"),
        ({"max_num_results": 0}, 400, "tools[0].max_num_results"),
        ({"ranking_options": {"ranker": "best"}}, 400, "tools[0].ranking_options.ranker"),
    ):
        answer = gateway.ask("POST", "/responses", {"model": "m", "input": "x", "tools": [tool | more]})
        assert (answer.status, answer.error["param"]) == (status, param), answer.body


def test_a_file_that_is_too_large_and_one_at_a_private_address_are_refused(gateway: Served) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as line:
        head = "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-type: multipart/form-data; boundary=x\r\n"
        line.sendall(f"{head}content-length: 3000000\r\n\r\n--x".encode())
        assert b" 413 " in line.recv(4096), "it is refused before it is read"
    part = {"type": "input_file", "file_url": f"http://127.0.0.1:{gateway.port}/secret"}
    answer = gateway.ask("POST", "/responses", {"model": "m", "input": [{"role": "user", "content": [part]}]})
    assert (answer.status, answer.error["param"]) == (403, "input[0].content[0].file_url")


def test_without_the_embedding_server_words_are_found_and_vectors_come_later(
    client: OpenAI, gateway: Served, embedding: EmbeddingServer
) -> None:
    stores = client.vector_stores
    embedding.status, embedding.answer = 500, {"error": "down"}
    store = stores.create().id
    begun = time.monotonic()
    file = stores.files.upload_and_poll(vector_store_id=store, file=("note.txt", b"The quick zebra"))
    assert file.status == "completed" and time.monotonic() - begun < 5
    shown = gateway.ask("GET", f"/vector_stores/{store}").json
    assert shown["search_mode"] == "lexical" and shown["search_mode_reason"]
    assert [one.file_id for one in stores.search(store, query="zebra")] == [file.id]
    embedding.status, embedding.answer = 200, None
    wait(lambda: "The quick zebra" in embedding.texts()[-40:] and gateway.ask("GET", f"/vector_stores/{store}").json)
    wait(lambda: gateway.ask("GET", f"/vector_stores/{store}").json["search_mode"] == "hybrid")
    assert gateway.ask("GET", f"/vector_stores/{store}").json["search_mode_reason"] is None
