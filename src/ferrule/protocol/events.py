"""The events a session sends to its front end. Each is one frozen struct with a `type`; its JSON is what `--json`
prints where the public stream has it, and what the other front ends translate."""

from contextlib import suppress

import msgspec

from ferrule.protocol.content import ContentPart
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.permissions import ReviewDecision


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens as the server counted them; cached tokens, read or written, and reasoning tokens are parts of input and
    output."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    cache_write_input_tokens: int = 0

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_output_tokens + other.reasoning_output_tokens,
            self.cache_write_input_tokens + other.cache_write_input_tokens,
        )

    def __sub__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.input_tokens - other.input_tokens,
            self.cached_input_tokens - other.cached_input_tokens,
            self.output_tokens - other.output_tokens,
            self.reasoning_output_tokens - other.reasoning_output_tokens,
            self.cache_write_input_tokens - other.cache_write_input_tokens,
        )

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class ThreadStarted(_Event, frozen=True, tag="thread.started"):
    """A session started or was resumed; it works in `cwd`."""

    thread_id: str
    model: str = ""
    cwd: str = ""


class SandboxStatus(_Event, frozen=True, tag="sandbox.status"):
    """The sandbox of this session's commands, and what it does not stop. `problem`: why there is none; commands are
    then refused. `reduced`: this machine offers less than full protection."""

    level: str
    not_stopped: tuple[str, ...] = ()
    reduced: bool = False
    problem: str | None = None


class TurnStarted(_Event, frozen=True, tag="turn.started"):
    """A turn started; the model is about to be asked for the first time since the user's message."""

    turn_id: str


class ItemStarted(_Event, frozen=True, tag="item.started"):
    """A call of the model was read and is starting."""

    item: ResponseItem


class ItemUpdated(_Event, frozen=True, tag="item.updated"):
    """Text of an item that is still arriving. `kind`: text, reasoning or input (of a call). `summary`: the reasoning is
    a summary of the model's own words."""

    item_id: str
    kind: str
    delta: str
    call_id: str | None = None
    summary: bool = False


class ItemCompleted(_Event, frozen=True, tag="item.completed"):
    """An item is complete: the model's text or reasoning, or a call with its answer."""

    item: ResponseItem
    output: ToolOutput | None = None
    duration_ms: int | None = None


class TurnCompleted(_Event, frozen=True, tag="turn.completed"):
    """The model has finished; `usage` are the turn's tokens, `cost` what they cost if prices are configured."""

    turn_id: str
    usage: TokenUsage
    last_message: str = ""
    cost: float | None = None


class TokenCount(_Event, frozen=True, tag="token_count"):
    """A response was counted: tokens and cost of the turn so far. `budget`: how much is used of the budget that is
    nearest to its end, in words."""

    turn_id: str
    usage: TokenUsage
    cost: float | None = None
    budget: str = ""


class ContextCompacted(_Event, frozen=True, tag="context.compacted"):
    """The earlier conversation was replaced by a summary; tokens of the next request, before and after."""

    turn_id: str
    tokens_before: int
    tokens_after: int


class TurnFailed(_Event, frozen=True, tag="turn.failed"):
    """The turn ended with an error, after the `error` event that explains it."""

    turn_id: str
    message: str


class TurnAborted(_Event, frozen=True, tag="turn.aborted"):
    """The turn was interrupted."""

    turn_id: str
    reason: str = "interrupted"


class ErrorEvent(_Event, frozen=True, tag="error"):
    """An error that ends the turn."""

    message: str


class WarningEvent(_Event, frozen=True, tag="warning"):
    """A warning for the user that does not end the turn (a retry, a tool that was left out)."""

    message: str


class FileChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A patch's change to one file: add, delete or update; a unified diff for updates. `old_text` and `new_text` are
    the whole file; None where there is none, or nothing is known of it yet."""

    kind: str
    path: str
    move_path: str | None = None
    added: int = 0
    deleted: int = 0
    unified_diff: str = ""
    old_text: str | None = None
    new_text: str | None = None


class ExecApproval(_Event, frozen=True, tag="exec_approval"):
    """A command, patch or call waits for the user's approval, or a command for a host of the network. `text` is
    everything that will run, control characters escaped; `justification` is the model's, which `reason` has, too.
    `agent_id` is the sub-agent that asks, in this and the other questions. What is proposed is a prefix of commands, or
    a host, that the user may allow for good; `proposes_exact`: commands of exactly these words, not a prefix."""

    request_id: str
    call_id: str
    kind: str
    text: str
    reason: str | None = None
    cwd: str | None = None
    decisions: tuple[ReviewDecision, ...] = ()
    proposed_execpolicy_amendment: tuple[str, ...] | None = None
    proposed_network_host: str | None = None
    proposes_exact: bool = False
    fingerprint: str = ""
    agent_id: str = ""
    justification: str = ""
    changes: tuple[FileChange, ...] = ()
    """What a patch changes, file by file, for a front end that shows it as a diff; nothing in it is escaped."""

    @property
    def shows_changes(self) -> bool:
        """Whether the changes say what becomes of the files. Where they do not, `text` is what to read."""
        return any(one.unified_diff or one.old_text or one.new_text for one in self.changes)


class NetworkRefused(_Event, frozen=True, tag="network.refused"):
    """A confined command could not reach a host, because of its list of domains, a rule, or the user's answer."""

    call_id: str
    host: str
    port: int
    reason: str


class OfferedAnswer(msgspec.Struct, frozen=True):
    """An answer to choose."""

    label: str
    description: str | None = None


class AskedQuestion(msgspec.Struct, frozen=True):
    """One question to the user. `is_other`: another answer may be given than those offered."""

    id: str = ""
    header: str = ""
    question: str = ""
    options: tuple[OfferedAnswer, ...] | None = None
    is_other: bool = False

    @property
    def offered(self) -> tuple[OfferedAnswer, ...]:
        """The answers to choose from; none where it wants words."""
        return self.options or ()


class UserInputRequest(_Event, frozen=True, tag="user_input_request"):
    """The model asks the user. `questions` are the tool's arguments."""

    request_id: str
    call_id: str
    questions: JsonValue
    agent_id: str = ""

    def asked(self) -> tuple[AskedQuestion, ...]:
        """Return the single questions, each with an id. What cannot be read as a question is left out."""
        listed = self.questions.get("questions") if isinstance(self.questions, dict) else self.questions
        found: list[AskedQuestion] = []
        for number, given in enumerate(listed if isinstance(listed, list | tuple) else ()):
            with suppress(msgspec.ValidationError):
                one = msgspec.convert(given, AskedQuestion)
                found.append(one if one.id else msgspec.structs.replace(one, id=str(number)))
        return tuple(found)


class ElicitationRequest(_Event, frozen=True, tag="elicitation_request"):
    """An MCP server asks the user for something."""

    request_id: str
    server: str
    message: str
    schema: JsonValue = None
    agent_id: str = ""


class ExecCommandBegin(_Event, frozen=True, tag="exec_command.begin"):
    """A command starts. It has one `ExecCommandEnd`, when its process ends; `process_id` is the number by which
    `write_stdin` finds it until then."""

    call_id: str
    command: tuple[str, ...]
    cwd: str
    process_id: int | None = None


class ExecCommandOutputDelta(_Event, frozen=True, tag="exec_command.output_delta"):
    """Bytes that a command wrote; at most 10,000 of these events per call."""

    call_id: str
    stream: str
    chunk: bytes


class ExecCommandEnd(_Event, frozen=True, tag="exec_command.end"):
    """A command ended, in whatever turn. `output` is all that it wrote, bounded."""

    call_id: str
    exit_code: int
    output: str
    duration_ms: int
    timed_out: bool = False


class TerminalInteraction(_Event, frozen=True, tag="terminal_interaction"):
    """The model wrote to a running command."""

    call_id: str
    process_id: int
    stdin: str


