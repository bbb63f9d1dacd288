"""Interpret a server's error: one sentence for the user, and whether a retry can help."""

import math
import re
import time
from collections.abc import Mapping

import msgspec

from ferrule.model.retry import in_words, stated_in_headers, stated_in_words
from ferrule.model.stream import CallUnreadable, ContentRefused, ContextOverflow, ModelError
from ferrule.protocol.json_text import encodable

LONGEST_QUOTE = 500
"""Characters of a server's message that are quoted."""


class ServerError(msgspec.Struct, frozen=True):
    """An error object: the union of servers' spellings. Times are seconds; `resets_at` is Unix time."""

    message: str = ""
    code: str = ""
    type: str = ""
    param: str = ""
    resets_in_seconds: float | None = None
    resets_at: float | None = None
    retry_after: float | None = None
    headers: dict[str, str] = {}
    """Headers of the provider behind a gateway, which repeats them in the body."""
    generation: str = ""
    """The model's output, if the server could not parse it."""


_USAGE_LIMITS = frozenset(
    [
        "usage_limit_reached",
        "usage_limit_exceeded",
        "usage_not_included",
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "insufficient_credits",
        "quota_exceeded",
        "payment_required",
        "402",
    ]
)
_PASSING = frozenset(
    [
        "server_error",
        "internal_error",
        "internal_server_error",
        "rate_limit_exceeded",
        "rate_limit_error",
        "overloaded",
        "overloaded_error",
        "server_is_overloaded",
        "slow_down",
        "timeout",
        "request_timeout",
        "service_unavailable",
        "bad_gateway",
        "api_error",
        "insufficient_system_resource",
        "vector_store_timeout",
        "too_many_requests",
        "408",
        "409",
        "425",
        "429",
        "500",
        "502",
        "503",
        "504",
        "520",
        "522",
        "524",
        "529",
    ]
)
_OVERFLOWS = frozenset(
    [
        "context_length_exceeded",
        "exceed_context_size_error",
        "context_window_exceeded",
        "model_max_prompt_tokens_exceeded",
    ]
)
_OVERFLOW_WORDS = re.compile(
    r"context (?:length|window|size)|maximum context|prompt is too long|input is too long|too many (?:input )?tokens"
    r"|exceeds? the (?:available|maximum|model's).{0,40}(?:context|tokens)|reduce the length of",
    re.IGNORECASE,
)
_RATE_CODES = frozenset(
    [
        "429",
        "rate_limit_exceeded",
        "rate_limit_error",
        "rate_limited",
        "throttling_error",
        "throttlingexception",
        "throttling",
        "too_many_requests",
        "resource_exhausted",
        "slow_down",
    ]
)
_RATE_WORDS = re.compile(
    r"rate.?limit|throttl|too many requests|(?:tokens|requests) per (?:min|day|hour|second)|please wait before"
    r"|\b(?:TPM|RPM|TPD|RPD)\b",
    re.IGNORECASE,
)
_NEVER_FITS = re.compile(
    r"request too large|(?:input or output )?tokens must be reduced|reduce your message size", re.IGNORECASE
)
"""One request exceeds the limit of a whole minute: waiting does not help."""
_OF_THE_REQUEST = frozenset(
    [
        "invalid_prompt",
        "content_policy_violation",
        "content_filter",
        "bio_policy",
        "cyber_policy",
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "request_too_large",
        "billing_error",
        "invalid_api_key",
        "model_not_found",
        "unsupported_parameter",
        "unsupported_value",
        "unknown_parameter",
        "invalid_value",
        "invalid_type",
        "missing_required_parameter",
        "invalid_argument",
        "failed_precondition",
        "out_of_range",
        "unauthenticated",
        "permission_denied",
        "not_found",
        "unimplemented",
        "badrequesterror",
        "notfounderror",
        "authenticationerror",
        "permissiondeniederror",
    ]
)
"""Codes and types of errors that the request itself is to blame for. Sources: error codes of OpenAI, error types of
Anthropic, codes of google.rpc, exceptions that vLLM names. One that is missing here is asked again in vain,
a bounded number of times."""
_CALL_CODES = frozenset(["tool_use_failed"])
_CONTENT_WORDS = re.compile(
    r"(?:image|audio|file|media|content (?:type|part|block)).{0,80}(?:too large|too big|exceed|unsupported|not support"
    r"|invalid|could not|unable|failed|unknown|corrupt)"
    r"|(?:unsupported|invalid|unknown|not support\w*|too large).{0,40}"
    r"(?:image|audio|media|content (?:type|part|block)|multimodal|vision)",
    re.IGNORECASE,
)


def read_error(payload: object) -> ServerError | None:
    """Return the error in a decoded JSON body or event, in any spelling; None if there is none."""
    if isinstance(payload, list) and payload and isinstance(payload[0], dict):
        payload = payload[0]  # Gemini
    if not isinstance(payload, dict):
        return None
    error = payload.get("error")
    if isinstance(error, dict):
        return _error(error)
    if isinstance(error, str) and error:
        return _error(payload | {"message": error, **_detail(payload)})
    if payload.get("error_message") or payload.get("error_type"):
        return _error(
            {"message": payload.get("error_message"), "type": payload.get("error_type"), "code": payload.get("code")}
        )
    if payload.get("type") == "error" or payload.get("object") == "error":
        return _error({k: v for k, v in payload.items() if k != "type"} | {"type": payload.get("error_type")})
    for key in ("detail", "message", "errors"):
        if payload.get(key) and "choices" not in payload and "output" not in payload:
            text = payload[key]
            return _error({**payload, "message": text if isinstance(text, str) else msgspec.json.encode(text).decode()})
    return None


