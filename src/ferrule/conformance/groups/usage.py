"""Token counts are whole."""

from ferrule.conformance.checks import check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.server import Json, Server
from ferrule.conformance.shapes import check_usage


@check
def plain(server: Server) -> None:
    """A response counts its tokens, and the sum is right."""
    _check(server.answered)


@check
def streamed(server: Server) -> None:
    """So does the last event of a stream; the ones before have null."""
    for what, stream in server.streams:
        _check(stream.final)
        first = stream.events[0].data["response"]
        expect(first.get("usage") is None, f"the first event of {what} counts tokens that nobody has spent yet")


@check
def input_tokens(server: Server) -> None:
    """POST /responses/input_tokens counts a request, and a longer one is more."""
    short, long = (server.post("/responses/input_tokens", server.body(input="word " * count)) for count in (1, 500))
    expect_equal(short.get("object"), "response.input_tokens", "the object")
    expect(0 < short["input_tokens"] < long["input_tokens"], "a longer request does not count more tokens")


def _check(response: Json) -> None:
    usage = check_usage(response.get("usage"), "usage")
    expect_equal(usage.total_tokens, usage.input_tokens + usage.output_tokens, "total_tokens")
    expect(usage.input_tokens >= usage.input_tokens_details.cached_tokens, "more tokens cached than given")
