"""An OpenTelemetry SDK for one test, as a program sets one up; what it collects stays in memory."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Collected:
    """The finished spans, in the order of their beginnings, and the points of each metric."""

    def __init__(self, exporter: InMemorySpanExporter, reader: InMemoryMetricReader, processor: "_Started") -> None:
        self._exporter = exporter
        self._reader = reader
        self.processor = processor
        self.started = processor.started

    @property
    def spans(self) -> list[ReadableSpan]:
        """Every span that has ended."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def span(self, name: str) -> ReadableSpan:
        """The one span of this name."""
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def tree(self) -> set[tuple[str, str | None]]:
        """Each span's name, and its parent's."""
        by_id = {span.context.span_id: span.name for span in self.spans}
        return {(span.name, by_id.get(span.parent.span_id) if span.parent else None) for span in self.spans}

    def all_ended(self) -> bool:
        """Whether every span that was started has ended, once."""
        return len(self.started) == len(self._exporter.get_finished_spans())

    def points(self, metric: str) -> list[Any]:
        """The data points of a histogram."""
        data = self._reader.get_metrics_data()
        scopes = [scope for each in data.resource_metrics for scope in each.scope_metrics] if data else []
        return [
            point for scope in scopes for one in scope.metrics if one.name == metric for point in one.data.data_points
        ]


class _Started(SimpleSpanProcessor):
    """Also notes each span that begins."""

    started: list[Any]

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.started.append(span)


def collecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    """Set the SDK up for one test. A process can do it only once, so the API's own places are set and put back."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    processor = _Started(exporter)
    processor.started = []
    tracers.add_span_processor(processor)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracers)
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", meters)
    yield Collected(exporter, reader, processor)
    tracers.shutdown()
    meters.shutdown()
