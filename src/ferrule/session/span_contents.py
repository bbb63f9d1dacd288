"""What was said, as the attributes of a span: only where the user asks for it, bounded, and without secrets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ferrule.history.pairs import answered_id, called_id
from ferrule.process.environment import looks_secret
from ferrule.protocol.content import text_of
from ferrule.protocol.items import CustomToolCall, FunctionCall, ItemView, Message, Reasoning, ResponseItem, kind_of
from ferrule.protocol.payload import CustomPayload, FunctionPayload, McpPayload, ToolPayload, output_in
from ferrule.protocol.redaction import HIDDEN, any_of, secrets_in_headers, secrets_in_url
from ferrule.protocol.settings import Settings

MAX_CHARACTERS = 64 * 1024
"""Of one attribute: collectors refuse messages of some megabytes, and a request has a whole conversation."""


class Redaction:
    """Hides the secrets that a session knows."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._pattern = any_of(secrets)

    def __call__(self, text: str) -> str:
        """Return the text without secrets, cut to what an attribute may hold."""
        text = text if self._pattern is None else self._pattern.sub(HIDDEN, text)
        return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}… ({len(text):,} characters)"


def secrets_of(settings: Settings, env: Mapping[str, str]) -> Iterator[str]:
    """Yield all that may be a secret: variables that hold one, headers, the servers' variables, and keys in URLs, of
    which a variable may be one (`DATABASE_URL`)."""
    policy, provider = settings.command_environment, settings.provider
    yield from (secret for value in env.values() if "://" in value for secret in secrets_in_url(value))
    yield from (value for name, value in env.items() if name in policy.secrets or looks_secret(name))
    if provider is not None:
        yield from provider.query_params.values()
        yield from secrets_in_headers(provider.http_headers.values())
        yield from secrets_in_url(provider.base_url or "")
    for server in settings.mcp_servers.values():
        yield from secrets_in_headers((*server.headers.values(), *server.http_headers.values()))
        yield from secrets_in_url(server.url or "")
        yield from (value for value in server.env.values() if not value.startswith("/"))
        if server.oauth is not None and server.oauth.client_secret is not None:
            yield server.oauth.client_secret


def arguments_of(payload: ToolPayload) -> str:
    """Return what a call was given."""
    if isinstance(payload, FunctionPayload):
        return payload.arguments
    if isinstance(payload, CustomPayload):
        return payload.input
    return payload.raw_arguments if isinstance(payload, McpPayload) else msgspec.json.encode(payload).decode()


def messages(items: Sequence[ResponseItem], hide: Redaction) -> str:
    """Return items as JSON in the form of `gen_ai.input.messages`; the oldest are left out where there is too much."""
    told: list[str] = []
    size = 0
    for item in reversed(items):
        text = msgspec.json.encode(_message(item.view, hide)).decode()
        size += len(text) + 1
        if size > MAX_CHARACTERS and told:
            break
        told.append(text)
    return f"[{','.join(reversed(told))}]"


def _message(view: ItemView, hide: Redaction) -> dict[str, Any]:
    if isinstance(view, Message):
        return _said(view.role, {"type": "text", "content": hide(text_of(view.content))})
    if isinstance(view, Reasoning):
        return _said("assistant", {"type": "reasoning", "content": hide(text_of(view.content or view.summary))})
    if (answered := answered_id(view)) is not None:
        return _said("tool", {"type": "tool_call_response", "id": answered, "response": hide(output_in(view).text)})
    if isinstance(view, FunctionCall | CustomToolCall):
        given = view.arguments if isinstance(view, FunctionCall) else view.input
        call = {"type": "tool_call", "id": view.call_id, "name": view.name, "arguments": hide(given)}
        return _said("assistant", call)
    if (called := called_id(view)) is not None:
        given = hide(msgspec.json.encode(view).decode())
        return _said("assistant", {"type": "tool_call", "id": called, "name": kind_of(view), "arguments": given})
    return _said("assistant", {"type": kind_of(view)})


def _said(role: str, part: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [part]}
