"""What a turn and a run may spend, in tokens and in money, and what they have spent."""

import msgspec

from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.prices import money, prices_of
from ferrule.protocol.settings import Settings


class BudgetSpent(FerruleError):
    """A budget of the turn or of the run is used up, and the model wanted to go on."""


class _Limit(msgspec.Struct, frozen=True):
    key: str
    most: float

    @property
    def scope(self) -> str:
        return self.key.partition("_")[0]

    def used(self, spent: float) -> str:
        """Say how much of it is used."""
        if self.key.endswith("cost_budget"):
            return f"cost {money(spent)} of {money(self.most)} of this {self.scope}"
        return f"{spent:,.0f} of {self.most:,.0f} tokens of this {self.scope}"


LIMITS = ("turn_token_budget", "run_token_budget", "turn_cost_budget", "run_cost_budget")


class Budget:
    """The budgets of a session, from its opening; one of a turn begins anew with each. What a sub-agent spends is spent
    from the budgets of its `parent`, too."""

    def __init__(self, settings: Settings, model: str, parent: "Budget | None" = None) -> None:
        """Raise `UsageError` for a budget in money without prices, and for one of nothing."""
        self.usage = TokenUsage()
        self._parent = parent
        self._turn = TokenUsage()
        self._limits = [_Limit(key, most) for key in LIMITS if (most := getattr(settings, key)) is not None]
        self._prices = prices_of(model, settings.prices)
        for limit in self._limits:
            if not limit.most > 0:
                raise UsageError(f"{limit.key} must be above zero, not {limit.most:g}")
        priced = next((limit.key for limit in self._limits if limit.key.endswith("cost_budget")), None)
        if priced is not None and self._prices is None:
            raise UsageError(
                f'{priced} needs the prices of the model: set [prices."{model}"] with input and output, per million '
                "tokens, in config.toml, or give an Agent its prices"
            )

    @property
    def is_watched(self) -> bool:
        """Whether tokens have to be known: for a limit, or for what they cost."""
        watched = bool(self._limits) or self._prices is not None
        return watched or (self._parent is not None and self._parent.is_watched)

    @property
    def cost(self) -> float | None:
        """What the session has cost; None without prices."""
        return self.cost_of(self.usage)

    def cost_of(self, usage: TokenUsage) -> float | None:
        """Return what these tokens cost; None without prices."""
        return None if self._prices is None else self._prices.cost(usage)

    def begin_turn(self) -> None:
        """Begin a turn, with the whole of its own budget."""
        self._turn = TokenUsage()

    def spend(self, usage: TokenUsage) -> None:
        """Count what a request took."""
        self.usage += usage
        self._turn += usage
        if self._parent is not None:
            self._parent.spend(usage)

    def check(self) -> None:
        """Raise `BudgetSpent` if nothing is left for another request."""
        if self._parent is not None:
            self._parent.check()
        for limit in self._limits:
            spent = self._spent(limit)
            if spent >= limit.most:
                raise BudgetSpent(f"stopped: the budget is used up, {limit.used(spent)} ({limit.key})")

    @property
    def figure(self) -> str:
        """How much is used of the budget that is nearest to its end; empty without one."""
        nearest = max(self._limits, key=lambda limit: self._spent(limit) / limit.most, default=None)
        return "" if nearest is None else nearest.used(self._spent(nearest))

    def _spent(self, limit: _Limit) -> float:
        usage = self._turn if limit.scope == "turn" else self.usage
        return self.cost_of(usage) or 0.0 if limit.key.endswith("cost_budget") else usage.total_tokens
