"""`request_user_input`: the model asks the user."""

import asyncio
import json

from pydantic import BaseModel, ConfigDict, Field

from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import UserInputRequest
from ferrule.tools.action import Action, Observation
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.questions import NoAnswer, UserAnswers

DESCRIPTION = """\
Ask the user one to three short questions and wait for the answers. Give two or three options where you can; the user \
may always answer in other words. Ask only what you can neither find out nor decide yourself."""
MAX_QUESTIONS = 3
"""More are not answered with care."""


class Option(BaseModel):
    """One answer to choose from."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    label: str = Field(description="The answer, in one to five words")
    description: str = Field(default="", description="What it means, in one short sentence")


class Question(BaseModel):
    """One question."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str = Field(description="A name for the answer, in snake_case")
    header: str = Field(default="", description="A label of at most 12 characters")
    question: str = Field(description="The question, in one sentence")
    options: list[Option] = Field(default=[], description="Two or three answers to choose from; none for free text")


class RequestUserInputAction(Action):
    """The questions."""

    questions: list[Question] = Field(description="One to three questions")


class RequestUserInputObservation(Observation):
    """Answers by question id: chosen labels or free text."""

    answers: dict[str, tuple[str, ...]]

    @property
    def to_llm_content(self) -> str:
        answers = {name: {"answers": list(given)} for name, given in self.answers.items()}
        return json.dumps({"answers": answers}, ensure_ascii=False, separators=(",", ":"))


WAIT_SECONDS = 3600.0
"""Seconds: a user who has not answered by then has left, and the turn must not hang forever."""
ALONE = "Go on without the answer: decide yourself, and say what you assumed."


class RequestUserInputExecutor(ToolExecutor[RequestUserInputAction, RequestUserInputObservation]):
    """`wait_seconds` is how long a user may take."""

    def __init__(self, wait_seconds: float = WAIT_SECONDS) -> None:
        self._wait_seconds = wait_seconds

    async def __call__(self, action: RequestUserInputAction, ctx: ToolContext) -> RequestUserInputObservation:
        """Return the answers. Raises `RespondToModel`: too many questions, or nobody answered."""
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


_HINTS = ToolAnnotations(readOnlyHint=True, destructiveHint=False, idempotentHint=False, openWorldHint=False)
TOOL = ToolDefinition(
    name="request_user_input",
    description=DESCRIPTION,
    executor=RequestUserInputExecutor(),
    annotations=_HINTS,
    parallel=False,
)
