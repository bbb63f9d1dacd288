"""Vector stores: files in them, batches, search, and `file_search` over them."""

import time

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.groups.containers import call_of, item_of, require
from ferrule.conformance.server import SHORT, Json, Server

PLUMS = b"Plums ripen in August and are dried into prunes."
BRIDGE = b"The bridge of Brix has seven arches of granite."
RESULTS = ["file_search_call.results"]
WAIT_S = 60.0
"""Until a file of some words is read."""
SIZES: Json = {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 100}
BAD_SIZES: tuple[tuple[int, int], ...] = ((99, 0), (4097, 0), (800, 401))
BAD_FILTERS: tuple[Json, ...] = (
    {"type": "like", "key": "kind", "value": "fruit"},
    {"type": "and", "filters": []},
    {"type": "eq", "key": "kind", "value": {}},
)
GOOD_FILTERS: tuple[Json, ...] = (
    {"type": "eq", "key": "kind", "value": "fruit"},
    {"type": "ne", "key": "kind", "value": "stone"},
    {"type": "in", "key": "kind", "value": ["fruit", "tree"]},
    {"type": "gte", "key": "weight", "value": 2.5},
    {"type": "lte", "key": "kind", "value": "grape"},
    {
        "type": "and",
        "filters": [{"type": "gt", "key": "weight", "value": 2}, {"type": "nin", "key": "x", "value": [1]}],
    },
    {
        "type": "or",
        "filters": [{"type": "gt", "key": "weight", "value": 9}, {"type": "lt", "key": "kind", "value": "g"}],
    },
)


def store(server: Server, **fields: object) -> Json:
    """Make a vector store."""
    answer = server.send("POST", "/vector_stores", {"name": "check", **fields})
    require(answer, "vector stores")
    expect_equal(answer.status, 200, f"the status of a new vector store ({answer.body[:200]!r})")
    return answer.json


def file(server: Server, content: bytes, name: str = "check.txt") -> str:
    """Keep a file. Returns its id."""
    made: str = server.post_file("/files", content, name=name, purpose="assistants")["id"]
    return made


def added(server: Server, path: str, content: bytes, **fields: object) -> Json:
    """Add a new file to a store and wait until it is read."""
    file_id = file(server, content)
    server.post(f"{path}/files", {"file_id": file_id, **fields})
    return settled(server, f"{path}/files/{file_id}")


def settled(server: Server, path: str) -> Json:
    """Return what is at a path as soon as it is not in progress any more."""
    ends = time.monotonic() + WAIT_S
    while (found := server.get(path))["status"] == "in_progress":
        expect(time.monotonic() < ends, f"{path} is in progress for more than {WAIT_S:g} seconds")
        time.sleep(0.05)
    return found


@check
def keep(server: Server) -> None:
    """A vector store is kept, changed, listed and deleted."""
    made = store(server, metadata={"a": "b"}, expires_after={"anchor": "last_active_at", "days": 7})
    counts = dict.fromkeys(("in_progress", "completed", "failed", "cancelled", "total"), 0)
    told = {key: made.get(key) for key in ("object", "name", "status", "usage_bytes", "file_counts", "metadata")}
    wanted = {
        "object": "vector_store",
        "name": "check",
        "status": "completed",
        "usage_bytes": 0,
        "file_counts": counts,
        "metadata": {"a": "b"},
    }
    expect_equal(told, wanted, "the store")
    expect_equal(made["expires_at"], made["last_active_at"] + 7 * 86_400, "when it expires")
    path = f"/vector_stores/{made['id']}"
    expect_equal(server.get(path)["name"], "check", "its name, read again")
    changed = server.post(path, {"name": "other", "metadata": {"c": "d"}})
    expect_equal((changed["name"], changed["metadata"]), ("other", {"c": "d"}), "what was changed")
    expect(
        made["id"] in [one["id"] for one in server.get("/vector_stores", limit=100)["data"]], "it is not in the list"
    )
    gone = server.send("DELETE", path).json
    expect_equal((gone.get("object"), gone.get("deleted")), ("vector_store.deleted", True), "its deletion")
    expect_equal(server.send("GET", path).status, 404, "the status then")


@check
def read(server: Server) -> None:
    """A file is read in the background, shows what was read, and is found by a search."""
    path = f"/vector_stores/{store(server)['id']}"
    plums = added(server, path, PLUMS, attributes={"kind": "fruit"})
    bridge = added(server, path, BRIDGE, chunking_strategy={"type": "static", "static": SIZES})
    told = [(one["object"], one["status"], one["last_error"]) for one in (plums, bridge)]
    expect_equal(told, [("vector_store.file", "completed", None)] * 2, "the files")
    expect_equal(
        (plums["attributes"], bridge["chunking_strategy"]["static"]), ({"kind": "fruit"}, SIZES), "their fields"
    )
    page = server.get(f"{path}/files/{plums['id']}/content")
    expect(PLUMS.decode() in "".join(one["text"] for one in page["data"]), "the content is not what was read")
    found = server.post(f"{path}/search", {"query": "arches of the bridge"})
    expect_equal(
        (found["object"], found["search_query"]), ("vector_store.search_results.page", ["arches of the bridge"]), "it"
    )
    best = found["data"][0]
    expect_equal((best["file_id"], best["content"][0]["type"]), (bridge["id"], "text"), "the best result")
    scores = [one["score"] for one in found["data"]]
    expect(scores == sorted(scores, reverse=True) and all(0 <= one <= 1 for one in scores), f"the scores are {scores}")
    expect_equal(server.get(path)["file_counts"]["completed"], 2, "the files that are counted")
    server.send("DELETE", f"{path}/files/{bridge['id']}")
    left = server.post(f"{path}/search", {"query": "arches of the bridge"})["data"]
    expect(bridge["id"] not in [one["file_id"] for one in left], "a file that was taken out is found")


