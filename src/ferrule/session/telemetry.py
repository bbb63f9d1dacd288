"""Decide whether a session reports spans and metrics. Without OpenTelemetry in the process this costs two look-ups."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ferrule.model.stream import Model
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import Settings

if TYPE_CHECKING:
    from ferrule.session.spans import Spans

_SIGNALS = (("opentelemetry.trace", "get_tracer_provider"), ("opentelemetry.metrics", "get_meter_provider"))
MISSING = "[otel] enabled = true needs the extra `otel`: pip install 'ferrule[otel]'"


def telemetry(
    settings: Settings,
    model: Model,
    model_name: str,
    session_id: str,
    agent: str | None,
    env: Mapping[str, str],
    api_key: str | None,
) -> "Spans | None":
    """Return what reports a session, or None: nobody collects it. `agent` is its role.

    Raises `UsageError` where it is demanded and the package is missing.
    """
    wanted = settings.otel.enabled
    if wanted is False or (wanted is None and not is_set_up()):
        return None
    try:
        from ferrule.session.spans import Spans
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise UsageError(MISSING) from error
    return Spans(settings, model, model_name, session_id, agent, env, (api_key or "",))


def is_set_up() -> bool:
    """Return whether this program has set up an OpenTelemetry SDK: a provider that is not the bare API's own."""
    for name, getter in _SIGNALS:
        provider = getattr(sys.modules.get(name), getter, None)  # another thread may be importing the module just now
        if provider is not None and not type(provider()).__module__.startswith(name):
            return True
    return False
