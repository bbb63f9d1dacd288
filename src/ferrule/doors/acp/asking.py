"""A session's questions as requests to the client, and what its answers mean. Whatever is not plainly a yes is a no."""

from collections.abc import Mapping, Sequence

from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    DeclineElicitationResponse,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    EnumOption,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from ferrule.doors.acp.shown import diffs, fenced, kind_of_question, locations_of, text_content
from ferrule.protocol.events import AskedQuestion, ExecApproval, OfferedAnswer
from ferrule.protocol.permissions import ReviewDecision
from ferrule.rendering.safe import safe
from ferrule.tools.questions import Answer, Decision, Elicited, NoAnswer, UserAnswers

NETWORK = "network"
"""The kind of a question about a host, which comes while the command of its call runs."""
NOT_ASKED = "this editor cannot ask its user such a question"
NO_ANSWER = "the user gave no answer"
OTHER = "_other"
"""What the name of a field ends with that takes another answer than those offered."""
SKIP = "skip"

ALLOWED = (
    ReviewDecision.APPROVED,
    ReviewDecision.APPROVED_FOR_SESSION,
    ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT,
)

_KINDS = {
    ReviewDecision.APPROVED: "allow_once",
    ReviewDecision.APPROVED_FOR_SESSION: "allow_always",
    ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT: "allow_always",
    ReviewDecision.DENIED: "reject_once",
    ReviewDecision.ABORT: "reject_once",
}


def options_of(question: ExecApproval) -> list[PermissionOption]:
    """Return the answers that a client offers: each decision that the session takes."""
    return [
        PermissionOption(option_id=str(decision), name=_label(decision, question), kind=kind)
        for decision in question.decisions
        if (kind := _KINDS.get(decision)) is not None
    ]


def _label(decision: ReviewDecision, question: ExecApproval) -> str:
    match decision:
        case ReviewDecision.APPROVED:
            return "Allow once"
        case ReviewDecision.APPROVED_FOR_SESSION:
            return "Allow in this session"
        case ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT:
            if question.proposed_network_host is not None:
                return f"Always allow {safe(question.proposed_network_host)}"
            words = safe(" ".join(question.proposed_execpolicy_amendment or ()))
            return f"Always allow `{words}`" if question.proposes_exact else f"Always allow `{words} …`"
        case ReviewDecision.ABORT:
            return "Reject and stop"
        case _:
            return "Reject"


def call_of(question: ExecApproval, call_id: str, cwd: str) -> ToolCallUpdate:
    """Return the call that is asked about, with all that will happen in it."""
    why = f"\n\n{safe(question.reason)}" if question.reason else ""
    where = f"\n\nin {question.cwd}" if question.cwd else ""
    text = safe(question.reason or "") if question.shows_changes else f"{fenced(question.text)}{where}{why}"
    return ToolCallUpdate(
        tool_call_id=call_id,
        title=title_of(question),
        kind=kind_of_question(question.kind),
        status="pending",
        content=[*diffs(question.changes, question.cwd or cwd), *([text_content(text)] if text else [])],
        locations=locations_of(question.changes, question.cwd or cwd) or None,
        raw_input={"kind": question.kind, "text": question.text, "cwd": question.cwd, "reason": question.reason},
    )


def title_of(question: ExecApproval) -> str:
    """Return a line that says what is asked."""
    first, *more = question.text.split("\n")
    if question.kind == NETWORK:
        return f"Reach {first}"
    if question.changes:
        return f"Edit {', '.join(safe(change.path) for change in question.changes)}"
    return f"{first}{' …' if more else ''}"


def decision_of(question: ExecApproval, answer: RequestPermissionResponse) -> Decision:
    """Return the session's decision. Raises nothing: cancelled, and an option that was not offered, are a no."""
    outcome = answer.outcome
    if isinstance(outcome, AllowedOutcome) and outcome.option_id in question.decisions:
        return Decision(ReviewDecision(outcome.option_id))
    return Decision(ReviewDecision.DENIED)


def form_of(asked: Sequence[AskedQuestion]) -> ElicitationSchema:
    """Return the form of these questions: a choice where answers are offered, and a field for another one."""
    fields: dict[str, ElicitationStringPropertySchema] = {}
    for one in asked:
        offered = [
            EnumOption(const=option.label, title=safe(option.label), description=_about(option))
            for option in one.offered
        ]
        fields[one.id] = ElicitationStringPropertySchema(
            type="string", title=safe(one.header or one.id), description=safe(one.question), one_of=offered or None
        )
        if offered and one.is_other:
            fields[one.id + OTHER] = ElicitationStringPropertySchema(type="string", title="Another answer")
    required = [one.id for one in asked if not one.is_other]
    return ElicitationSchema.model_validate({"properties": fields, "required": required or None})


def _about(option: OfferedAnswer) -> str | None:
    return safe(option.description) if option.description else None


def answers_in(asked: Sequence[AskedQuestion], content: Mapping[str, object]) -> Answer:
    """Return what was answered to these questions."""
    answers: dict[str, tuple[str, ...]] = {}
    for one in asked:
        given = content.get(one.id + OTHER) or content.get(one.id)
        if given not in (None, ""):
            answers[one.id] = (str(given),)
    return UserAnswers(answers) if answers else NoAnswer(NO_ANSWER)


def choices_of(one: AskedQuestion) -> list[PermissionOption]:
    """Return the answers of one question as options, for a client that has no forms; none where it wants words."""
    made = [
        PermissionOption(option_id=f"{at}", name=safe(option.label), kind="allow_once")
        for at, option in enumerate(one.offered)
    ]
    return [*made, PermissionOption(option_id=SKIP, name="No answer", kind="reject_once")] if made else []


def question_call(one: AskedQuestion, call_id: str) -> ToolCallUpdate:
    """Return what a client shows of a question that it asks as one for permission."""
    text = safe(one.question)
    about = "\n".join(f"- {safe(option.label)}: {about}" for option in one.offered if (about := _about(option)))
    return ToolCallUpdate(
        tool_call_id=call_id,
        title=text,
        kind="other",
        status="pending",
        content=[text_content(f"{text}\n\n{about}".strip())],
    )


def choice_in(one: AskedQuestion, answer: RequestPermissionResponse) -> str | None:
    """Return the label that was chosen; None for none."""
    outcome, offered = answer.outcome, one.offered
    if isinstance(outcome, AllowedOutcome) and outcome.option_id.isdecimal() and int(outcome.option_id) < len(offered):
        return offered[int(outcome.option_id)].label
    return None


def elicited(answer: object) -> Elicited:
    """Return the answer to an MCP server's question."""
    if isinstance(answer, AcceptElicitationResponse):
        return Elicited("accept", answer.content or {})
    return Elicited("decline" if isinstance(answer, DeclineElicitationResponse) else "cancel")
