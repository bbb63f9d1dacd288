"""The questions of a session as requests to the client, and the client's answers. Pure."""

from collections.abc import Mapping

import msgspec

from ferrule.doors.app_server.making import as_words, now_ms
from ferrule.doors.app_server.shapes import told
from ferrule.doors.app_server.shapes.items import ContentImage, UnknownAction
from ferrule.doors.app_server.shapes.told import Asking
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.dynamic_tools import DynamicToolResponse
from ferrule.protocol.events import (
    AskedQuestion,
    DynamicToolCallRequest,
    ElicitationRequest,
    ExecApproval,
    UserInputRequest,
)
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.permissions import ReviewDecision
from ferrule.tools.questions import Answer, Decision, Elicited, NoAnswer, UserAnswers, Waiting

NO_ANSWER = "the client answered with an error, or in a form that is no answer"
EMPTY_FORM: Mapping[str, JsonValue] = {"type": "object", "properties": {}}
_DECISIONS = {
    "accept": ReviewDecision.APPROVED,
    "acceptForSession": ReviewDecision.APPROVED_FOR_SESSION,
    "decline": ReviewDecision.DENIED,
    "cancel": ReviewDecision.ABORT,
}
_NAMES = {decision: name for name, decision in _DECISIONS.items()}


def asked(question: Waiting, thread_id: str, turn_id: str) -> Asking:
    """Return the request to the client that asks a question."""
    match question:
        case ExecApproval():
            return _approval(question, thread_id, turn_id)
        case UserInputRequest(call_id=call_id):
            questions = tuple(map(_user_question, question.asked()))
            return told.UserInputAsked(thread_id=thread_id, turn_id=turn_id, item_id=call_id, questions=questions)
        case ElicitationRequest(server=server, message=message, schema=schema):
            return told.ElicitationAsked(
                thread_id=thread_id,
                turn_id=turn_id or None,
                server_name=server,
                message=message,
                requested_schema=EMPTY_FORM if schema is None else schema,
            )
        case DynamicToolCallRequest(call_id=call_id, tool=tool, arguments=arguments, namespace=namespace):
            return told.ToolCalled(
                thread_id=thread_id,
                turn_id=turn_id,
                call_id=call_id,
                tool=tool,
                arguments=arguments,
                namespace=namespace,
            )


def _approval(question: ExecApproval, thread_id: str, turn_id: str) -> Asking:
    item = question.call_id
    if question.kind == "patch":
        return told.FileApproval(
            thread_id=thread_id, turn_id=turn_id, item_id=item, started_at_ms=now_ms(), reason=question.reason
        )
    if question.kind == "mcp":
        server, _, call = question.text.partition("/")
        return told.ElicitationAsked(
            thread_id=thread_id,
            turn_id=turn_id or None,
            server_name=server,
            message=f"Allow this call of the MCP server {server}? {call}",
            requested_schema=EMPTY_FORM,
            meta={"codex_approval_kind": "mcp_tool_call", "persist": ["session"]},
        )
    host = question.proposed_network_host or question.text if question.kind == "network" else None
    return told.CommandApproval(
        thread_id=thread_id,
        turn_id=turn_id,
        item_id=item,
        started_at_ms=now_ms(),
        command=as_words(question.text) if host is None else None,
        command_actions=(UnknownAction(command=question.text),) if host is None else (),
        cwd=question.cwd,
        reason=question.reason,
        available_decisions=_choices(question),
        proposed_execpolicy_amendment=question.proposed_execpolicy_amendment,
        network_approval_context=None if host is None else _context(host, question.text),
        proposed_network_policy_amendments=(
            None if question.proposed_network_host is None else (_allowed(question.proposed_network_host),)
        ),
    )


def _context(host: str, url: str) -> told.NetworkContext:
    scheme, colon, _ = url.partition("://")
    return told.NetworkContext(host=host, protocol=scheme if colon else "https")


def _allowed(host: str) -> told.NetworkAmendment:
    return told.NetworkAmendment(host=host, action="allow")


def _choices(question: ExecApproval) -> tuple[JsonValue, ...]:
    return tuple(_choice(decision, question) for decision in question.decisions)


def _choice(decision: ReviewDecision, question: ExecApproval) -> JsonValue:
    if decision in _NAMES:
        return _NAMES[decision]
    if question.proposed_network_host is not None:
        host = msgspec.to_builtins(_allowed(question.proposed_network_host))
        return {"applyNetworkPolicyAmendment": {"network_policy_amendment": host}}
    prefix = list(question.proposed_execpolicy_amendment or ())
    return {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": prefix}}


def _user_question(asked: AskedQuestion) -> told.UserQuestion:
    options = tuple(told.QuestionOption(label=one.label, description=one.description or "") for one in asked.offered)
    return told.UserQuestion(id=asked.id, header=asked.header, question=asked.question, options=options or None)


def answer_to(question: Waiting, params: Asking, result: msgspec.Raw | None) -> Answer:
    """Return what the client answered to `params`; what is no answer is a no."""
    try:
        if result is None:
            raise msgspec.ValidationError
        given = msgspec.json.decode(result, type=told.ASKED[type(params)])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _refusal(question)
    match given:
        case told.CommandDecision(decision=told.Amendments() as amendments):
            return Decision(_amended(question, amendments))
        case told.CommandDecision(decision=str(word)) | told.FileDecision(decision=word):
            return Decision(_DECISIONS[word])
        case told.UserAnswered(answers=answers):
            return UserAnswers({name: one.answers for name, one in answers.items()})
        case told.ToolAnswered(content_items=items, success=success):
            parts = tuple(
                InputImage(image_url=item.image_url) if isinstance(item, ContentImage) else InputText(item.text)
                for item in items
            )
            return DynamicToolResponse(parts, success)
        case told.ElicitationAnswered() if isinstance(question, ExecApproval):
            return Decision(_elicited(given))
        case told.ElicitationAnswered(action=action, content=content):
            return Elicited(action, content)
    raise AssertionError(given)


def _amended(question: Waiting, given: told.Amendments) -> ReviewDecision:
    """Return a yes for good where it is for what was proposed; for anything else it is one for this time."""
    assert isinstance(question, ExecApproval)
    prefix, host = given.accept_with_execpolicy_amendment, given.apply_network_policy_amendment
    if host is not None and host.network_policy_amendment.action == "deny":
        return ReviewDecision.DENIED
    if prefix is None and host is None:
        return ReviewDecision.DENIED
    proposed = prefix is not None and prefix.execpolicy_amendment == question.proposed_execpolicy_amendment
    listed = host is not None and host.network_policy_amendment.host == question.proposed_network_host
    return ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT if proposed or listed else ReviewDecision.APPROVED


def _elicited(given: told.ElicitationAnswered) -> ReviewDecision:
    if given.action != "accept":
        return ReviewDecision.DENIED if given.action == "decline" else ReviewDecision.ABORT
    kept = isinstance(given.meta, Mapping) and given.meta.get("persist") == "session"
    return ReviewDecision.APPROVED_FOR_SESSION if kept else ReviewDecision.APPROVED


def _refusal(question: Waiting) -> Answer:
    if isinstance(question, ExecApproval):
        return Decision(ReviewDecision.DENIED, NO_ANSWER)
    if isinstance(question, DynamicToolCallRequest):
        return DynamicToolResponse((InputText(NO_ANSWER),), success=False)
    return Elicited("cancel") if isinstance(question, ElicitationRequest) else NoAnswer(NO_ANSWER)