class PatchApplyBegin(_Event, frozen=True, tag="patch_apply.begin"):
    """A patch is about to be written. Paths are as the patch writes them; relative ones start at `cwd`."""

    call_id: str
    changes: tuple[FileChange, ...]
    cwd: str = ""


class PatchApplyProgress(_Event, frozen=True, tag="patch_apply.progress"):
    """A patch is still arriving: the files it has named so far, without their diffs."""

    call_id: str
    changes: tuple[FileChange, ...]


class PatchApplyEnd(_Event, frozen=True, tag="patch_apply.end"):
    """A patch was written or failed."""

    call_id: str
    success: bool
    stdout: str = ""
    stderr: str = ""


class TurnDiff(_Event, frozen=True, tag="turn_diff"):
    """The net change of this turn's patches as one unified diff."""

    unified_diff: str


class LeftAlone(msgspec.Struct, frozen=True):
    """A path that was not taken back, and why."""

    path: str
    reason: str


class UndoCompleted(_Event, frozen=True, tag="undo.completed"):
    """The changes of a turn were taken back: the files that are as before it, and what was left alone. `with_commands`:
    also what its commands changed."""

    turn_id: str
    restored: tuple[str, ...] = ()
    left: tuple[LeftAlone, ...] = ()
    with_commands: bool = False


class McpToolCallBegin(_Event, frozen=True, tag="mcp_tool_call.begin"):
    """A call goes to an MCP server."""

    call_id: str
    server: str
    tool: str
    arguments: str = ""


class McpToolCallProgress(_Event, frozen=True, tag="mcp_tool_call.progress"):
    """An MCP server reports progress on a call; `total` is None if it is unknown."""

    call_id: str
    progress: float
    total: float | None = None
    message: str = ""


class McpToolCallEnd(_Event, frozen=True, tag="mcp_tool_call.end"):
    """The MCP server answered, or failed."""

    call_id: str
    server: str
    tool: str
    duration_ms: int
    success: bool
    output: tuple[ContentPart, ...] = ()


class McpServerStatus(_Event, frozen=True, tag="mcp_server.status"):
    """The state of an MCP server: starting, waiting (a request waits for it), ready, failed or stopped, with the
    reason."""

    server: str
    status: str
    message: str = ""


class DynamicToolCallRequest(_Event, frozen=True, tag="dynamic_tool_call"):
    """A request to the client that supplied this tool to run it."""

    call_id: str
    turn_id: str
    tool: str
    arguments: JsonValue
    namespace: str | None = None

    @property
    def request_id(self) -> str:
        """The id under which the request waits for its answer."""
        return self.call_id


class PlanStep(msgspec.Struct, frozen=True):
    """One step of the plan: pending, in_progress or completed."""

    step: str
    status: str


class PlanUpdate(_Event, frozen=True, tag="plan_update"):
    """The model's whole plan."""

    plan: tuple[PlanStep, ...]
    explanation: str | None = None


class ViewImage(_Event, frozen=True, tag="view_image"):
    """The model looks at a local image."""

    call_id: str
    path: str


Event = (
    ThreadStarted
    | SandboxStatus
    | TurnStarted
    | ItemStarted
    | ItemUpdated
    | ItemCompleted
    | TurnCompleted
    | ContextCompacted
    | TokenCount
    | TurnFailed
    | TurnAborted
    | ErrorEvent
    | WarningEvent
    | ExecApproval
    | NetworkRefused
    | UserInputRequest
    | ElicitationRequest
    | ExecCommandBegin
    | ExecCommandOutputDelta
    | ExecCommandEnd
    | TerminalInteraction
    | PatchApplyBegin
    | PatchApplyProgress
    | PatchApplyEnd
    | TurnDiff
    | UndoCompleted
    | McpToolCallBegin
    | McpToolCallProgress
    | McpToolCallEnd
    | McpServerStatus
    | DynamicToolCallRequest
    | PlanUpdate
    | ViewImage
)
