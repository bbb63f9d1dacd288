"""The command sends its spans and metrics to a collector: a real one for OTLP over HTTP, on loopback."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ferrule.testing import ScriptedModel, function_call
from tests.cli.command import FULL_ACCESS, Place
from tests.cli.test_exec import exec_against
from tests.http_servers import HttpServer, Silent, listening

ON = ("-c", "otel.enabled=true")
TOOL = ("-c", 'tools=["exec_command"]')


class Collector(HttpServer):
    """Takes what is posted, by its path."""

    def __init__(self) -> None:
        super().__init__(_Taker)
        self.taken: list[tuple[str, bytes, dict[str, str]]] = []

    def all_of(self, path: str, kind: Any) -> list[Any]:
        """The decoded messages to one path."""
        return [kind.FromString(body) for at, body, _ in self.taken if at == path]


class _Taker(Silent):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.append((self.path, body, dict(self.headers)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    with listening(made):
        yield made


def test_the_command_sends_its_spans_and_metrics(place: Place, collector: Collector) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
           "OTEL_EXPORTER_OTLP_HEADERS": "x-team=blue", "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}  # fmt: skip
    with ScriptedModel([[function_call("exec_command", {"cmd": "true"})], "done"]) as model:
        done = exec_against(place, model, *ON, *TOOL, *FULL_ACCESS, "go", env=env)
    assert (done.code, done.out) == (0, "done\n") and "not sent" not in done.err
    [resource] = [
        one for sent in collector.all_of("/v1/traces", ExportTraceServiceRequest) for one in sent.resource_spans
    ]
    spans = {span.name: span for scope in resource.scope_spans for span in scope.spans if scope.scope.name == "ferrule"}
    assert set(spans) == {"invoke_agent ferrule", "chat scripted-model", "execute_tool exec_command", "run_command"}
    assert spans["run_command"].parent_span_id == spans["execute_tool exec_command"].span_id
    assert {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"] == "ferrule"
    metrics = collector.all_of("/v1/metrics", ExportMetricsServiceRequest)
    names = {
        one.name for sent in metrics for each in sent.resource_metrics for s in each.scope_metrics for one in s.metrics
    }
    assert {"gen_ai.client.token.usage", "gen_ai.client.operation.duration"} <= names
    assert all(headers["x-team"] == "blue" for _, _, headers in collector.taken)


def test_without_the_setting_nothing_is_sent(place: Place, collector: Collector) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"}
    with ScriptedModel(["done"]) as model:
        assert exec_against(place, model, "go", env=env).code == 0
    assert not collector.taken


def test_a_collector_that_is_not_there_is_one_warning(place: Place) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with ScriptedModel(["done"]) as model:
        done = exec_against(place, model, *ON, "--json", "go", env=env)
    assert done.code == 0 and done.lines[-1]["type"] == "turn.completed"
    assert (
        done.err == "ferrule: spans and metrics were not sent: no collector took them (OTEL_EXPORTER_OTLP_ENDPOINT)\n"
    )


def test_what_is_missing_is_named(place: Place) -> None:
    with ScriptedModel(["done"]) as model:
        no_grpc = exec_against(place, model, *ON, "go", env={"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
        no_such = exec_against(place, model, *ON, "go", env={"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"})
        assert not model.requests
    assert no_grpc.code == no_such.code == 2
    assert "pip install 'ferrule[otel]' opentelemetry-sdk opentelemetry-exporter-otlp-proto-grpc" in no_grpc.err
    assert "'smoke'; there are http/protobuf and grpc" in no_such.err
