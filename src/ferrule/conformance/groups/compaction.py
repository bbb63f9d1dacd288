"""Conversations that are summarised."""

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.server import SHORT, Json, Server
from ferrule.conformance.shapes import check_item, check_usage

STORY: list[Json] = [
    {"role": "user", "content": "Tell me a story of a fox, in one sentence."},
    {"role": "assistant", "content": "A fox met a crow, and both got cheese."},
    {"role": "user", "content": "And of a hare?"},
]
LOW = 1000
"""A threshold, in tokens, that a long input passes: the API takes no lower one."""


def _compaction(output: list[Json]) -> Json:
    found = [item for item in output if item["type"] == "compaction"]
    expect_equal(len(found), 1, "the number of compaction items")
    check_item(found[0], "the compaction item")
    return found[0]


@check
def compact(server: Server) -> None:
    """POST /responses/compact gives a compaction item and counts its tokens."""
    made = server.post("/responses/compact", server.body(input=STORY))
    expect_equal(made.get("object"), "response.compaction", "the object")
    expect(isinstance(made.get("id"), str) and isinstance(made.get("created_at"), int), "id or created_at is missing")
    check_usage(made.get("usage"), "usage")
    _compaction(made["output"])


@check
def goes_on(server: Server) -> None:
    """Its output is the input of what comes next."""
    output = server.post("/responses/compact", server.body(input=STORY))["output"]
    made = server.create(input=[*output, {"role": "user", "content": SHORT}])
    expect_equal(made["status"], "completed", "the status")


@check
def of_a_response(server: Server) -> None:
    """A stored response is compacted by its id."""
    made = server.post("/responses/compact", {"model": server.model, "previous_response_id": server.answered["id"]})
    _compaction(made["output"])


@check
def needs_a_model(server: Server) -> None:
    """Without a model it is refused."""
    answer = server.send("POST", "/responses/compact", {"input": STORY})
    expect(answer.status in (400, 422), f"the status is {answer.status}")
    expect(answer.error, "there is no error")


@check
def trigger(server: Server) -> None:
    """A compaction_trigger at the end of the input gives a compaction item."""
    made = server.create(input=[*STORY, {"type": "compaction_trigger"}])
    item = _compaction(made["output"])
    expect_equal(server.create(input=[item, {"role": "user", "content": SHORT}])["status"], "completed", "the status")


@check
def trigger_is_last(server: Server) -> None:
    """A compaction_trigger anywhere else is refused."""
    expect_equal(server.ask(input=[{"type": "compaction_trigger"}, *STORY]).status, 400, "the status")


@check
def context_management(server: Server) -> None:
    """Above compact_threshold a response begins with a compaction item, and answers all the same."""
    long = [{"role": "user", "content": "The fox met the crow again. " * LOW}, *STORY[1:]]
    stream = server.stream(input=long, context_management=[{"type": "compaction", "compact_threshold": LOW}])
    _compaction(stream.final["output"])
    expect(any(item["type"] == "message" for item in stream.final["output"]), "there is no message")


@check
def below_threshold(server: Server) -> None:
    """Below it nothing is summarised."""
    made = server.create(context_management=[{"type": "compaction", "compact_threshold": 100_000}])
    expect(all(item["type"] != "compaction" for item in made["output"]), "there is a compaction item")
