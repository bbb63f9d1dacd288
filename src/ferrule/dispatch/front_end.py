"""What a session needs of the door through which it was opened, and the one for programs: a few functions."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from ferrule.protocol.events import Event, WarningEvent
from ferrule.protocol.permissions import AskForApproval, as_approval_policy
from ferrule.tools.answering import Approver, Listener, Questioned, answer_of
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Answer, Question

Pace = Callable[[], Awaitable[None]]
"""Waits until a front end can take more events."""


class FrontEnd(Protocol):
    """Shows events. `can_answer`: somebody will answer questions by `Session.decide`. One that may be slower than its
    session has a `pace` besides: turns wait for it before they read more of the model. One whose user edits
    files has their `buffers`."""

    @property
    def can_answer(self) -> bool: ...

    def on_event(self, event: Event | ToolEvent) -> None:
        """Show an event. Called in the session's loop; must not block."""
        ...


class Answers(NamedTuple):
    """What somebody will answer: approvals, and the questions of models and servers."""

    approvals: bool
    questions: bool


class Callbacks:
    """A front end made of functions, plain or async: one sees the events, one decides approvals, one answers the
    rest."""

    def __init__(
        self, on_event: Listener | None, on_approval: Approver | None, on_question: Questioned | None = None
    ) -> None:
        self._on_event = on_event
        self._on_approval = on_approval
        self._on_question = on_question

    @property
    def can_answer(self) -> bool:
        """Whether there is a function that answers."""
        return any(self.answers)

    @property
    def answers(self) -> Answers:
        """For which questions there is a function."""
        return Answers(self._on_approval is not None, self._on_question is not None)

    def on_event(self, event: Event | ToolEvent) -> None:
        """Pass the event on."""
        if self._on_event is not None:
            self._on_event(event)

    async def answer(self, question: Question) -> Answer:
        """Call the function that answers such questions."""
        return await answer_of(question, self._on_approval, self._on_question)


def answers_of(front_end: FrontEnd | None) -> Answers:
    """Return which kinds of requests are answered behind a front end."""
    if isinstance(front_end, Callbacks):
        return front_end.answers
    answered = front_end is not None and front_end.can_answer
    return Answers(answered, answered)


def policy_for(given: str | None, on_approval: Approver | None) -> AskForApproval:
    """Return the approval policy of this name; without one, `on-request` where a function decides, else `never`."""
    if given is not None:
        return as_approval_policy(given)
    return AskForApproval.NEVER if on_approval is None else AskForApproval.ON_REQUEST


def callbacks(
    on_event: Listener | None, on_approval: Approver | None, on_question: Questioned | None
) -> Callbacks | None:
    """Return the front end of these functions, or None where there is none of them."""
    given = (on_event, on_approval, on_question)
    return None if given == (None, None, None) else Callbacks(*given)


def reporter(front_end: FrontEnd | None) -> Callable[[str], None]:
    """Return the function that shows a sentence as a warning; without a front end it does nothing."""
    return lambda text: None if front_end is None else front_end.on_event(WarningEvent(message=text))
