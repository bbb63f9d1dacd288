"""The one table of questions that wait for an answer: approvals, user input, elicitations, dynamic calls."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from ferrule.protocol.errors import Fatal, UsageError
from ferrule.tools.questions import Answer, NoAnswer, Question, Waiting


class _Waiting(msgspec.Struct, frozen=True):
    question: Waiting
    answer: "asyncio.Future[Answer]"


class PendingTable:
    """Questions by their request id, in the order in which they were asked."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, _Waiting] = {}

    def questions(self) -> list[Question]:
        """What the user is asked now, oldest first."""
        return [entry.question for entry in self._waiting.values() if isinstance(entry.question, Question)]

    def open(self, question: Waiting) -> None:
        """Let the question wait; its answer may be given from then on."""
        self._waiting[question.request_id] = _Waiting(question, asyncio.get_running_loop().create_future())

    async def answer(
        self, request_id: str, timeout: float | None = None, by: Coroutine[Any, Any, Answer] | None = None
    ) -> Answer:
        """Wait for the answer to an open question, at most `timeout` seconds: from `decide`, or from `by` if that is
        earlier."""
        waiting = self._waiting[request_id]
        answering = None if by is None else asyncio.ensure_future(_pass_on(by, waiting.answer))
        try:
            async with asyncio.timeout(timeout):
                return await waiting.answer
        except TimeoutError:
            return NoAnswer(f"nobody answered within {timeout:g} seconds")
        finally:
            self._waiting.pop(request_id, None)
            if answering is not None:
                answering.cancel()

    def is_waiting(self, request_id: str) -> bool:
        """Return whether an answer to this question would still be taken."""
        waiting = self._waiting.get(request_id)
        return waiting is not None and not waiting.answer.done()

    def decide(self, request_id: str, answer: Answer) -> None:
        """Answer a question. Raises `UsageError` when it does not wait (any more)."""
        if not self.is_waiting(request_id):
            raise UsageError(f"no question {request_id!r} is waiting: it was answered, or its turn ended")
        self._waiting[request_id].answer.set_result(answer)

    def withdraw_all(self, reason: str) -> None:
        """End every question without an answer."""
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_result(NoAnswer(reason))


async def _pass_on(by: Coroutine[Any, Any, Answer], answer: "asyncio.Future[Answer]") -> None:
    try:
        given = await by
    except Fatal as error:
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(given)
