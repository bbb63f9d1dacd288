"""Send a command's spans and metrics to a collector, by OTLP and OpenTelemetry's own environment variables."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ferrule._version import __version__
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import Otel
from ferrule.session.telemetry import is_set_up

LAST_EXPORT_S = 3.0
"""How long the end of a command waits for a collector: one that is there answers in milliseconds."""
NEEDED = "[otel] enabled = true needs an SDK: pip install 'ferrule[otel]' opentelemetry-sdk {exporter}"
PROTOCOLS = {"http/protobuf": "http", "grpc": "grpc"}
"""The protocols and what their packages are called by."""


@contextmanager
def exporting(otel: Otel) -> Iterator[None]:
    """Collect and send while the block runs, if the settings say so. A collector that is missing is one warning.

    Raises `UsageError` where a package is missing.
    """
    if not otel.enabled or is_set_up():
        yield
        return
    lost = _Lost()
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(lost)
    providers = _set_up()
    try:
        yield
    finally:
        ending = threading.Thread(target=_end, args=(providers,), name="ferrule-otel", daemon=True)
        ending.start()
        ending.join(LAST_EXPORT_S)
        if ending.is_alive() or lost.any:
            print(
                "ferrule: spans and metrics were not sent: no collector took them (OTEL_EXPORTER_OTLP_ENDPOINT)",
                file=sys.stderr,
            )
        logger.removeHandler(lost)


def _set_up() -> list[Any]:
    """Make the providers of the SDK the process's own, and return them."""
    name = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip() or "http/protobuf"
    if name not in PROTOCOLS:
        raise UsageError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {name!r}; there are {' and '.join(PROTOCOLS)}")
    exporters = f"opentelemetry.exporter.otlp.proto.{PROTOCOLS[name]}"
    try:
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        spans = import_module(f"{exporters}.trace_exporter").OTLPSpanExporter
        measures = import_module(f"{exporters}.metric_exporter").OTLPMetricExporter
    except ModuleNotFoundError as error:
        package = f"opentelemetry-exporter-otlp-proto-{PROTOCOLS[name]}"
        raise UsageError(NEEDED.format(exporter=package)) from error
    tracers = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(spans()))
    meters = MeterProvider([PeriodicExportingMetricReader(measures())], resource=_resource(), shutdown_on_exit=False)
    trace.set_tracer_provider(tracers)
    metrics.set_meter_provider(meters)
    return [tracers, meters]


def _resource() -> Any:
    """Describe this program, unless the environment does."""
    from opentelemetry.sdk.resources import Resource

    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({"service.version": __version__} | ({} if named else {"service.name": "ferrule"}))


def _end(providers: list[Any]) -> None:
    for provider in providers:
        provider.shutdown()


class _Lost(logging.Handler):
    """Notes that the SDK has given something up. Its words do not go to the terminal: they come at any time."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.any = False

    def emit(self, record: logging.LogRecord) -> None:
        self.any = True
