"""The functions of a program that answer for its user, plain or async."""

import inspect
from collections.abc import Awaitable, Callable

from ferrule.protocol.errors import Fatal
from ferrule.protocol.events import ElicitationRequest, Event, ExecApproval, UserInputRequest
from ferrule.protocol.permissions import ReviewDecision
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Answer, Decision, NoAnswer, Question

Listener = Callable[[Event | ToolEvent], None]
Approval = bool | ReviewDecision | Decision
"""What `on_approval` returns: True allows this one time, False refuses."""
Approver = Callable[[ExecApproval], Approval | Awaitable[Approval]]
Questioned = Callable[[UserInputRequest | ElicitationRequest], Answer | Awaitable[Answer]]


async def answer_of(question: Question, on_approval: Approver | None, on_question: Questioned | None) -> Answer:
    """Call the function for such questions. Return `NoAnswer` if there is none, or if it raises.

    Raises `Fatal` if `on_approval` returns something that is no decision.
    """
    try:
        if isinstance(question, ExecApproval):
            if on_approval is None:
                return NoAnswer("no on_approval callback was given")
            decided = on_approval(question)
            return decision_of(await decided if inspect.isawaitable(decided) else decided)
        if on_question is None:
            return NoAnswer("no on_question callback was given")
        answered = on_question(question)
        return await answered if inspect.isawaitable(answered) else answered
    except Fatal:
        raise
    except Exception as error:  # noqa: BLE001 - the caller's function failed: the question has no answer
        return NoAnswer(f"the callback that answers raised {type(error).__name__}: {error}")


def decision_of(given: object) -> Decision:
    """Return what `on_approval` has decided. Raises `Fatal` for anything else than an `Approval`."""
    match given:
        case True:
            return Decision(ReviewDecision.APPROVED)
        case False:
            return Decision(ReviewDecision.DENIED)
        case ReviewDecision():
            return Decision(given)
        case Decision():
            return given
    raise Fatal(f"on_approval returned {given!r}: return True, False, a ReviewDecision or a Decision")
