"""`exec --json`: output for programs, one object per line. The shapes are a contract: docs/cli.md.

Names follow `codex exec --json` where it has them; `tool_call` and `hosted_call` are Ferrule's own.
"""

import sys
from typing import BinaryIO

import msgspec

from ferrule.doors.headless.calls import (
    Call,
    CommandCall,
    InvalidCall,
    McpCall,
    PatchCall,
    PlanCall,
    ToolCall,
    read_call,
)
from ferrule.history.pairs import called_id
from ferrule.protocol.content import text_of
from ferrule.protocol.events import (
    ErrorEvent,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    FileChange,
    ItemCompleted,
    ItemStarted,
    McpServerStatus,
    McpToolCallEnd,
    PatchApplyBegin,
    PlanUpdate,
    SandboxStatus,
    ThreadStarted,
    TokenUsage,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    WarningEvent,
)
from ferrule.protocol.items import Message, Reasoning, ResponseItem, WebSearchCall, kind_of
from ferrule.protocol.json_text import encodable
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.thoughts import shown
from ferrule.tools.events import ToolEvent

INTERRUPTED = "interrupted"

Fields = dict[str, object]


class _Running(msgspec.Struct):
    """A call between its start and its end, with its events' data. `id` is empty until it is shown."""

    id: str
    call: Call
    begun: bool = False
    ended: ExecCommandEnd | None = None
    changes: tuple[FileChange, ...] = ()
    mcp: McpToolCallEnd | None = None


class JsonLines:
    """A front end that writes each event as one line. Answers no questions."""

    can_answer = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._next = 0
        self._running: dict[str, _Running] = {}
        self._plan: Fields | None = None
        self.ended = False
        """The turn has ended, successfully or not: nothing more may be written."""

    def on_event(self, event: Event | ToolEvent) -> None:
        """Write what a program needs from the event."""
        match event:
            case SandboxStatus():
                self._write("sandbox.status", **msgspec.structs.asdict(event))
            case ThreadStarted(thread_id=thread_id, model=model):
                self._write("thread.started", thread_id=thread_id, model=model)
            case TurnStarted():
                self._write("turn.started")
            case ItemStarted(item=item):
                self._start(item)
            case ItemCompleted(item=item, output=None):
                self._say(item)
            case ItemCompleted(item=item, output=ToolOutput() as output):
                self._finish(item, output)
            case PlanUpdate():
                self._show_plan(event)
            case WarningEvent(message=message) if self.ended:  # events of the session's end: no program reads on
                print(f"ferrule: {message}", file=sys.stderr)
            case WarningEvent(message=message):
                self._item({"type": "error", "message": message})
            case TurnCompleted(usage=usage):
                self._end_plan()
                self._write("turn.completed", usage=_usage(usage))
                self.ended = True
            case ErrorEvent(message=message):
                self.fail(message)
            case TurnAborted():
                self.fail(INTERRUPTED)
            case TurnFailed():
                pass  # written by `fail`, together with its error
            case _:
                self._note(event)

    def fail(self, message: str) -> None:
        """Report that the turn, or what comes before it, ended with an error. The first one counts."""
        if not self.ended:
            self._end_plan()
            message = encodable(message)
            self._write("error", message=message)
            self._write("turn.failed", error={"message": message})
            self.ended = True

    def _note(self, event: Event | ToolEvent) -> None:
        """Store data for the item at the running call's end; say on stderr what is waited for."""
        if isinstance(event, McpServerStatus) and event.status == "waiting":
            print(f"ferrule: {event.message}", file=sys.stderr)
        running = self._running.get(getattr(event, "call_id", ""))
        if running is None:
            return
        match event:
            case ExecCommandBegin():
                running.begun = True
            case ExecCommandEnd():
                running.ended = event
            case PatchApplyBegin(changes=changes):
                running.begun, running.changes = True, changes
            case McpToolCallEnd():
                running.mcp = event

    def _start(self, item: ResponseItem) -> None:
        call, call_id = read_call(item.view), called_id(item.view)
        if call is None or call_id is None:
            return
        self._running[call_id] = running = _Running("", call)
        if not isinstance(call, PlanCall):
            self._show_start(running)

    def _show_start(self, running: _Running) -> None:
        running.id = self._new_id()
        self._write("item.started", item={"id": running.id, **_asked(running.call), "status": "in_progress"})

    def _finish(self, item: ResponseItem, output: ToolOutput) -> None:
        running = self._running.pop(called_id(item.view) or "", None)
        if running is None:
            answer = output.body if isinstance(output.body, str) else msgspec.to_builtins(output.body)
            self._item({**_hosted(item), "output": answer})
            return
        if isinstance(running.call, PlanCall):
            if output.success is not False:
                return  # an accepted plan is a `todo_list` already
            self._show_start(running)
        self._write("item.completed", item={"id": running.id, **_asked(running.call), **_came_of(running, output)})
        if output.ends_turn:
            self._item({"type": "agent_message", "text": output.text})

    def _say(self, item: ResponseItem) -> None:
        """Write an item that is complete on arrival."""
        match item.view:
            case Message(content=content):
                text = shown(text_of(content))
                if text or not text_of(content):
                    self._item({"type": "agent_message", "text": text})
            case Reasoning() as reasoning:
                text = reasoning_text(reasoning)
                if text:
                    self._item({"type": "reasoning", "text": text})
            case WebSearchCall(action=action):
                query = msgspec.json.decode(action).get("query", "") if bytes(action) else ""
                self._item({"type": "web_search", "query": query})
            case _:
                self._item(_hosted(item))

    def _show_plan(self, event: PlanUpdate) -> None:
        kind = "item.started" if self._plan is None else "item.updated"
        steps = [{"text": step.step, "completed": step.status == "completed"} for step in event.plan]
        item_id = self._new_id() if self._plan is None else self._plan["id"]
        self._plan = {"id": item_id, "type": "todo_list", "items": steps}
        self._write(kind, item=self._plan)

    def _end_plan(self) -> None:
        if self._plan is not None:
            self._write("item.completed", item=self._plan)
            self._plan = None

    def _item(self, fields: Fields) -> None:
        self._write("item.completed", item={"id": self._new_id(), **fields})

    def _new_id(self) -> str:
        self._next += 1
        return f"item_{self._next - 1}"

    def _write(self, kind: str, **fields: object) -> None:
        self._stream.write(msgspec.json.encode({"type": kind, **fields}) + b"\n")
        self._stream.flush()


