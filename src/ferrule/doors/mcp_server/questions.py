"""A session's questions as forms of the client (elicitation), and what the client answers. Pure."""

from collections.abc import Mapping

from mcp_types import ElicitRequestFormParams, ElicitResult

from ferrule.protocol.events import ElicitationRequest, ExecApproval, UserInputRequest
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.permissions import ReviewDecision
from ferrule.tools.questions import Answer, Decision, Elicited, NoAnswer, Question, UserAnswers

MAX_SHOWN = 8_000
"""Characters of a command or patch in a message: more than people read, and a client may refuse what is longer."""

DECISION = "decision"
ONCE, SESSION = "only this once", "for this session"

CANNOT_ASK = (
    "it needs approval, and this client cannot ask its user: it has no elicitation. Do it without what needs approval, "
    "or have the user start the server with another approval policy (-a) or sandbox (-s)"
)
NOT_ASKED = "it needs approval, and no call of the client runs in which its user could be asked"


def form_of(question: Question) -> ElicitRequestFormParams:
    """Return the form by which the client asks its user."""
    match question:
        case ExecApproval():
            return _approval(question)
        case UserInputRequest():
            return _user_input(question)
        case ElicitationRequest():
            schema = question.schema if isinstance(question.schema, dict) else {"type": "object", "properties": {}}
            message = f"The MCP server {question.server} asks: {question.message}"
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
    where = f"\n\nin {question.cwd}" if question.cwd else ""
    why = f"\n\n{question.reason}" if question.reason else ""
    offered = [ONCE, SESSION] if ReviewDecision.APPROVED_FOR_SESSION in question.decisions else [ONCE]
    decision = {"type": "string", "title": "Allow it", "enum": offered, "default": ONCE}
    return ElicitRequestFormParams(
        message=f"May this {question.kind} run?\n\n{_ends(question.text)}{where}{why}",
        requested_schema={"type": "object", "properties": {DECISION: decision}},
    )


def _ends(text: str) -> str:
    """Return the text; of a long one its beginning and its end, and how much is left out."""
    if len(text) <= MAX_SHOWN:
        return text
    half = MAX_SHOWN // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters are not shown here ...]\n{text[-half:]}"


def _user_input(question: UserInputRequest) -> ElicitRequestFormParams:
    asked: list[JsonObject] = question.questions if isinstance(question.questions, list) else []
    lines = [str(one.get("question", "")) for one in asked]
    fields = {str(one.get("id", number)): _field(one) for number, one in enumerate(asked)}
    return ElicitRequestFormParams(
        message="\n\n".join(lines), requested_schema={"type": "object", "properties": fields, "required": [*fields]}
    )


def _field(question: JsonObject) -> JsonObject:
    """Return a text field; its description names the answers to choose from, since another one may be given."""
    options = [f"{one.get('label')}: {one.get('description')}".rstrip(": ") for one in question.get("options") or []]
    offered = f" ({'; '.join(options)}; or another answer)" if options else ""
    title = str(question.get("header") or question.get("id") or "answer")
    return {"type": "string", "title": title, "description": f"{question.get('question', '')}{offered}"}
