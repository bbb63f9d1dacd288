"""How a check ends other than well."""

from typing import Any

from ferrule.protocol.errors import FerruleError

SHOWN = 200
"""Characters of a value that a failure shows."""


class Failed(FerruleError):
    """The server does something else than the API says."""


class Skipped(FerruleError):
    """A check that cannot be made against this server."""


def expect(holds: object, why: str) -> None:
    """Fail unless something holds."""
    if not holds:
        raise Failed(why)


def expect_equal(found: Any, wanted: Any, what: str) -> None:
    """Fail unless two values are equal."""
    if found != wanted:
        raise Failed(f"{what}: {_short(found)} instead of {_short(wanted)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
