"""Whether and how much a model thinks.

Source: Anthropic's documentation of thinking. With a budget, the model may not be made to call a tool; in the loop of a
turn, the answer that made the calls must begin with thinking.
"""

from typing import Any, Self

import msgspec

from ferrule.model.sampling import REASONED_OUTPUT_LIMIT
from ferrule.model.stream import ModelRequest
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.settings import ReasoningEffort

OUTPUT_LIMIT = 8_192
"""Tokens of one answer where the server refused our own limit: the API wants one, and its older models take this."""
LEAST_BUDGET = 1_024
"""Tokens of the smallest budget that the API takes."""
BUDGETS: dict[ReasoningEffort, int] = {
    "minimal": LEAST_BUDGET, "low": 4_096, "medium": 8_192, "high": 16_384, "xhigh": 32_768, "max": 32_768,
}  # fmt: skip
"""Tokens of thinking for an effort."""
EFFORTS: dict[ReasoningEffort, str] = {
    "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max",
}  # fmt: skip
LEAST_TOP_P = 0.95
"""The smallest `top_p` that the API takes while the model thinks; it takes no temperature then."""
INTERLEAVED = "interleaved-thinking-2025-05-14"
"""The beta in which models with a budget think between calls, too; those that think as they see fit do so anyway."""


class Thought(msgspec.Struct, frozen=True):
    """The `thinking` of a request (None: nothing is said of it), its effort, and its limit of output tokens."""

    config: dict[str, Any] | None
    effort: str | None
    limit: int

    @property
    def is_on(self) -> bool:
        """Whether the request lets the model think."""
        return self.config is not None and self.config["type"] != "disabled"

    @property
    def needs_beginning(self) -> bool:
        """Whether an answer with calls that is gone on with has to begin with thinking."""
        return self.config is not None and self.config["type"] == "enabled"

    def off(self) -> Self:
        """Return the same without thinking."""
        return msgspec.structs.replace(self, config=None)


def thought_of(request: ModelRequest, profile: ModelProfile, limit: int | None, *, forced: bool) -> Thought:
    """Return how the model is to think: as the user says, else as its profile does. `limit` of output tokens: None if
    the server refused ours. `forced`: the model has to call a tool, which goes before thinking; the API takes only one
    of them."""
    effort = request.settings.reasoning_effort or profile.reasoning_effort
    given = request.settings.max_output_tokens is not None or limit is None
    limit = OUTPUT_LIMIT if limit is None else limit
    if profile.thinking == "adaptive":
        return _adaptive(effort, profile, limit if given else max(limit, REASONED_OUTPUT_LIMIT), forced=forced)
    if effort in (None, "none") or profile.thinking == "none" or forced:
        return Thought(None, None, _within(limit, profile))
    assert effort is not None
    return _budgeted(BUDGETS[effort], profile, limit, given=given)


def _adaptive(effort: ReasoningEffort | None, profile: ModelProfile, limit: int, *, forced: bool) -> Thought:
    """Return thinking as the model sees fit, with a summary of it to show."""
    if effort == "none":
        return Thought({"type": "disabled"}, None, _within(limit, profile))
    said = None if effort is None else EFFORTS[effort]
    return Thought(None if forced else {"type": "adaptive", "display": "summarized"}, said, _within(limit, profile))


def _budgeted(budget: int, profile: ModelProfile, limit: int, *, given: bool) -> Thought:
    """Return thinking with a budget, which is a part of the limit: a limit of ours makes room for it."""
    room = _within(limit if given else limit + budget, profile)
    budget = min(budget, room // 2)
    if budget < LEAST_BUDGET:
        return Thought(None, None, room)
    return Thought({"type": "enabled", "budget_tokens": budget}, None, room)


def _within(limit: int, profile: ModelProfile) -> int:
    return limit if profile.max_output is None else min(limit, profile.max_output)
