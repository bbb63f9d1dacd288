"""Questions to the user, and their answers. All of them go through one table of pending questions."""

from collections.abc import Awaitable, Callable

import msgspec

from ferrule.protocol.dynamic_tools import DynamicToolResponse
from ferrule.protocol.events import DynamicToolCallRequest, ElicitationRequest, ExecApproval, UserInputRequest
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.permissions import ReviewDecision

Question = ExecApproval | UserInputRequest | ElicitationRequest
"""A question to the user."""
Waiting = Question | DynamicToolCallRequest
"""A request waiting for an answer: from the user, or from the client that supplied a tool."""
DynamicCallback = Callable[[DynamicToolCallRequest], DynamicToolResponse | Awaitable[DynamicToolResponse]]
"""Runs a client's tool."""


class Decision(msgspec.Struct, frozen=True):
    """The answer to an approval request; `message` is the user's reason, which the model reads."""

    decision: ReviewDecision
    message: str | None = None


class UserAnswers(msgspec.Struct, frozen=True):
    """Answers by question id; each is the chosen labels or free text."""

    answers: dict[str, tuple[str, ...]]


class Elicited(msgspec.Struct, frozen=True):
    """The answer to an elicitation: accept (with content), decline or cancel."""

    action: str
    content: JsonValue = None


class NoAnswer(msgspec.Struct, frozen=True):
    """Nobody answered: no front end, a timeout, or the question was withdrawn."""

    reason: str


Answer = Decision | UserAnswers | Elicited | DynamicToolResponse | NoAnswer
