"""`request_user_input` over a session's pending table."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import msgspec

from ferrule import Toolset
from ferrule.protocol.events import ElicitationRequest, UserInputRequest
from ferrule.protocol.permissions import ReviewDecision
from ferrule.tools.questions import Answer, Decision, NoAnswer, UserAnswers

QUESTION = {
    "id": "color",
    "header": "Color",
    "question": "Which color?",
    "options": [{"label": "Red", "description": "Warm"}, {"label": "Blue"}],
}


class User:
    """Answers questions, at once or later."""

    def __init__(self, answer: Answer | Awaitable[Answer] | None = None) -> None:
        self.asked: list[UserInputRequest | ElicitationRequest] = []
        self.was_asked = asyncio.Event()
        self.toolset: Toolset | None = None
        self._answer = answer

    def __call__(self, question: UserInputRequest | ElicitationRequest) -> Answer | Awaitable[Answer]:
        self.asked.append(question)
        self.was_asked.set()
        return asyncio.get_running_loop().create_future() if self._answer is None else self._answer

    @property
    def waiting(self) -> int:
        assert self.toolset is not None
        return len(self.toolset.pending.questions())


async def ask(tmp_path: Path, user: User | None, *questions: object, wait_seconds: float | None = None) -> str:
    async with Toolset.for_model("gpt-5.5", cwd=tmp_path, tools=["request_user_input"], on_question=user) as tools:
        if user is not None:
            user.toolset = tools
        if wait_seconds is not None:
            handler = tools.current()[1].handler("request_user_input")
            handler.executor._wait_seconds = wait_seconds  # type: ignore[union-attr]
        arguments = msgspec.json.encode({"questions": questions}).decode()
        call = {"type": "function_call", "call_id": "1", "name": "request_user_input", "arguments": arguments}
        (answer,) = await tools.run([call])
        return str(answer["output"])


async def test_answers_come_back_by_id(tmp_path: Path) -> None:
    user = User(UserAnswers({"color": ("Blue",), "why": ("I like it – really",)}))
    free = {"id": "why", "question": "Why?"}
    text = await ask(tmp_path, user, QUESTION, free)
    assert text == '{"answers":{"color":{"answers":["Blue"]},"why":{"answers":["I like it – really"]}}}'
    (event,) = user.asked
    assert isinstance(event, UserInputRequest)
    assert event.call_id == "1" and [question["is_other"] for question in event.questions] == [True, True]
    assert event.questions[0]["options"][1] == {"label": "Blue", "description": ""}
    assert event.questions[1]["options"] == []


async def test_nobody_is_there(tmp_path: Path) -> None:
    text = await ask(tmp_path, None, QUESTION)
    assert text == (
        "request_user_input got no answer: nobody can answer questions here. "
        "Go on without the answer: decide yourself, and say what you assumed."
    )


async def test_a_user_who_does_not_answer_in_time(tmp_path: Path) -> None:
    user = User()
    text = await ask(tmp_path, user, QUESTION, wait_seconds=0.05)
    assert text.startswith("request_user_input got no answer: nobody answered within 0.05 seconds.")
    assert user.waiting == 0


async def test_a_withdrawn_or_declined_question(tmp_path: Path) -> None:
    assert "the turn ended" in await ask(tmp_path, User(NoAnswer("the turn ended")), QUESTION)
    declined = User(Decision(ReviewDecision.DENIED))
    assert "the user declined" in await ask(tmp_path, declined, QUESTION)


async def test_wrong_questions_are_not_asked(tmp_path: Path) -> None:
    user = User()
    assert await ask(tmp_path, user) == "request_user_input takes 1 to 3 questions, not 0"
    four = [{**QUESTION, "id": str(number)} for number in range(4)]
    assert await ask(tmp_path, user, *four) == "request_user_input takes 1 to 3 questions, not 4"
    assert await ask(tmp_path, user, QUESTION, QUESTION) == "two questions have the same id; give each its own"
    assert "question" in await ask(tmp_path, user, {"id": "x"})
    assert user.asked == []


async def test_an_interrupted_wait_withdraws_the_question(tmp_path: Path) -> None:
    user = User()
    task = asyncio.ensure_future(ask(tmp_path, user, QUESTION))
    await user.was_asked.wait()
    assert user.waiting == 1
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() and user.waiting == 0
