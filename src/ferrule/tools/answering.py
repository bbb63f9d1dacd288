"""The functions of a program that answer for its user, plain or async."""

import inspect
from collections.abc import Awaitable, Callable

from ferrule.protocol.events import ElicitationRequest, Event, ExecApproval, UserInputRequest
from ferrule.protocol.permissions import ReviewDecision
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Answer, Decision, NoAnswer, Question

Listener = Callable[[Event | ToolEvent], None]
Approver = Callable[[ExecApproval], ReviewDecision | Decision | Awaitable[ReviewDecision | Decision]]
Questioned = Callable[[UserInputRequest | ElicitationRequest], Answer | Awaitable[Answer]]


async def answer_of(question: Question, on_approval: Approver | None, on_question: Questioned | None) -> Answer:
    """What the function for such questions says; `NoAnswer` where there is none, or where it fails."""
    try:
        if isinstance(question, ExecApproval):
            if on_approval is None:
                return NoAnswer("no on_approval callback was given")
            decided = on_approval(question)
            decision = await decided if inspect.isawaitable(decided) else decided
            return Decision(decision) if isinstance(decision, ReviewDecision) else decision
        if on_question is None:
            return NoAnswer("no on_question callback was given")
        answered = on_question(question)
        return await answered if inspect.isawaitable(answered) else answered
    except Exception as error:  # noqa: BLE001 - the caller's function failed: the question has no answer
        return NoAnswer(f"the callback that answers raised {type(error).__name__}: {error}")
