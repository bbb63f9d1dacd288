"""What MCP servers are told of a trace."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from mcp.shared import _otel
from opentelemetry import baggage, context, trace

from ferrule.protocol.settings import Otel
from ferrule.testing import ScriptedModel, function_call
from tests.mcp.sessions import agent
from tests.mcp.stub import server
from tests.session.collected import Collected, collecting


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    for found in collecting(monkeypatch):
        # The SDK's tracer keeps to the first provider that it meets in a process.
        monkeypatch.setattr(_otel, "_tracer", trace.get_tracer("mcp-python-sdk"))
        yield found


@pytest.mark.parametrize("propagate", [False, True])
async def test_the_trace_reaches_a_server_only_where_asked_for(
    collected: Collected, tmp_path: Path, propagate: bool
) -> None:
    received = tmp_path / "received"
    token = context.attach(baggage.set_baggage("customer", "ann"))
    with ScriptedModel([[function_call("mcp__stub__echo", {"text": "hi"})], "done"]) as model:
        asks = agent(model, "responses", tmp_path, {"stub": server(f"received={received}")})
        asks.settings = msgspec.structs.replace(asks.settings, otel=Otel(propagate=propagate))
        await asks.run("go")
        assert model.requests[1].outputs[0].text == "ECHO: hi"
    context.detach(token)
    sent = received.read_text()
    call = collected.span("execute_tool mcp__stub__echo")
    trace_id = f"{call.context.trace_id:032x}"
    assert ("traceparent" in sent, trace_id in sent, "ann" in sent) == (propagate, propagate, propagate)
    assert ("MCP send tools/call echo", call.name) in collected.tree() and collected.all_ended()
