"""Wrong requests are refused, and told why."""

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.server import Answer, Server

FIELDS = ("message", "type", "code", "param")
TOO_LARGE = 120 << 20
"""Bytes that no server takes as a request."""
UNKNOWN: tuple[tuple[dict[str, object], str], ...] = (
    ({"previous_response_id": "resp_none"}, "previous_response_id"),
    ({"conversation": "conv_none"}, "conversation"),
    ({"input": [{"type": "item_reference", "id": "msg_none"}]}, "input"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-none"}]}]}, "input"),
)
"""Requests that name what does not exist, and the field that does so."""
WRONG: tuple[tuple[str, object], ...] = (
    ("temperature", "hot"),
    ("max_output_tokens", -1),
    ("tools", {"type": "function"}),
    ("metadata", [1]),
    ("input", 7),
    ("stream", "maybe"),
    ("text", {"format": {"type": "sonnet"}}),
)


def _refused(answer: Answer, status: int, what: str) -> None:
    expect_equal(answer.status, status, f"the status of {what}")
    missing = [name for name in FIELDS if name not in answer.error]
    expect(not missing, f"the error of {what} lacks {', '.join(missing)}")
    expect(isinstance(answer.error["message"], str) and answer.error["message"], f"the error of {what} says nothing")


@check
def no_json(server: Server) -> None:
    """A body that is no JSON object is a 400."""
    for body in (b"{", b"", b"[]", b"\xff\xfe", b"[" * 100_000):
        _refused(server.send("POST", "/responses", body), 400, f"the body {body[:8]!r}")


@check
def wrong_types(server: Server) -> None:
    """A known field of a wrong type is a 400 that names it."""
    for name, value in WRONG:
        answer = server.ask(**{name: value})
        _refused(answer, 400, f"a wrong {name}")
        param = str(answer.error["param"])
        expect(param.startswith(name), f"the param for a wrong {name} is {param}")


@check
def wrong_tools(server: Server) -> None:
    """A known tool with a wrong field is a 400 that names the field."""
    answer = server.ask(tools=[{"type": "function", "name": 7, "parameters": {}}])
    _refused(answer, 400, "a function whose name is a number")
    expect(str(answer.error["param"]).startswith("tools"), f"the param is {answer.error['param']}")


@check
def orphan(server: Server) -> None:
    """A call output without its call is a 400."""
    output = {"type": "function_call_output", "call_id": "call_nobody_made", "output": "x"}
    _refused(server.ask(input=[output]), 400, "an output without its call")


@check
def unknown_ids(server: Server) -> None:
    """Ids that nobody made are a 404."""
    for method, path in (
        ("GET", "/responses/resp_none"),
        ("DELETE", "/responses/resp_none"),
        ("POST", "/responses/resp_none/cancel"),
        ("GET", "/responses/resp_none/input_items"),
        ("GET", "/conversations/conv_none"),
    ):
        _refused(server.send(method, path), 404, f"{method} {path}")
    _refused(server.ask(prompt={"id": "pmpt_none"}), 404, "an unknown prompt")


@check
def unknown_ids_in_a_request(server: Server) -> None:
    """A request that names what does not exist is an error that names the field."""
    for fields, name in UNKNOWN:
        answer = server.ask(**fields)
        expect(answer.status in (400, 404), f"the status for an unknown {name} is {answer.status}")
        expect(str(answer.error["param"]).startswith(name), f"the param for it is {answer.error['param']}")


@check
def unknown_path(server: Server) -> None:
    """A path that does not exist is a 404 with an error object."""
    _refused(server.send("GET", "/nothing/here"), 404, "an unknown path")


@check
def wrong_method(server: Server) -> None:
    """A wrong method is a 405 with an error object."""
    _refused(server.send("PUT", "/responses", {}), 405, "PUT /responses")


@check
def too_large(server: Server) -> None:
    """A huge body is a 413 with an error object, and the server goes on."""
    _refused(server.send("POST", "/responses", b" " * TOO_LARGE), 413, "a body of 120 MB")
    expect_equal(server.create()["status"], "completed", "the status of the next request")


@check
def of_the_stream(server: Server) -> None:
    """A streamed request that is wrong is refused before the stream begins."""
    _refused(server.ask(stream=True, temperature="hot"), 400, "a streamed request")
