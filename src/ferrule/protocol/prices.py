"""What tokens cost: `[prices.MODEL]`, per million tokens, in any one currency."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from ferrule.protocol.events import TokenUsage

Price = Annotated[float, msgspec.Meta(ge=0)]
MILLION = 1_000_000


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices of a million tokens. Input that was read from a cache, or written to one, costs what other input does
    unless it has a price of its own."""

    input: Price
    output: Price
    cached_input: Price | None = None
    cache_write_input: Price | None = None

    def cost(self, usage: TokenUsage) -> float:
        """Return what these tokens cost."""
        read, written = usage.cached_input_tokens, usage.cache_write_input_tokens
        plain = max(usage.input_tokens - read - written, 0)
        return (
            plain * self.input
            + read * (self.input if self.cached_input is None else self.cached_input)
            + written * (self.input if self.cache_write_input is None else self.cache_write_input)
            + usage.output_tokens * self.output
        ) / MILLION


def money(amount: float) -> str:
    """Return an amount for people: answers cost fractions of a cent."""
    return f"{amount:,.6f}".rstrip("0").rstrip(".")


def prices_of(model: str, table: Mapping[str, Prices]) -> Prices | None:
    """Return the prices of a model: those under its name, else those of the longest glob that matches it."""
    globs = (pattern for pattern in table if fnmatchcase(model, pattern))
    return table.get(model) or table.get(max(globs, key=len, default=""))
