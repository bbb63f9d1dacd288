"""Interpret a server's error: one sentence for the user, and whether a retry can help."""

import math
import re
import time
from collections.abc import Mapping

import msgspec

from ferrule.model.meanings import CODES, CONTENT_WORDS, NEVER_FITS, OVERFLOW_WORDS, TOO_FAST_WORDS, Meaning
from ferrule.model.retry import in_words, stated_in_headers, stated_in_words
from ferrule.model.stream import CallUnreadable, ContentRefused, ContextOverflow, ModelError
from ferrule.protocol.json_text import encodable

DOES_NOT_FIT = "The conversation does not fit the model's context window"
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
    if isinstance(base := payload.get("base_resp"), dict) and base.get("status_code"):  # MiniMax
        return _error({"message": base.get("status_msg"), "code": base["status_code"]})
    if payload.get("type") == "error" or payload.get("object") == "error":
        return _error({k: v for k, v in payload.items() if k != "type"} | {"type": payload.get("error_type")})
    for key in ("detail", "message", "msg", "errors"):
        if payload.get(key) and "choices" not in payload and "output" not in payload:
            return _error({"code": payload.get("status_code"), **payload, "message": _said(payload[key])})
    return None


def _said(value: object) -> str:
    """Return the text of an error that is not an object."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) and (text := value[0].get("message")):
        return _text(text)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


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
    known = {CODES[code] for code in codes if code in CODES}
    worded = status in (None, 413) and re.search(TOO_FAST_WORDS, error.message) is not None
    limited = Meaning.TOO_FAST in known or worded
    wait = _stated_wait(error, headers, limited)
    if Meaning.USED_UP in known:
        when = f" It resets in {in_words(wait)}." if wait is not None else ""
        return ModelError(f"The usage limit of {server} is reached: {_sentence(said)}{when}", status=status)
    if Meaning.CALL_UNREADABLE in known:
        text = f"{server} could not read the call of its model: {_sentence(said)}"
        return CallUnreadable(text, status=status, generation=error.generation)
    if not limited and (Meaning.OVERFLOW in known or _is_overflow(error, codes, status)):
        return ContextOverflow(f"{DOES_NOT_FIT}: {_sentence(said)}", status=status)
    passing = Meaning.PASSING in known or (status or 0) >= 500 or limited
    if not passing and ("image" in error.code or re.search(CONTENT_WORDS, said)):
        return ContentRefused(f"{server} refuses a part of the request: {_sentence(said)}", status=status)
    to_blame = Meaning.OF_THE_REQUEST in known or any(map(_is_refusal, codes))
    passing = passing or (status is None and not error.param and not to_blame)
    if limited and re.search(NEVER_FITS, error.message):
        passing = False
    marks = [mark for mark in (error.code or error.type, error.param) if mark and mark not in said]
    named = f" ({', '.join(marks)})" if marks else ""
    answered = f"{server} answered {status}" if status else f"{server} reported an error"
    return ModelError(f"{answered}{named}: {_sentence(said)}", retryable=passing, status=status, retry_after_ms=wait)


def _is_refusal(code: str) -> bool:
    """Return whether a code is the HTTP status of a request that would be refused again."""
    return len(code) == 3 and "400" <= code <= "499"


def _is_overflow(error: ServerError, codes: set[str], status: int | None) -> bool:
    if re.search(OVERFLOW_WORDS, error.message):
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
