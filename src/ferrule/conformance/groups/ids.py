"""One identity an item: streamed, in the last response, and stored."""

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.server import Json, Server


def _identity(item: Json) -> tuple[object, object, object]:
    return item["type"], item["id"], item.get("call_id")


@check
def streamed_is_final(server: Server) -> None:
    """The items that a stream completes are those of its last response."""
    for what, stream in server.streams:
        told = [_identity(data["item"]) for data in stream.of("response.output_item.done")]
        expect_equal(told, [_identity(item) for item in stream.final["output"]], f"the items of {what}")


@check
def stored_is_final(server: Server) -> None:
    """What is stored is what the stream ended with."""
    for what, stream in server.streams:
        stored = server.get(f"/responses/{stream.final['id']}")
        expect_equal(stored["output"], stream.final["output"], f"the stored output of {what}")


@check
def added_is_done(server: Server) -> None:
    """An item keeps its type, id and call_id from its first event to its last."""
    for what, stream in server.streams:
        added = {data["output_index"]: data["item"] for data in stream.of("response.output_item.added")}
        for data in stream.of("response.output_item.done"):
            first = added.get(data["output_index"])
            expect(first is not None, f"an item of {what} is done and was never added")
            expect_equal(_identity(data["item"]), _identity(first or {}), f"an item of {what}")


@check
def events_name_their_item(server: Server) -> None:
    """The item_id of an event is the id of the item at its output_index."""
    for what, stream in server.streams:
        ids = {data["output_index"]: data["item"]["id"] for data in stream.of("response.output_item.added")}
        for event in stream.events:
            if "item_id" in event.data:
                expect_equal(event.data["item_id"], ids.get(event.data["output_index"]), f"{event.type} of {what}")


@check
def one_response(server: Server) -> None:
    """The response's id is the same in every event."""
    for what, stream in server.streams:
        ids = {event.data["response"]["id"] for event in stream.events if "response" in event.data}
        expect_equal(len(ids), 1, f"the number of response ids in the stream of {what}")


@check
def never_twice(server: Server) -> None:
    """No two responses and no two items share an id."""
    responses = [server.answered, *(stream.final for _, stream in server.streams)]
    ids = [response["id"] for response in responses]
    ids += [item["id"] for response in responses for item in response["output"]]
    expect_equal(len(set(ids)), len(ids), "the number of different ids")
