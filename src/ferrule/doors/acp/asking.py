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
from ferrule.protocol.events import ExecApproval, UserInputRequest
from ferrule.protocol.json_text import JsonObject
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


def asked_in(question: UserInputRequest) -> list[JsonObject]:
    """Return the single questions of one request."""
    return [one for one in question.questions if isinstance(one, dict)] if isinstance(question.questions, list) else []


def form_of(asked: Sequence[JsonObject]) -> ElicitationSchema:
    """Return the form of these questions: a choice where answers are offered, and a field for another one."""
    fields: dict[str, ElicitationStringPropertySchema] = {}
    for number, one in enumerate(asked):
        name, title = name_of(one, number), safe(str(one.get("header") or one.get("id") or "Answer"))
        offered = [
            EnumOption(const=str(option["label"]), title=safe(str(option["label"])), description=_about(option))
            for option in one.get("options") or []
        ]
        fields[name] = ElicitationStringPropertySchema(
            type="string", title=title, description=safe(str(one.get("question", ""))), one_of=offered or None
        )
        if offered and one.get("is_other"):
            fields[name + OTHER] = ElicitationStringPropertySchema(type="string", title="Another answer")
    required = [name_of(one, number) for number, one in enumerate(asked) if not one.get("is_other")]
    return ElicitationSchema.model_validate({"properties": fields, "required": required or None})


def name_of(one: JsonObject, number: int) -> str:
    """Return the id of a question."""
    return str(one.get("id") or number)


def _about(option: JsonObject) -> str | None:
    return safe(str(option["description"])) if option.get("description") else None


def answers_in(asked: Sequence[JsonObject], content: Mapping[str, object]) -> Answer:
    """Return what was answered to these questions."""
    answers: dict[str, tuple[str, ...]] = {}
    for number, one in enumerate(asked):
        name = name_of(one, number)
        given = content.get(name + OTHER) or content.get(name)
        if given not in (None, ""):
            answers[name] = (str(given),)
    return UserAnswers(answers) if answers else NoAnswer(NO_ANSWER)


def choices_of(one: JsonObject) -> list[PermissionOption]:
    """Return the answers of one question as options, for a client that has no forms; none where it wants words."""
    offered = [str(option["label"]) for option in one.get("options") or []]
    made = [
        PermissionOption(option_id=f"{at}", name=safe(label), kind="allow_once") for at, label in enumerate(offered)
    ]
    return [*made, PermissionOption(option_id=SKIP, name="No answer", kind="reject_once")] if made else []


def question_call(one: JsonObject, call_id: str) -> ToolCallUpdate:
    """Return what a client shows of a question that it asks as one for permission."""
    text = safe(str(one.get("question", "")))
    about = "\n".join(
        f"- {safe(str(option['label']))}: {about}" for option in one.get("options") or [] if (about := _about(option))
    )
    return ToolCallUpdate(
        tool_call_id=call_id,
        title=text,
        kind="other",
        status="pending",
        content=[text_content(f"{text}\n\n{about}".strip())],
    )


def choice_in(one: JsonObject, answer: RequestPermissionResponse) -> str | None:
    """Return the label that was chosen; None for none."""
    outcome, offered = answer.outcome, one.get("options") or []
    if isinstance(outcome, AllowedOutcome) and outcome.option_id.isdecimal() and int(outcome.option_id) < len(offered):
        return str(offered[int(outcome.option_id)]["label"])
    return None


def elicited(answer: object) -> Elicited:
    """Return the answer to an MCP server's question."""
    if isinstance(answer, AcceptElicitationResponse):
        return Elicited("accept", answer.content or {})
    return Elicited("decline" if isinstance(answer, DeclineElicitationResponse) else "cancel")
