"""What a server does not know it keeps: more than the API asks, so that newer clients can use older servers."""

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.server import SHORT, Json, Server

HOSTED: tuple[Json, ...] = (
    {"type": "web_search"},
    {"type": "image_generation", "quality": "low"},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "mcp", "server_label": "none", "server_url": "https://mcp.invalid/mcp", "require_approval": "never"},
    {"type": "tool_search"},
    {"type": "programmatic_tool_calling"},
)


@check
def tools(server: Server) -> None:
    """Tools of unknown types are echoed as they are."""
    given = [{"type": "time_machine", "years": 3}, {"type": "oracle", "nested": {"a": [1, None]}}]
    made = server.create(tools=given)
    expect_equal(made["tools"], given, "the echoed tools")
    expect_equal(made["status"], "completed", "the status")


@check
def hosted_tools(server: Server) -> None:
    """Tools of the API are accepted, whether the server runs them or not."""
    for tool in HOSTED:
        answer = server.ask(tools=[tool], tool_choice="none")
        expect_equal(answer.status, 200, f"the status for {tool['type']}")
        expect_equal([echo["type"] for echo in answer.json["tools"]], [tool["type"]], "the echoed tools")


@check
def items(server: Server) -> None:
    """Items of unknown types are accepted, and kept."""
    odd: Json = {"type": "thought_experiment", "cat": {"alive": None}}
    made = server.create(input=[odd, {"role": "user", "content": SHORT}])
    kept = server.get(f"/responses/{made['id']}/input_items", order="asc")["data"][0]
    expect_equal({name: kept.get(name) for name in odd}, odd, "the kept item")


@check
def calls(server: Server) -> None:
    """Calls and outputs of unknown types wait for nothing and answer nothing."""
    for odd in ({"type": "time_travel_call", "call_id": "c1"}, {"type": "time_travel_call_output", "call_id": "c2"}):
        made = server.create(input=[odd, {"role": "user", "content": SHORT}])
        expect_equal(made["status"], "completed", f"the status after a {odd['type']}")


@check
def fields(server: Server) -> None:
    """Unknown fields of a request are echoed in the response."""
    made = server.create(x_trace={"run": [7]})
    expect_equal(made.get("x_trace"), {"run": [7]}, "the echoed field")


@check
def includes(server: Server) -> None:
    """What include names need not be there."""
    every = ["reasoning.encrypted_content", "web_search_call.action.sources", "message.output_text.logprobs"]
    expect_equal(server.create(include=every)["status"], "completed", "the status")


@check
def fields_of_items(server: Server) -> None:
    """Unknown fields of a known item do no harm."""
    expect(server.create(input=[{"role": "user", "content": SHORT, "x_mood": "good"}]), "the answer is empty")
