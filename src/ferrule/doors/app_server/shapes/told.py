"""What the server tells (notifications) and asks (requests), and the answers to that."""

from typing import ClassVar, Literal

import msgspec

from ferrule.doors.app_server.shapes.common import RequestId, Shape, ThreadTokenUsage, TurnError
from ferrule.doors.app_server.shapes.items import ContentItem, FileUpdateChange, ThreadItem, UnknownAction
from ferrule.doors.app_server.shapes.threads import Thread, ThreadStatus, Turn
from ferrule.protocol.json_text import JsonValue


class Told(Shape, frozen=True, kw_only=True):
    """The params of a message of the server; `method` is its name."""

    method: ClassVar[str]


class OfThread(Told, frozen=True, kw_only=True):
    """A message about a thread."""

    thread_id: str


class _OfTurn(OfThread, frozen=True, kw_only=True):
    turn_id: str


class _OfItem(_OfTurn, frozen=True, kw_only=True):
    item_id: str


class ErrorTold(_OfTurn, frozen=True, kw_only=True):
    """What a turn failed with."""

    method = "error"
    error: TurnError
    will_retry: bool = False


class Warned(Told, frozen=True, kw_only=True):
    """A problem that ends nothing."""

    method = "warning"
    message: str
    thread_id: str | None = None


class ThreadStarted(Told, frozen=True, kw_only=True):
    """A thread is open."""

    method = "thread/started"
    thread: Thread


class StatusChanged(OfThread, frozen=True, kw_only=True):
    """A thread began or ended work, or waits for an answer."""

    method = "thread/status/changed"
    status: ThreadStatus


class TokenUsageUpdated(_OfTurn, frozen=True, kw_only=True):
    """A response of the model was counted."""

    method = "thread/tokenUsage/updated"
    token_usage: ThreadTokenUsage


class NameUpdated(OfThread, frozen=True, kw_only=True):
    """A thread has another name."""

    method = "thread/name/updated"
    thread_name: str | None = None


class Archived(OfThread, frozen=True, kw_only=True):
    """A thread was archived."""

    method = "thread/archived"


class Deleted(OfThread, frozen=True, kw_only=True):
    """A thread was deleted."""

    method = "thread/deleted"


class Closed(OfThread, frozen=True, kw_only=True):
    """A thread is not open any more."""

    method = "thread/closed"


class TurnStarted(OfThread, frozen=True, kw_only=True):
    """A turn runs."""

    method = "turn/started"
    turn: Turn


class TurnCompleted(OfThread, frozen=True, kw_only=True):
    """A turn has ended, well or not."""

    method = "turn/completed"
    turn: Turn


class DiffUpdated(_OfTurn, frozen=True, kw_only=True):
    """What all patches of the turn come to."""

    method = "turn/diff/updated"
    diff: str


class PlanStep(Shape, frozen=True, kw_only=True):
    """A step of the plan."""

    step: str
    status: Literal["pending", "inProgress", "completed"]


class PlanUpdated(_OfTurn, frozen=True, kw_only=True):
    """The model's whole plan."""

    method = "turn/plan/updated"
    plan: tuple[PlanStep, ...]
    explanation: str | None = None


class ItemStarted(_OfTurn, frozen=True, kw_only=True):
    """An item begins. Times are milliseconds since 1970."""

    method = "item/started"
    item: ThreadItem
    started_at_ms: int


class ItemCompleted(_OfTurn, frozen=True, kw_only=True):
    """An item in its final form."""

    method = "item/completed"
    item: ThreadItem
    completed_at_ms: int


class MessageDelta(_OfItem, frozen=True, kw_only=True):
    """More of what the model says."""

    method = "item/agentMessage/delta"
    delta: str


class SummaryPartAdded(_OfItem, frozen=True, kw_only=True):
    """The summary of the reasoning begins."""

    method = "item/reasoning/summaryPartAdded"
    summary_index: int = 0


class SummaryDelta(_OfItem, frozen=True, kw_only=True):
    """More of the summary of the reasoning."""

    method = "item/reasoning/summaryTextDelta"
    delta: str
    summary_index: int = 0


class ReasoningDelta(_OfItem, frozen=True, kw_only=True):
    """More of the model's own reasoning, from servers that show it."""

    method = "item/reasoning/textDelta"
    delta: str
    content_index: int = 0


class OutputDelta(_OfItem, frozen=True, kw_only=True):
    """More of what a command writes."""

    method = "item/commandExecution/outputDelta"
    delta: str


class TerminalInteraction(_OfItem, frozen=True, kw_only=True):
    """The model wrote to a command that runs."""

    method = "item/commandExecution/terminalInteraction"
    process_id: str
    stdin: str


class PatchUpdated(_OfItem, frozen=True, kw_only=True):
    """A patch is arriving: the files that it has named so far."""

    method = "item/fileChange/patchUpdated"
    changes: tuple[FileUpdateChange, ...]


class McpProgress(_OfItem, frozen=True, kw_only=True):
    """An MCP server reports progress."""

    method = "item/mcpToolCall/progress"
    message: str


class McpStatus(Told, frozen=True, kw_only=True):
    """How an MCP server is."""

    method = "mcpServer/startupStatus/updated"
    name: str
    status: Literal["starting", "ready", "failed", "cancelled"]
    error: str | None = None
    thread_id: str | None = None


