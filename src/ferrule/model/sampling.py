"""Request parameters shared by the wires, beside the conversation: the user's settings, else the model's profile."""

from typing import Any

import msgspec

from ferrule.model.adapt import WireTool
from ferrule.model.payloads import Json, json_array
from ferrule.model.profiles import ProviderProfile
from ferrule.model.stream import ModelRequest, OutputFormat
from ferrule.protocol.profiles import ModelProfile

_encode = msgspec.json.encode


OUTPUT_LIMIT = 16_384
"""Tokens of one answer, where the user set no limit: more than any answer needs, and an end for one that has none."""
REASONED_OUTPUT_LIMIT = 65_536
"""The same with the reasoning before it."""
LEAST_OUTPUT_LIMIT = 4_096
"""Also where the context window is small."""


_ALIKE = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "service_tier")
"""Settings that both wires spell like `ModelSettings`."""


class Sampling(msgspec.Struct, frozen=True):
    """Sampling parameters. None: the request leaves one out."""

    effort: str | None
    summary: str | None
    verbosity: str | None
    parallel: bool | None
    limit: int | None
    """Tokens of the answer."""


def sampling(
    request: ModelRequest, tools: tuple[WireTool, ...], profile: ModelProfile, server: ProviderProfile
) -> Sampling:
    """Return this request's parameters. The profile's are sent only if the server accepts them, the user's always."""
    settings = request.settings
    effort, summary, verbosity = settings.reasoning_effort, settings.reasoning_summary, settings.verbosity
    if profile.reasoning and server.effort:
        effort = effort or profile.reasoning_effort
        summary = summary or profile.reasoning_summary
    if server.verbosity:
        verbosity = verbosity or profile.verbosity
    return Sampling(
        effort,
        None if summary == "none" else summary,
        verbosity,
        _parallel(request, tools, profile, server),
        _output_limit(request, profile, server),
    )


def _parallel(
    request: ModelRequest, tools: tuple[WireTool, ...], profile: ModelProfile, server: ProviderProfile
) -> bool | None:
    if not tools or not server.parallel:
        return None
    if any(tool.serial for tool in tools):
        return False
    wanted = request.settings.parallel_tool_calls
    return profile.parallel_tool_calls if wanted is None else wanted


def shared_fields(
    request: ModelRequest, asked: Sampling, choice: object, tools: tuple[WireTool, ...], server: ProviderProfile
) -> dict[str, Json]:
    """Return the fields that both wires spell alike, as JSON; `choice` is the tool choice in the wire's spelling."""
    fields: dict[str, Json] = {"model": _encode(request.model)}
    if tools:
        fields["tools"] = json_array(tool.json for tool in tools)
        fields["tool_choice"] = _encode(choice)
    if asked.parallel is not None:
        fields["parallel_tool_calls"] = _encode(asked.parallel)
    if server.cache_key and request.session_id:
        fields["prompt_cache_key"] = _encode(request.session_id)
    for name in _ALIKE:
        if (value := getattr(request.settings, name)) is not None:
            fields[name] = _encode(value)
    return fields | {"stream": b"true"}


def schema_format(wanted: OutputFormat) -> dict[str, object] | None:
    """Return the JSON Schema of the last message with its name; None if any JSON object will do."""
    if wanted.schema is None:
        return None
    strict = is_strict(wanted.schema) if wanted.strict is None else wanted.strict
    described = {} if wanted.description is None else {"description": wanted.description}
    return {"name": wanted.name, **described, "schema": wanted.schema, "strict": strict}


def is_strict(schema: Any) -> bool:
    """Return whether every object in a schema is closed and requires all of its properties."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, dict):
        closed = schema.get("additionalProperties") is False
        if not closed or set(properties or ()) - set(schema.get("required") or ()):
            return False
    return all(map(is_strict, schema.values()))


def _output_limit(request: ModelRequest, profile: ModelProfile, server: ProviderProfile) -> int | None:
    """Return the limit of this answer in tokens: the user's, else a generous one; None if the server refuses limits."""
    if request.settings.max_output_tokens is not None or not server.output_limit:
        return request.settings.max_output_tokens
    limit = REASONED_OUTPUT_LIMIT if profile.reasoning else OUTPUT_LIMIT
    window = request.settings.context_window or profile.context_window
    return limit if window is None else max(min(limit, window // 2), LEAST_OUTPUT_LIMIT)
