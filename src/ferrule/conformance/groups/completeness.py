"""Every field that the API's schema requires is there."""

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.server import FORCED, WEATHER, Server
from ferrule.conformance.shapes import check_item, check_response


@check
def response(server: Server) -> None:
    """A response has all fields, and ends completed with a message."""
    check_response(server.answered, "the response")
    expect_equal(server.answered["status"], "completed", "the status")
    expect(any(item["type"] == "message" for item in server.answered["output"]), "there is no message")


@check
def streamed_responses(server: Server) -> None:
    """The response in each event of a stream has all fields."""
    for what, stream in server.streams:
        for event in stream.events:
            if "response" in event.data:
                check_response(event.data["response"], f"{event.type} of {what}")


@check
def streamed_items(server: Server) -> None:
    """Each item of a stream has all fields when it is done."""
    for what, stream in server.streams:
        for data in stream.of("response.output_item.done"):
            check_item(data["item"], f"an item of {what}")


@check
def events(server: Server) -> None:
    """Each event of an item names it and its place."""
    needed = ("output_index", "item_id", "sequence_number")
    for what, stream in server.streams:
        for data in stream.of("response.output_text.delta", "response.function_call_arguments.delta"):
            missing = [name for name in needed if name not in data]
            expect(not missing, f"{data['type']} of {what} lacks {', '.join(missing)}")


@check
def tools(server: Server) -> None:
    """The tools are echoed whole: name, description, parameters, strict."""
    echoed = server.called.final["tools"]
    expect_equal(len(echoed), 1, "the number of tools")
    expect("strict" in echoed[0], "the echoed function lacks strict")
    expect_equal({name: echoed[0].get(name) for name in WEATHER}, WEATHER, "the echoed function")
    choice = FORCED["tool_choice"]
    expect_equal({name: server.called.final["tool_choice"].get(name) for name in choice}, choice, "tool_choice")


@check
def settings(server: Server) -> None:
    """Settings and metadata are echoed."""
    given = {"temperature": 0.5, "instructions": "Be brief.", "metadata": {"a": "b"}, "max_output_tokens": 4096}
    made = server.create(**given)
    expect_equal({name: made.get(name) for name in given}, given, "the echoed settings")


@check
def schema(server: Server) -> None:
    """A format of json_schema is echoed with its name and schema."""
    shape = {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "one_word", "schema": shape, "strict": True}
    made = server.create(text={"format": form}, input='Answer with exactly: {"word": "yes"}')
    echoed = made["text"]["format"]
    expect_equal({name: echoed.get(name) for name in form}, form, "text.format")