@check
def filters(server: Server) -> None:
    """Attributes filter what is found; wrong filters are a 400."""
    path = f"/vector_stores/{store(server)['id']}"
    plums = added(server, path, PLUMS, attributes={"kind": "fruit", "weight": 2.5})
    added(server, path, BRIDGE, attributes={"kind": "stone", "weight": 1})
    for one in GOOD_FILTERS:
        found = server.post(f"{path}/search", {"query": "plums", "filters": one})["data"]
        expect_equal([hit["file_id"] for hit in found], [plums["id"]], f"what {one} finds")
    for one in BAD_FILTERS:
        answer = server.send("POST", f"{path}/search", {"query": "plums", "filters": one})
        expect_equal((answer.status, answer.error.get("param")), (400, "filters"), f"the answer to {one}")


@check
def batches(server: Server) -> None:
    """A batch counts its files, also those that fail, and ends."""
    path = f"/vector_stores/{store(server)['id']}"
    ids = [file(server, PLUMS), file(server, b"\0\1\2\3\4\5\6\7" * 8, "check.bin")]
    batch = server.post(f"{path}/file_batches", {"file_ids": ids})
    expect_equal(batch["object"], "vector_store.files_batch", "the object")
    ended = settled(server, f"{path}/file_batches/{batch['id']}")
    counts = {key: ended["file_counts"][key] for key in ("completed", "failed", "total")}
    expect_equal((ended["status"], counts), ("completed", {"completed": 1, "failed": 1, "total": 2}), "the batch")
    (failed,) = server.get(f"{path}/file_batches/{batch['id']}/files", filter="failed")["data"]
    expect_equal((failed["id"], failed["last_error"]["code"]), (ids[1], "unsupported_file"), "the file that failed")


@check
def refused(server: Server) -> None:
    """What cannot be is an error with its field."""
    path = f"/vector_stores/{store(server)['id']}"
    kept = file(server, PLUMS)
    for most, overlap in BAD_SIZES:
        sizes = {"max_chunk_size_tokens": most, "chunk_overlap_tokens": overlap}
        body = {"file_id": kept, "chunking_strategy": {"type": "static", "static": sizes}}
        expect_equal(server.send("POST", f"{path}/files", body).status, 400, f"the status for {sizes}")
    many = {f"key{number}": 1 for number in range(17)}
    for attributes in (many, {"k" * 65: 1}, {"k": "v" * 513}):
        answer = server.send("POST", f"{path}/files", {"file_id": kept, "attributes": attributes})
        expect_equal((answer.status, answer.error.get("param")), (400, "attributes"), "the answer to wrong attributes")
    for where, wrong in (
        (f"{path}/files", {"file_id": "file-none"}),
        ("/vector_stores/vs_none/search", {"query": "x"}),
    ):
        expect_equal(server.send("POST", where, wrong).status, 404, f"the status of {where}")
    answer = server.ask(input=SHORT, tools=[{"type": "file_search", "vector_store_ids": ["vs_none"]}])
    expect(answer.status in (400, 404), f"the status for an unknown store in a tool is {answer.status}")
    expect("tools" in str(answer.error.get("param")), f"the error names {answer.error.get('param')!r}")


@check
def file_search(server: Server) -> None:
    """The model searches: an item with its queries and results, its events in order, and it can be sent back."""
    made = store(server)
    added(server, f"/vector_stores/{made['id']}", BRIDGE)
    tool: Json = {"type": "file_search", "vector_store_ids": [made["id"]], "max_num_results": 3}
    asked = call_of(tool, {"queries": ["arches of the bridge"]})
    stream = server.stream(**asked, include=RESULTS)
    item = item_of(stream.final, "file_search_call")
    expect_equal((item["status"], item["queries"]), ("completed", ["arches of the bridge"]), "the call")
    expect_equal(item["results"][0]["text"], BRIDGE.decode(), "the text that was found")
    told = [event.type for event in stream.events if event.data.get("item_id") == item["id"]]
    stages = ("in_progress", "searching", "completed")
    expect_equal(told, [f"response.file_search_call.{one}" for one in stages], "the events")
    plain = item_of(server.create(**asked), "file_search_call")
    expect_equal(plain.get("results"), None, "the results where nobody asks for them")
    back = [*stream.final["output"], {"role": "user", "content": SHORT}]
    expect_equal(server.create(input=back, tools=[tool])["status"], "completed", "the status of what follows")
