"""When a request is sent again, and after how long."""

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from ferrule.model.stream import Created, LeftOut, ModelError, ResponseEvent, Retrying

FIRST_DELAY_MS = 250
"""Pause before the first repetition where the server states none; it doubles each time."""
LONGEST_DELAY_MS = 30_000
"""Longest pause of our own choosing."""
LONGEST_STATED_MS = 120_000
"""Longest pause that a server may ask for; beyond it the user is told instead of kept waiting."""

_sleep = asyncio.sleep

Batches = AsyncGenerator[Sequence[ResponseEvent], None]


def delay_ms(attempt: int, stated_ms: int | None, chance: float) -> int:
    """Milliseconds before repetition number `attempt` (from 0). `chance` is a random number in [0, 1).

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
    """The events of `attempt`, begun anew where it fails before its first item.

    Raises the last `ModelError`, which is no longer retryable if all the repetitions failed.
    """
    for number in range(max_retries + 1):
        item_seen = False
        try:
            async with aclosing(attempt()) as batches:
                async for batch in batches:
                    for event in batch:
                        item_seen = item_seen or not isinstance(event, Created | LeftOut)
                        yield event
            return
        except ModelError as error:
            if item_seen or not error.retryable:
                raise
            if number == max_retries:
                error.retryable = number == 0  # Asked often enough: the turn does not begin the whole row anew.
                raise
            pause = delay_ms(number, error.retry_after_ms, random.random())
            yield Retrying(str(error), pause)
        await _sleep(pause / 1000)


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_IN_WORDS = re.compile(
    r"(?:again|retry(?:ing)?|wait|resets?)\s+(?:in|after|for)\s+((?:[0-9]+(?:\.[0-9]+)?\s*[a-z]+[\s,]*(?:and\s+)?)+)",
    re.IGNORECASE,
)
_QUANTITY = re.compile(
    r"([0-9]+(?:\.[0-9]+)?)\s*(ms|millisec\w*|s|m|h|d|sec\w*|min\w*|hours?|days?)(?![a-z])", re.IGNORECASE
)


def stated_in_words(message: str) -> int | None:
    """Milliseconds that a message asks to wait ("try again in 1.5s", "retry after 2 minutes"), if it does."""
    found = _IN_WORDS.search(message)
    quantities = _QUANTITY.findall(found.group(1)) if found else []
    if not quantities:
        return None
    return round(sum(float(amount) * _UNITS_MS[_unit(word.lower())] for amount, word in quantities))


def _unit(word: str) -> str:
    return "ms" if word.startswith(("ms", "millis")) else word[0]


def stated_in_headers(headers: Mapping[str, str], now: float) -> int | None:
    """Milliseconds that `retry-after-ms` or `Retry-After` (seconds or an HTTP date) ask to wait. `now`: Unix time."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return round(milliseconds)
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return round(seconds * 1000)
    if value is None:
        return None
    from email.utils import parsedate_to_datetime

    try:
        return max(0, round((parsedate_to_datetime(value).timestamp() - now) * 1000))
    except ValueError:
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def in_words(milliseconds: int) -> str:
    """A duration for people: `1 s`, `45 s`, `12 min`, `2 h 39 min`, `3 d 4 h`."""
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