def _detail(payload: dict[str, object]) -> dict[str, object]:
    """Return the error's object; if `error` is only a title, the sentence is in `message`."""
    message = payload.get("message")
    return {"message": message} if isinstance(message, str) and message else {}


def _error(fields: dict[str, object]) -> ServerError:
    metadata = fields.get("metadata")
    details = metadata if isinstance(metadata, dict) else {}
    message = _text(fields.get("message"))
    if raw := _text(details.get("raw")):  # OpenRouter: the message of the provider behind it
        message = f"{message}: {raw}" if message else raw
    headers = details.get("headers")
    seconds = {key: _seconds(fields.get(key)) for key in ("resets_in_seconds", "resets_at", "retry_after")}
    if (delay := _retry_info(fields)) is not None:
        seconds["retry_after"] = delay
    return ServerError(
        message,
        _text(fields.get("code")),
        _text(fields.get("type")) or _text(fields.get("status")),
        _text(fields.get("param")),
        **seconds,
        headers={str(k).lower(): str(v) for k, v in headers.items()} if isinstance(headers, dict) else {},
        generation=_text(fields.get("failed_generation")),
    )


def _retry_info(fields: dict[str, object]) -> float | None:
    """Return the `retryDelay` of Google's RetryInfo, in seconds."""
    details = fields.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(delay := detail.get("retryDelay"), str):
            return _seconds(delay.removesuffix("s"))
    return None


def _text(value: object) -> str:
    return "" if value is None or isinstance(value, dict | list) else encodable(str(value))


def _seconds(value: object) -> float | None:
    try:
        seconds = float(value) if isinstance(value, int | float | str) else -1.0
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < math.inf else None


def as_model_error(
    error: ServerError, server: str, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> ModelError:
    """Build the error to raise for the answer of `server`. `status` is None for an error inside a stream."""
    read = _classified(error, server, status, headers or {})
    return read.quoting(error.message, error.code or error.type, error.param)


def _classified(error: ServerError, server: str, status: int | None, headers: Mapping[str, str]) -> ModelError:
    said = " ".join(error.message.split())[:LONGEST_QUOTE] or error.code or error.type or "no reason given"
    codes = {error.code.lower(), error.type.lower(), str(status)}
    limited = bool(codes & _RATE_CODES) or (status in (None, 413) and _RATE_WORDS.search(error.message) is not None)
    wait = _stated_wait(error, headers, limited)
    if codes & _USAGE_LIMITS:
        when = f" It resets in {in_words(wait)}." if wait is not None else ""
        return ModelError(f"The usage limit of {server} is reached: {_sentence(said)}{when}", status=status)
    if codes & _CALL_CODES:
        text = f"{server} could not read the call of its model: {_sentence(said)}"
        return CallUnreadable(text, status=status, generation=error.generation)
    if not limited and _is_overflow(error, codes, status):
        return ContextOverflow(
            f"The conversation does not fit the model's context window: {_sentence(said)}", status=status
        )
    passing = bool(codes & _PASSING) or (status or 0) >= 500 or limited
    if not passing and (error.code.startswith("image_") or "image" in error.code or _CONTENT_WORDS.search(said)):
        return ContentRefused(f"{server} refuses a part of the request: {_sentence(said)}", status=status)
    passing = passing or (status is None and not error.param and not _is_of_the_request(codes))
    if limited and _NEVER_FITS.search(error.message):
        passing = False
    marks = [mark for mark in (error.code or error.type, error.param) if mark and mark not in said]
    known = f" ({', '.join(marks)})" if marks else ""
    answered = f"{server} answered {status}" if status else f"{server} reported an error"
    return ModelError(f"{answered}{known}: {_sentence(said)}", retryable=passing, status=status, retry_after_ms=wait)


def _is_of_the_request(codes: set[str]) -> bool:
    """Whether an error in a stream would come again: it is known as one, or its code is a status of that kind."""
    return bool(codes & _OF_THE_REQUEST) or any(len(code) == 3 and "400" <= code <= "499" for code in codes)


def _is_overflow(error: ServerError, codes: set[str], status: int | None) -> bool:
    if codes & _OVERFLOWS or _OVERFLOW_WORDS.search(error.message):
        return True
    too_long = "string_above_max_length" in codes and error.param.endswith(_TEXTS)
    return too_long or (status == 413 and not error.message)


_TEXTS = ("input", "messages", "prompt", "instructions", "content", "text", "output", "arguments")
"""Parameters that contain the conversation; a name or an id that is too long is no overflow."""


def _stated_wait(error: ServerError, headers: Mapping[str, str], limited: bool) -> int | None:
    if error.resets_in_seconds is not None:
        return round(error.resets_in_seconds * 1000)
    if error.resets_at is not None:
        return max(0, round((error.resets_at - time.time()) * 1000))
    for named in (headers, error.headers):
        if (stated := stated_in_headers(named, time.time(), limited=limited)) is not None:
            return stated
    if error.retry_after is not None:
        return round(error.retry_after * 1000)
    return stated_in_words(error.message)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
