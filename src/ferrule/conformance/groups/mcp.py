"""Remote MCP servers: listed, called, and allowed call by call. The server has a tool `echo` that takes `text`."""

from ferrule.conformance.checks import check
from ferrule.conformance.failures import Skipped, expect, expect_equal
from ferrule.conformance.server import Json, Server

CALL = 'Call echo with exactly: {"text": "plum"}'
CHOICE: Json = {"type": "mcp", "server_label": "check", "name": "echo"}


def asked(server: Server, **fields: object) -> Json:
    """Return a request that calls the server's tool."""
    if server.mcp_url is None:
        raise Skipped("no MCP server is named: `--mcp-url` takes one that the checked server reaches")
    tool = {"type": "mcp", "server_label": "check", "server_url": server.mcp_url, "allowed_tools": ["echo"], **fields}
    return {"input": CALL, "tools": [tool], "tool_choice": CHOICE}


def waiting(server: Server) -> tuple[Json, Json, Json]:
    """Return a request, its response, and the call that waits there for an answer."""
    body = asked(server)
    first = server.create(**body)
    found = [item for item in first["output"] if item["type"] == "mcp_approval_request"]
    expect(len(found) == 1, f"{len(found)} calls are asked for instead of one")
    expect_equal(first["status"], "completed", "the status of a response that asks")
    return body, first, found[0]


def answer(body: Json, first: Json, request: Json, approve: bool = True) -> Json:
    """Return the request that answers it."""
    given = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}
    more = {"input": [given], "previous_response_id": first["id"], "tool_choice": "auto"}
    return {**body, **more}


@check
def call(server: Server) -> None:
    """A tool is listed and called, with the events of both; the next response lists it no more."""
    body = asked(server, require_approval="never")
    stream = server.stream(**body)
    kinds = [item["type"] for item in stream.final["output"]]
    expect_equal(kinds[:2], ["mcp_list_tools", "mcp_call"], "the first items")
    listed, called = stream.final["output"][:2]
    expect_equal([tool["name"] for tool in listed["tools"]], ["echo"], "the tools of the list")
    expect_equal((called["name"], called["server_label"], called.get("error")), ("echo", "check", None), "the call")
    expect("plum" in str(called["output"]), "the output of the call lacks what the server said")
    told = [event.type.removeprefix("response.") for event in stream.events if "mcp_" in event.type]
    expect_equal(told[:3], ["mcp_list_tools.in_progress", "mcp_list_tools.completed", "mcp_call.in_progress"], "events")
    expect_equal(told[-2:], ["mcp_call_arguments.done", "mcp_call.completed"], "the last events")
    more = server.create(**{**body, "previous_response_id": stream.final["id"]})
    expect("mcp_list_tools" not in [item["type"] for item in more["output"]], "the tools are listed again")


@check
def approval(server: Server) -> None:
    """A call waits for its approval, and runs once that is given, before the model answers."""
    body, first, request = waiting(server)
    second = server.create(**answer(body, first, request))
    called = second["output"][0]
    expect_equal((called["type"], called["approval_request_id"]), ("mcp_call", request["id"]), "the first item")
    expect("plum" in str(called["output"]), "the output of the call lacks what the server said")


@check
def denial(server: Server) -> None:
    """A call that is denied does not run."""
    body, first, request = waiting(server)
    second = server.create(**answer(body, first, request, approve=False))
    ran = [item for item in second["output"] if item["type"] == "mcp_call" and item.get("output")]
    expect_equal((ran, second["status"]), ([], "completed"), "what ran, and the status")


@check
def once(server: Server) -> None:
    """An approval counts once, and one of another conversation does not exist."""
    body, first, request = waiting(server)
    _, other, _ = waiting(server)
    status = server.ask(**answer(body, other, request)).status
    expect(status in (400, 404), f"an approval of another conversation is a {status}")
    server.create(**answer(body, first, request))
    status = server.ask(**answer(body, first, request)).status
    expect(status in (400, 404), f"a second approval is a {status}")


@check
def credentials(server: Server) -> None:
    """The token of a server is not shown."""
    secret = "check-secret-0123456789"
    made = server.create(**asked(server, require_approval="never", authorization=secret))
    expect(secret not in str(made), "the response holds the token")
    expect(secret not in str(server.get(f"/responses/{made['id']}")), "the stored response holds the token")


@check
def connector(server: Server) -> None:
    """A connector works, or is refused with a sentence."""
    asked(server)
    tool = {"type": "mcp", "server_label": "mail", "connector_id": "connector_none"}
    reply = server.ask(tools=[tool])
    expect(reply.status in (400, 422) and reply.error["message"], f"a connector that nobody has is a {reply.status}")