def reasoning_text(item: Reasoning) -> str:
    """Return the summary, else the raw text; empty if only the encrypted form came."""
    parts = item.summary or item.content or ()
    return "\n\n".join(filter(None, (text_of((part,)) for part in parts)))


def _asked(call: Call) -> Fields:
    """Return the fields that are known when the call starts."""
    match call:
        case CommandCall(text=text):
            return {"type": "command_execution", "command": text, "aggregated_output": "", "exit_code": None}
        case PatchCall(files=files):
            return {"type": "file_change", "changes": [{"path": file.path, "kind": file.kind} for file in files]}
        case McpCall(server=server, tool=tool, arguments=arguments):
            return {
                "type": "mcp_tool_call", "server": server, "tool": tool, "arguments": arguments,
                "result": None, "error": None,
            }  # fmt: skip
        case ToolCall(name=name, arguments=arguments):
            return {"type": "tool_call", "tool": name, "arguments": arguments, "output": None}
        case InvalidCall(name=name, text=text):
            return {"type": "tool_call", "tool": name, "arguments": text, "output": None}
        case PlanCall(arguments=arguments):
            return {"type": "tool_call", "tool": "update_plan", "arguments": arguments, "output": None}


def _came_of(running: _Running, output: ToolOutput) -> Fields:
    """Return the fields that are known when the call ends. A command or patch that never began was refused:
    `declined`."""
    succeeded = output.success is not False
    status = "completed" if succeeded else "failed"
    match running.call:
        case CommandCall():
            ended = running.ended
            if not running.begun and not succeeded:
                return {"aggregated_output": output.text, "status": "declined"}
            text = output.text if ended is None else ended.output
            return {
                "aggregated_output": text, "exit_code": None if ended is None else ended.exit_code, "status": status,
            }  # fmt: skip
        case PatchCall():
            if not succeeded:
                return {"error": {"message": output.text}, "status": status}
            changes = [_change(change) for change in running.changes]
            return {"changes": changes, "status": status} if changes else {"status": status}
        case McpCall():
            if not succeeded:
                return {"error": {"message": output.text}, "status": status}
            content = output.body if isinstance(output.body, tuple) else running.mcp and running.mcp.output
            return {"result": {"content": content or output.text}, "status": status}
        case _:
            body = output.body if isinstance(output.body, str) else msgspec.to_builtins(output.body)
            return {"output": body, "status": status}


def _change(change: FileChange) -> Fields:
    moved = {} if change.move_path is None else {"move_path": change.move_path}
    return {"path": change.path, "kind": change.kind, **moved}


def _usage(usage: TokenUsage) -> Fields:
    return msgspec.structs.asdict(usage)


def _hosted(item: ResponseItem) -> Fields:
    """Return the fields of a provider's own item."""
    return {"type": "hosted_call", "kind": kind_of(item.view), "item": msgspec.Raw(item.raw)}
