"""A session's questions as forms of the client (elicitation), and what the client answers. Pure."""

from collections.abc import Mapping

from mcp_types import ElicitRequestFormParams, ElicitResult

from ferrule.protocol.events import AskedQuestion, ElicitationRequest, ExecApproval, UserInputRequest
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.permissions import ReviewDecision
from ferrule.rendering.safe import safe
from ferrule.tools.questions import Answer, Decision, Elicited, NoAnswer, Question, UserAnswers

MAX_SHOWN = 50_000
"""Characters of a command or patch in a message: it is shown whole or not at all, since what is left out may be what
matters, and nobody reads more."""

DECISION = "decision"
ONCE, SESSION = "only this once", "for this session"

CANNOT_ASK = (
    "it needs approval, and this client cannot ask its user: it has no elicitation. Do it without what needs approval, "
    "or have the user start the server with another approval policy (-a) or sandbox (-s)"
)
TOO_LONG = (
    f"it needs approval, and is longer than the {MAX_SHOWN} characters that a user is shown: do it in smaller parts"
)
NO_ANSWER = "it needs approval, and the client failed to ask its user"
NOT_ASKED = "it needs approval, and no call of the client runs in which its user could be asked"


def form_of(question: Question) -> ElicitRequestFormParams | None:
    """Return the form by which the client asks its user; None for what is too long to be shown. Foreign text in it
    cannot look like what it is not."""
    match question:
        case ExecApproval():
            return None if len(question.text) > MAX_SHOWN else _approval(question)
        case UserInputRequest():
            return _user_input(question)
        case ElicitationRequest():
            schema = question.schema if isinstance(question.schema, dict) else {"type": "object", "properties": {}}
            message = safe(f"The MCP server {question.server} asks: {question.message}")
            return ElicitRequestFormParams(message=message, requested_schema=schema)


def answer_of(question: Question, result: ElicitResult) -> Answer:
    """Return the session's answer. Whatever is not plainly a yes is a no."""
    content: Mapping[str, JsonValue] = result.content or {}
    if isinstance(question, ElicitationRequest):
        return Elicited(result.action, result.content)
    if isinstance(question, UserInputRequest):
        if result.action != "accept":
            return NoAnswer("the user declined to answer")
        return UserAnswers({name: (str(value),) for name, value in content.items() if value is not None})
    if result.action != "accept":
        return Decision(ReviewDecision.DENIED)
    given = content.get(DECISION)
    if given == SESSION and ReviewDecision.APPROVED_FOR_SESSION in question.decisions:
        return Decision(ReviewDecision.APPROVED_FOR_SESSION)
    return Decision(ReviewDecision.APPROVED if given in (None, ONCE) else ReviewDecision.DENIED)


def _approval(question: ExecApproval) -> ElicitRequestFormParams:
    text = question.text  # it is escaped already
    where = f"\n\nin {question.cwd}" if question.cwd else ""
    why = f"\n\n{safe(question.reason)}" if question.reason else ""
    offered = [ONCE, SESSION] if ReviewDecision.APPROVED_FOR_SESSION in question.decisions else [ONCE]
    decision = {"type": "string", "title": "Allow it", "enum": offered, "default": ONCE}
    return ElicitRequestFormParams(
        message=f"May this {question.kind} run?\n\n{text}{where}{why}",
        requested_schema={"type": "object", "properties": {DECISION: decision}},
    )


def _user_input(question: UserInputRequest) -> ElicitRequestFormParams:
    asked = question.asked()
    fields: JsonObject = {one.id: _field(one) for one in asked}
    return ElicitRequestFormParams(
        message=safe("\n\n".join(one.question for one in asked)),
        requested_schema={"type": "object", "properties": fields, "required": [*fields]},
    )


def _field(asked: AskedQuestion) -> JsonObject:
    """Return a text field; its description names the answers to choose from, since another one may be given."""
    options = [f"{one.label}: {one.description or ''}".rstrip(": ") for one in asked.offered]
    offered = f" ({'; '.join(options)}; or another answer)" if options else ""
    description = safe(f"{asked.question}{offered}")
    return {"type": "string", "title": safe(asked.header or asked.id), "description": description}
