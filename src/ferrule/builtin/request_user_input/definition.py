"""What `request_user_input` takes and answers."""

import json
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from ferrule.builtin.request_user_input import DESCRIPTION
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition

MAX_QUESTIONS = 3
"""More are not answered with care."""


class Option(BaseModel):
    """One answer to choose."""

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


class RequestUserInputTool(ToolDefinition[RequestUserInputAction, RequestUserInputObservation]):
    """Asks through `ctx.ask`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[RequestUserInputTool]":
        """The one instance."""
        from ferrule.builtin.request_user_input.impl import RequestUserInputExecutor

        hints = ToolAnnotations(readOnlyHint=True, destructiveHint=False, idempotentHint=False, openWorldHint=False)
        return [cls(description=DESCRIPTION, executor=RequestUserInputExecutor(), annotations=hints, parallel=False)]
