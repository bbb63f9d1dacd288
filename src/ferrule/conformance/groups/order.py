"""The events of a stream come in order."""

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.server import ENDS, Server, Stream


@check
def first_and_last(server: Server) -> None:
    """response.created comes first, then response.in_progress; one last event ends the stream."""
    for what, stream in server.streams:
        types = [event.type for event in stream.events]
        expect_equal(types[0], "response.created", f"the first event of {what}")
        expect("response.in_progress" in types[1:3], f"response.in_progress does not follow in the stream of {what}")
        expect_equal([kind for kind in types if kind in ENDS], ["response.completed"], f"the ends of {what}")
        expect_equal(types[-1], "response.completed", f"the last event of {what}")


@check
def numbers(server: Server) -> None:
    """Sequence numbers begin at 0 and have no gap."""
    for what, stream in server.streams:
        found = [event.data.get("sequence_number") for event in stream.events]
        expect_equal(found, list(range(len(found))), f"the sequence numbers of {what}")


@check
def names(server: Server) -> None:
    """The event line names the type of the data."""
    for what, stream in server.streams:
        for event in stream.events:
            expect_equal(event.name, event.type, f"the name of an event of {what}")


@check
def done(server: Server) -> None:
    """A stream ends with [DONE]."""
    for what, stream in server.streams:
        expect(stream.done, f"the stream of {what} does not end with [DONE]")


@check
def places(server: Server) -> None:
    """Each item is added once and done once, and output_index counts up from 0."""
    for what, stream in server.streams:
        for kind in ("added", "done"):
            found = [data["output_index"] for data in stream.of(f"response.output_item.{kind}")]
            expect_equal(sorted(found), list(range(len(stream.final["output"]))), f"the items {kind} of {what}")
        added = [data["output_index"] for data in stream.of("response.output_item.added")]
        expect_equal(added, sorted(added), f"the order of the items of {what}")


@check
def within_items(server: Server) -> None:
    """Whatever is told of an item comes between its first event and its last."""
    for what, stream in server.streams:
        running: set[object] = set()
        for event in stream.events:
            index = event.data.get("output_index")
            if event.type == "response.output_item.added":
                running.add(index)
            elif index is not None:
                expect(index in running, f"{event.type} of {what} stands outside of its item")
            if event.type == "response.output_item.done":
                running.discard(index)


@check
def text(server: Server) -> None:
    """The pieces of a text give the text that is told when it is done, and the final one."""
    stream = server.streamed
    (done,) = stream.of("response.output_text.done") or ({},)
    expect_equal(_joined(stream, "response.output_text.delta"), done.get("text"), "the text in pieces")
    said = [part["text"] for item in stream.final["output"] if item["type"] == "message" for part in item["content"]]
    expect_equal(said, [done.get("text")], "the final text")
    for kind in ("response.content_part.added", "response.content_part.done"):
        expect_equal(len(stream.of(kind)), 1, f"the number of {kind}")


@check
def arguments(server: Server) -> None:
    """The pieces of arguments give those that are told when they are done, and the final ones."""
    stream = server.called
    (done,) = stream.of("response.function_call_arguments.done") or ({},)
    expect_equal(
        _joined(stream, "response.function_call_arguments.delta"), done.get("arguments"), "the arguments in pieces"
    )
    (call,) = [item for item in stream.final["output"] if item["type"] == "function_call"]
    expect_equal(call["arguments"], done.get("arguments"), "the final arguments")


def _joined(stream: Stream, kind: str) -> str:
    return "".join(data["delta"] for data in stream.of(kind))
