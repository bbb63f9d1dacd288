"""Asks the user and waits."""

import asyncio

from ferrule.builtin.request_user_input.definition import (
    MAX_QUESTIONS,
    RequestUserInputAction,
    RequestUserInputObservation,
)
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import UserInputRequest
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.questions import NoAnswer, UserAnswers

WAIT_SECONDS = 3600.0
"""A user who has not answered by then has left; the turn must not hang for ever."""
ALONE = "Go on without the answer: decide yourself, and say what you assumed."


class RequestUserInputExecutor(ToolExecutor[RequestUserInputAction, RequestUserInputObservation]):
    """`wait_seconds` is how long a user may take."""

    def __init__(self, wait_seconds: float = WAIT_SECONDS) -> None:
        self._wait_seconds = wait_seconds

    async def __call__(self, action: RequestUserInputAction, ctx: ToolContext) -> RequestUserInputObservation:
        """The answers. Raises `RespondToModel`: too many questions, or nobody answered."""
        count = len(action.questions)
        if not 1 <= count <= MAX_QUESTIONS:
            raise RespondToModel(f"request_user_input takes 1 to {MAX_QUESTIONS} questions, not {count}")
        if len({question.id for question in action.questions}) < count:
            raise RespondToModel("two questions have the same id; give each its own")
        questions = [question.model_dump() | {"is_other": True} for question in action.questions]
        request = UserInputRequest(request_id="", call_id=ctx.call_id, questions=questions)
        try:
            async with asyncio.timeout(self._wait_seconds):
                answer = await ctx.ask(request)
        except TimeoutError:
            answer = NoAnswer(f"nobody answered within {self._wait_seconds:g} seconds")
        if isinstance(answer, NoAnswer):
            raise RespondToModel(f"request_user_input got no answer: {answer.reason}. {ALONE}")
        if not isinstance(answer, UserAnswers):
            raise RespondToModel(f"request_user_input got no answer: the user declined. {ALONE}")
        return RequestUserInputObservation(answers=answer.answers)
