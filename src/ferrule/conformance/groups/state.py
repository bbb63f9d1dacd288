"""What the server keeps."""

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.server import FORCED, SHORT, WEATHER, Json, Server

WORD = "plum"
TELL = f"My word is {WORD}. {SHORT}"
ASK = "Which word did I tell you was mine? Answer with that word alone."


def text_of(response: Json) -> str:
    """Return what a response says."""
    messages = (item for item in response["output"] if item["type"] == "message")
    return "".join(part.get("text", "") for item in messages for part in item["content"])


@check
def retrieve(server: Server) -> None:
    """A stored response is what was answered."""
    expect_equal(server.get(f"/responses/{server.answered['id']}"), server.answered, "the stored response")


@check
def previous_response(server: Server) -> None:
    """previous_response_id continues a response, and is echoed."""
    first = server.create(input=TELL)
    second = server.create(input=ASK, previous_response_id=first["id"])
    expect_equal(second["previous_response_id"], first["id"], "previous_response_id")
    expect(WORD in text_of(second).lower(), f"the model did not see what came before: {text_of(second)!r}")


@check
def instructions_end(server: Server) -> None:
    """Instructions are not carried over to what continues a response."""
    first = server.create(instructions="Be brief.")
    second = server.create(previous_response_id=first["id"])
    expect_equal(second["instructions"], None, "the instructions of the second response")


@check
def branch(server: Server) -> None:
    """Two responses can continue the same one."""
    first = server.create(input=TELL)["id"]
    for _ in range(2):
        expect(WORD in text_of(server.create(input=ASK, previous_response_id=first)).lower(), "a branch lost its past")


@check
def call_and_output(server: Server) -> None:
    """An output answers the call of the response that it continues."""
    made = server.create(**FORCED)
    (call,) = [item for item in made["output"] if item["type"] == "function_call"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    ended = server.create(input=[output], previous_response_id=made["id"], tools=[WEATHER])
    expect_equal(ended["status"], "completed", "the status")


@check
def not_stored(server: Server) -> None:
    """What is created with store false is echoed so, and cannot be read."""
    made = server.create(store=False)
    expect_equal(made["store"], False, "store")
    expect_equal(server.send("GET", f"/responses/{made['id']}").status, 404, "the status of reading it")


@check
def unknown_previous(server: Server) -> None:
    """An unknown previous_response_id has an error code of its own."""
    answer = server.ask(previous_response_id="resp_0000000000000000")
    expect(answer.status in (400, 404), f"the status is {answer.status}")
    expect_equal(answer.error.get("code"), "previous_response_not_found", "the code")


@check
def delete(server: Server) -> None:
    """A deleted response is gone."""
    path = f"/responses/{server.create()['id']}"
    answer = server.send("DELETE", path)
    expect_equal(answer.status, 200, "the status of deleting")
    expect_equal(answer.json.get("deleted"), True, "deleted")
    expect_equal(server.send("GET", path).status, 404, "the status of reading it")
    expect_equal(server.send("DELETE", path).status, 404, "the status of deleting it again")


@check
def input_items(server: Server) -> None:
    """The input comes back in pages, newest first unless asked otherwise."""
    given = [{"role": "user", "content": f"{SHORT} ({number})"} for number in range(5)]
    path = f"/responses/{server.create(input=given)['id']}/input_items"
    whole = server.get(path, order="asc", limit=100)
    ids = [item["id"] for item in whole["data"]]
    expect_equal((whole["object"], whole["has_more"], len(ids)), ("list", False, 5), "the list")
    expect_equal([item["id"] for item in server.get(path)["data"]], ids[::-1], "the order without order=asc")
    page = server.get(path, order="asc", limit=2)
    expect_equal((page["has_more"], page["first_id"], page["last_id"]), (True, ids[0], ids[1]), "the first page")
    rest = server.get(path, order="asc", after=ids[1])
    expect_equal([item["id"] for item in rest["data"]], ids[2:], "what follows the first page")


@check
def item_reference(server: Server) -> None:
    """A stored item can be named by its id."""
    (item, *_) = [item for item in server.answered["output"] if item["type"] == "message"]
    given = [{"type": "item_reference", "id": item["id"]}, {"role": "user", "content": SHORT}]
    expect_equal(server.create(input=given)["status"], "completed", "the status")


@check
def conversation(server: Server) -> None:
    """A conversation keeps the items of its responses, and what comes next sees them."""
    made = server.post("/conversations", {"metadata": {"a": "b"}})
    expect_equal((made["object"], made["metadata"]), ("conversation", {"a": "b"}), "the conversation")
    first = server.create(input=TELL, conversation=made["id"])
    expect_equal(first["conversation"], {"id": made["id"]}, "the echoed conversation")
    second = server.create(input=ASK, conversation={"id": made["id"]})
    expect(WORD in text_of(second).lower(), "the model did not see the conversation")
    kept = [item["id"] for item in server.get(f"/conversations/{made['id']}/items", order="asc")["data"]]
    for response in (first, second):
        expect({item["id"] for item in response["output"]} <= set(kept), "an output item is not in the conversation")
    expect_equal(server.send("DELETE", f"/conversations/{made['id']}").status, 200, "the status of deleting")
    expect_equal(server.send("GET", f"/conversations/{made['id']}").status, 404, "the status of reading it then")


@check
def conversation_items(server: Server) -> None:
    """Items are added to a conversation, read and deleted."""
    path = f"/conversations/{server.post('/conversations', {})['id']}/items"
    added = server.post(path, {"items": [{"type": "message", "role": "user", "content": TELL}]})
    item = f"{path}/{added['data'][0]['id']}"
    expect_equal(server.get(item)["id"], added["data"][0]["id"], "the item")
    expect_equal(server.send("DELETE", item).status, 200, "the status of deleting")
    expect_equal(server.send("GET", item).status, 404, "the status of reading it then")


@check
def conversation_or_previous(server: Server) -> None:
    """A response continues a response or a conversation, not both."""
    both = {"previous_response_id": server.answered["id"], "conversation": server.post("/conversations", {})["id"]}
    expect_equal(server.ask(**both).status, 400, "the status")
