"""What can be asked of the user, and what comes back. All of it goes over one pending table."""

from collections.abc import Awaitable, Callable

import msgspec

from ferrule.protocol.dynamic_tools import DynamicToolResponse
from ferrule.protocol.events import DynamicToolCallRequest, ElicitationRequest, ExecApproval, UserInputRequest
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.permissions import ReviewDecision

Question = ExecApproval | UserInputRequest | ElicitationRequest
"""What a user is asked."""
Waiting = Question | DynamicToolCallRequest
"""What waits for an answer: a user's, or the client's that brought a tool."""
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
