"""A session's questions as forms of a client, and what its answers mean."""

from typing import Any

import pytest
from mcp.types import ElicitRequestFormParams, ElicitResult

from ferrule.doors.mcp_server.questions import MAX_SHOWN, ONCE, SESSION, answer_of, form_of
from ferrule.protocol.events import ElicitationRequest, ExecApproval, UserInputRequest
from ferrule.protocol.permissions import ReviewDecision
from ferrule.tools.questions import Decision, Elicited, NoAnswer, Question, UserAnswers

BOTH = (ReviewDecision.APPROVED, ReviewDecision.APPROVED_FOR_SESSION, ReviewDecision.DENIED)


def approval(text: str = "rm x", decisions: tuple[ReviewDecision, ...] = BOTH) -> ExecApproval:
    return ExecApproval(
        request_id="r", call_id="c", kind="command", text=text, cwd="/w", reason="why\u202e", decisions=decisions
    )


def form(question: Question) -> ElicitRequestFormParams:
    made = form_of(question)
    assert made is not None
    return made


def test_the_message_holds_the_whole_command_and_nothing_that_turns_it_around() -> None:
    text = "echo " + "x" * (MAX_SHOWN - 5)
    message = form(approval(text)).message
    assert text in message and "/w" in message and "why\\u202e" in message


def test_what_is_too_long_to_be_shown_is_not_asked() -> None:
    assert form_of(approval("x" * (MAX_SHOWN + 1))) is None


@pytest.mark.parametrize(
    ("action", "content", "decided"),
    [
        ("accept", None, ReviewDecision.APPROVED),
        ("accept", {}, ReviewDecision.APPROVED),
        ("accept", {"decision": None}, ReviewDecision.APPROVED),
        ("accept", {"decision": ONCE}, ReviewDecision.APPROVED),
        ("accept", {"decision": SESSION}, ReviewDecision.APPROVED_FOR_SESSION),
        ("accept", {"decision": "no"}, ReviewDecision.DENIED),
        ("accept", {"decision": ""}, ReviewDecision.DENIED),
        ("accept", {"decision": False}, ReviewDecision.DENIED),
        ("decline", {"decision": ONCE}, ReviewDecision.DENIED),
        ("cancel", None, ReviewDecision.DENIED),
    ],
)
def test_only_a_plain_yes_is_one(action: Any, content: dict[str, Any] | None, decided: ReviewDecision) -> None:
    assert answer_of(approval(), ElicitResult(action=action, content=content)) == Decision(decided)


def test_what_was_not_offered_cannot_be_chosen() -> None:
    question = approval(decisions=(ReviewDecision.APPROVED, ReviewDecision.DENIED))
    assert form(question).requested_schema["properties"]["decision"]["enum"] == [ONCE]
    chosen = ElicitResult(action="accept", content={"decision": SESSION})
    assert answer_of(question, chosen) == Decision(ReviewDecision.DENIED)


def test_questions_of_a_model_become_fields() -> None:
    asked = [{"id": "a", "question": "Which\x1b?"}, {"id": "b", "header": "B", "question": "How?", "options": None}]
    question = UserInputRequest(request_id="r", call_id="c", questions=asked)
    schema = form(question).requested_schema
    assert schema["required"] == ["a", "b"] and schema["properties"]["b"]["title"] == "B"
    assert "\x1b" not in form(question).message and "\x1b" not in str(schema["properties"]["a"]["description"])
    said = ElicitResult(action="accept", content={"a": "x", "b": None})
    assert answer_of(question, said) == UserAnswers({"a": ("x",)})
    assert isinstance(answer_of(question, ElicitResult(action="decline")), NoAnswer)


@pytest.mark.parametrize("schema", [None, "no schema", {"type": "object", "properties": {"n": {"type": "integer"}}}])
def test_what_an_mcp_server_asks_is_passed_on(schema: Any) -> None:
    question = ElicitationRequest(request_id="r", server="tracker", message="Which?\x1b", schema=schema)
    made = form(question)
    assert made.message == "The MCP server tracker asks: Which?\\x1b"
    assert made.requested_schema["type"] == "object"
    assert schema is None or isinstance(schema, str) or made.requested_schema == schema
    said = ElicitResult(action="accept", content={"n": 1})
    assert answer_of(question, said) == Elicited("accept", {"n": 1})
