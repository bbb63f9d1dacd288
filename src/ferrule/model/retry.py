"""Decide whether to retry a request, and after how long."""

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from ferrule.model.stream import Created, LeftOut, ModelError, PassedOver, ResponseEvent, Retrying

FIRST_DELAY_MS = 250
"""Pause before the first retry if the server states none; it doubles each time."""
LONGEST_DELAY_MS = 30_000
"""Longest pause without a server's request."""
LONGEST_STATED_MS = 120_000
"""Longest pause that a server may request, unless the provider's `longest_wait_ms` says otherwise: per-minute limits
pass within it; beyond it the user is told instead of kept waiting."""

_sleep = asyncio.sleep

Batches = AsyncGenerator[Sequence[ResponseEvent], None]


def delay_ms(attempt: int, stated_ms: int | None, chance: float) -> int:
    """Return the milliseconds before retry number `attempt` (from 0). `chance` is a random number in [0, 1).

    A pause that the server states is kept and lengthened by up to a tenth, so that many clients do not come back at
    once; our own grows from `FIRST_DELAY_MS` to `LONGEST_DELAY_MS` and is shortened by up to a half.
    """
    if stated_ms is not None:
        return round(stated_ms * (1 + chance / 10))
    longest = min(FIRST_DELAY_MS << min(attempt, 16), LONGEST_DELAY_MS)
    return round(longest * (1 - chance / 2))


async def with_retries(
    attempt: Callable[[], Batches],
    max_retries: int,
) -> AsyncGenerator[ResponseEvent, None]:
    """Yield the events of `attempt`, restarted if it fails before its first item.

    Raises the last `ModelError`, which is no longer retryable if all retries failed.
    """
    for number in range(max_retries + 1):
        item_seen = False
        try:
            async with aclosing(attempt()) as batches:
                async for batch in batches:
                    for event in batch:
                        item_seen = item_seen or not isinstance(event, Created | LeftOut | PassedOver)
                        yield event
            return
        except ModelError as error:
            if item_seen or not error.retryable:
                raise
            if number == max_retries:
                error.args = (f"{error} It was asked {number + 1} times.",) if number else error.args
                error.retryable = number == 0  # All retries are used up: the turn does not start over.
                raise
            pause = delay_ms(number, error.retry_after_ms, random.random())
            later = sum(delay_ms(further, error.retry_after_ms, 0.0) for further in range(number + 1, max_retries))
            yield Retrying(str(error), pause, pause + later, error.usage)
        await _sleep(pause / 1000)


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_IN_WORDS = (
    r"(?i)(?:again|retry(?:ing)?|wait|resets?)\s+(?:(?:in|after|for)\s+)?(?:about\s+|at least\s+)?"
    r"((?:[0-9]+(?:\.[0-9]+)?\s*[a-z]+[\s,]*(?:and\s+)?)+)"
)
_QUANTITY = r"(?i)([0-9]+(?:\.[0-9]+)?)\s*(ms|millisec\w*|s|m|h|d|sec\w*|min\w*|hours?|days?)(?![a-z])"


def stated_in_words(message: str) -> int | None:
    """Return the milliseconds that a message asks to wait ("try again in 1.5s", "retry after 2 minutes"), if any."""
    found = re.search(_IN_WORDS, message)
    quantities = re.findall(_QUANTITY, _apart(found.group(1))) if found else []
    return _sum(quantities) if quantities else None


def _apart(text: str) -> str:
    """Separate `1m3.5s` into `1m 3.5s`."""
    return re.sub(r"(?<=[a-zA-Z])(?=[0-9])", " ", text)


def _sum(quantities: Sequence[tuple[str, str]]) -> int:
    return round(sum(float(amount) * _UNITS_MS[_unit(word.lower())] for amount, word in quantities))


def _unit(word: str) -> str:
    return "ms" if word.startswith(("ms", "millis")) else word[0]


def stated_in_headers(headers: Mapping[str, str], now: float, *, limited: bool = False) -> int | None:
    """Return the milliseconds that `retry-after-ms` or `Retry-After` (seconds or an HTTP date) request; if a rate
    `limited` the request, else those until it resets. `now`: Unix time."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return round(milliseconds)
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return round(seconds * 1000)
    if value is not None and (stated := _until_date(value, now)) is not None:
        return stated
    return _reset(headers, now) if limited else None


def _reset(headers: Mapping[str, str], now: float) -> int | None:
    """Return when the exhausted limit resets; the last one to reset, if the server does not say which it is."""
    waits: dict[bool, list[int]] = {True: [], False: []}
    for name, value in headers.items():
        parts = name.lower().split("-")
        if "ratelimit" not in parts or "reset" not in parts or (wait := _span(value, now)) is None:
            continue
        remaining = headers.get("-".join("remaining" if part == "reset" else part for part in parts))
        waits[_number(remaining) == 0].append(wait)
    known = waits[True] or waits[False]
    return max(known) if known else None


_EPOCH_S = 1e9
"""Numbers of seconds from here on are times, not durations."""
_EPOCH_MS = 1e12


def _span(text: str, now: float) -> int | None:
    """Return the milliseconds of a duration (`1m3.5s`, `6ms`, `20`) or until a time (Unix seconds or milliseconds, a
    date)."""
    if (number := _number(text)) is not None:
        if number >= _EPOCH_MS:
            return max(0, round(number - now * 1000))
        return max(0, round((number - now if number >= _EPOCH_S else number) * 1000))
    if quantities := _SPAN.fullmatch(text.strip()) and re.findall(_QUANTITY, _apart(text)):
        return _sum(quantities)
    return _until_date(text, now)


_SPAN = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d)\s*)+")


def _until_date(text: str, now: float) -> int | None:
    """Return the milliseconds until an HTTP date, or one of ISO 8601."""
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            at = read(text.strip())
            return max(0, round(((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now) * 1000))
        except (ValueError, OverflowError):
            continue
    return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def in_words(milliseconds: int) -> str:
    """Format a duration for people: `1 s`, `45 s`, `12 min`, `2 h 39 min`, `3 d 4 h`."""
    seconds = max(1, round(milliseconds / 1000))
    if seconds < 120:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