class Resolved(OfThread, frozen=True, kw_only=True):
    """A request of the server has its answer, or needs none any more."""

    method = "serverRequest/resolved"
    request_id: RequestId


NOTIFICATIONS: tuple[type[Told], ...] = (
    ErrorTold, Warned, ThreadStarted, StatusChanged, TokenUsageUpdated, NameUpdated, Archived, Deleted, Closed,
    TurnStarted, TurnCompleted, DiffUpdated, PlanUpdated, ItemStarted, ItemCompleted, MessageDelta, SummaryPartAdded,
    SummaryDelta, ReasoningDelta, OutputDelta, TerminalInteraction, PatchUpdated, McpProgress, McpStatus, Resolved,
)  # fmt: skip


# What the server asks


class NetworkContext(Shape, frozen=True, kw_only=True):
    """The host that a command wants to reach."""

    host: str
    protocol: str


class NetworkAmendment(Shape, frozen=True, kw_only=True):
    """A host that is allowed, or denied, for good."""

    host: str
    action: Literal["allow", "deny"]


class CommandApproval(_OfItem, frozen=True, kw_only=True):
    """May this run? `command` is everything that will; for a host of the network there is none."""

    method = "item/commandExecution/requestApproval"
    started_at_ms: int
    kind: Literal["command"] = "command"
    command: str | None = None
    command_actions: tuple[UnknownAction, ...] = ()
    cwd: str | None = None
    reason: str | None = None
    available_decisions: tuple[JsonValue, ...] = ()
    proposed_execpolicy_amendment: tuple[str, ...] | None = None
    network_approval_context: NetworkContext | None = None
    proposed_network_policy_amendments: tuple[NetworkAmendment, ...] | None = None


class FileApproval(_OfItem, frozen=True, kw_only=True):
    """May these files be changed? The item has the changes."""

    method = "item/fileChange/requestApproval"
    started_at_ms: int
    reason: str | None = None
    grant_root: str | None = None


class QuestionOption(Shape, frozen=True, kw_only=True):
    """An answer to choose."""

    label: str
    description: str


class UserQuestion(Shape, frozen=True, kw_only=True):
    """A question to the user. `is_other`: any other answer may be given, too."""

    id: str
    header: str
    question: str
    is_other: bool = True
    is_secret: bool = False
    options: tuple[QuestionOption, ...] | None = None


class UserInputAsked(_OfItem, frozen=True, kw_only=True):
    """The model asks the user."""

    method = "item/tool/requestUserInput"
    questions: tuple[UserQuestion, ...]
    is_blocking: bool = True


class ElicitationAsked(OfThread, frozen=True, kw_only=True):
    """An MCP server asks the user, or a call of its tool needs approval (then `_meta` says so)."""

    method = "mcpServer/elicitation/request"
    server_name: str
    message: str
    requested_schema: JsonValue
    turn_id: str | None = None
    mode: Literal["form"] = "form"
    meta: JsonValue = msgspec.field(default=None, name="_meta")


class ToolCalled(_OfTurn, frozen=True, kw_only=True):
    """Run a tool of the client's."""

    method = "item/tool/call"
    call_id: str
    tool: str
    arguments: JsonValue
    namespace: str | None = None


# The answers


class ExecpolicyAmendment(msgspec.Struct, frozen=True, kw_only=True):
    """The prefix of commands that is allowed for good."""

    execpolicy_amendment: tuple[str, ...]


class NetworkPolicyAmendment(msgspec.Struct, frozen=True, kw_only=True):
    """The host that is allowed or denied for good."""

    network_policy_amendment: NetworkAmendment


class Amendments(Shape, frozen=True, kw_only=True):
    """A yes that holds for good: one of the two."""

    accept_with_execpolicy_amendment: ExecpolicyAmendment | None = None
    apply_network_policy_amendment: NetworkPolicyAmendment | None = None


class CommandDecision(Shape, frozen=True, kw_only=True):
    """The answer to `CommandApproval`."""

    decision: Literal["accept", "acceptForSession", "decline", "cancel"] | Amendments


class FileDecision(Shape, frozen=True, kw_only=True):
    """The answer to `FileApproval`."""

    decision: Literal["accept", "acceptForSession", "decline", "cancel"]


class OneAnswer(Shape, frozen=True, kw_only=True):
    """The answer to one question: what was chosen or written."""

    answers: tuple[str, ...]


class UserAnswered(Shape, frozen=True, kw_only=True):
    """The answers, by the questions' ids."""

    answers: dict[str, OneAnswer]


class ElicitationAnswered(Shape, frozen=True, kw_only=True):
    """The answer to an elicitation."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonValue = None
    meta: JsonValue = msgspec.field(default=None, name="_meta")


class ToolAnswered(Shape, frozen=True, kw_only=True):
    """What the client's tool came to."""

    content_items: tuple[ContentItem, ...]
    success: bool


Asking = CommandApproval | FileApproval | UserInputAsked | ElicitationAsked | ToolCalled
"""A request of the server."""

ASKED: dict[type[Asking], type[Shape]] = {
    CommandApproval: CommandDecision,
    FileApproval: FileDecision,
    UserInputAsked: UserAnswered,
    ElicitationAsked: ElicitationAnswered,
    ToolCalled: ToolAnswered,
}
"""What the server asks, and the form of the answer."""
