"""`exec --json`: output for programs, one object per line. The shapes are a contract: docs/cli.md.

Names follow `codex exec --json` where it has them; `tool_call` and `hosted_call` are Ferrule's own.
"""

import os
import shlex
import signal
import sys
from typing import BinaryIO

import msgspec

from ferrule.history.pairs import called_id
from ferrule.protocol.content import InputText, cited_pages, text_of
from ferrule.protocol.events import (
    ErrorEvent,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    ItemCompleted,
    ItemStarted,
    McpServerStatus,
    McpToolCallEnd,
    NetworkRefused,
    PatchApplyBegin,
    PatchApplyEnd,
    PlanUpdate,
    SandboxStatus,
    ThreadStarted,
    TokenCount,
    TokenUsage,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    UndoCompleted,
    WarningEvent,
)
from ferrule.protocol.items import Message, Reasoning, ResponseItem, WebSearchCall, kind_of
from ferrule.protocol.json_text import encodable
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.thoughts import shown
from ferrule.rendering.calls import (
    Call,
    CommandCall,
    InputCall,
    InvalidCall,
    McpCall,
    PatchCall,
    PlanCall,
    ToolCall,
    mcp_part,
    read_call,
)
from ferrule.rendering.words import reasoning_text
from ferrule.tools.events import ChildEvent, ObservationEvent, ToolEvent

INTERRUPTED = "interrupted"
KILLED = 128 + signal.SIGKILL
"""The exit code of a process that was killed and whose end nobody saw."""

Fields = dict[str, object]


class _Shown(msgspec.Struct):
    """An item that was started and not yet completed."""

    id: str
    fields: Fields


class _Running(msgspec.Struct):
    """A call between its start and its end. `shown`: its item; None for one that shows itself when it begins."""

    call: Call
    shown: _Shown | None = None
    begun: bool = False
    answered: bool = False
    mcp: McpToolCallEnd | None = None


class JsonLines:
    """A front end that writes each event as one line. Answers no questions.

    Commands and patches are items of their own, from their begin to their end: a command may outlive its call. What the
    turn came to is written by `finish` or `fail`, after the last of them.
    """

    can_answer = False

    def __init__(self, stream: BinaryIO, thread: Fields = {}) -> None:  # noqa: B006 - only read
        """`thread` says in each line whose it is: nothing for the session itself, the ids of a sub-agent's."""
        self._stream = stream
        self._thread = thread
        self._children: dict[str, JsonLines] = {}
        self._next = 0
        self._cwd = ""
        self._running: dict[str, _Running] = {}
        self._commands: dict[str, _Shown] = {}
        self._patches: dict[str, _Shown] = {}
        self._plan: Fields | None = None
        self._usage: TokenUsage | None = None
        self._cost: Fields = {}
        self._error = ""
        self._is_over = False

    def on_event(self, event: Event | ToolEvent) -> None:
        """Write what a program needs from the event."""
        match event:
            case SandboxStatus():
                self._write("sandbox.status", **msgspec.structs.asdict(event))
            case ThreadStarted(thread_id=thread_id, model=model):
                self._cwd = event.cwd
                self._write("thread.started", thread_id=thread_id, model=model)
            case TurnStarted():
                self._usage, self._error, self._is_over = None, "", False
                self._write("turn.started")
            case ItemStarted(item=item):
                self._start(item)
            case ItemCompleted(item=item, output=None):
                self._say(item)
            case ItemCompleted(item=item, output=ToolOutput() as output):
                self._finish(item, output)
            case PlanUpdate():
                self._show_plan(event)
            case WarningEvent(message=message) if self._usage or self._error:  # of the session's end, for the user
                print(f"ferrule: {message}", file=sys.stderr)
            case WarningEvent(message=message):
                self._item({"type": "error", "message": message})
            case TurnCompleted(usage=usage, cost=cost):
                self._usage, self._cost = usage, _cost(cost)
            case ErrorEvent(message=message):
                self._error = message
            case TurnAborted():
                self._error = INTERRUPTED
            case ChildEvent():
                self._show_child(event)
            case _:
                self._follow(event)

    def finish(self) -> None:
        """Report how the turn ended, once the session is closed."""
        if self._usage is None:
            self.fail(self._error or INTERRUPTED)
        elif not self._is_over:
            self._end_open()
            self._write("turn.completed", usage=_usage(self._usage), **self._cost)
            self._is_over = True

    def fail(self, message: str) -> None:
        """Report that the turn, or what comes before it, ended with an error. The first one counts."""
        if not self._is_over:
            self._end_open()
            message = encodable(message)
            self._write("error", message=message)
            self._write("turn.failed", error={"message": message})
            self._is_over = True

    def _show_child(self, event: ChildEvent) -> None:
        """Write what a sub-agent does, in lines that name it; its turn is over when it says so."""
        thread: Fields = {"thread_id": event.thread_id, "parent_thread_id": event.parent_thread_id}
        child = self._children.get(event.thread_id) or JsonLines(self._stream, thread)
        self._children[event.thread_id] = child
        child.on_event(event.event)
        if isinstance(event.event, TurnCompleted | TurnFailed | TurnAborted):
            child.finish()

    def _follow(self, event: Event | ToolEvent) -> None:
        """Show what a call does; say on stderr what is waited for."""
        match event:
            case UndoCompleted():
                self._write("undo.completed", **msgspec.structs.asdict(event))
            case NetworkRefused():
                self._write("network.refused", **msgspec.structs.asdict(event))
            case ExecCommandBegin(call_id=call_id):
                self._note_begin(call_id)
                self._commands[call_id] = self._open(_command(event))
            case ExecCommandEnd(call_id=call_id) if call_id in self._commands:
                self._close(self._commands.pop(call_id), _ended(event.exit_code, event.output))
            case PatchApplyBegin(call_id=call_id):
                self._note_begin(call_id)
                self._patches[call_id] = self._open(_patch(event))
            case PatchApplyEnd(call_id=call_id) if call_id in self._patches:
                self._close(self._patches.pop(call_id), _patched(event))
            case McpToolCallEnd(call_id=call_id) if call_id in self._running:
                self._running[call_id].mcp = event
            case ObservationEvent(call_id=call_id) if call_id in self._running:
                self._running[call_id].answered = True
            case TokenCount(usage=usage, cost=cost, budget=budget) if budget or cost is not None:
                self._write("token_count", usage=_usage(usage), **_cost(cost), **({"budget": budget} if budget else {}))
            case McpServerStatus(status="waiting", message=message):
                print(f"ferrule: {message}", file=sys.stderr)

    def _note_begin(self, call_id: str) -> None:
        if call_id in self._running:
            self._running[call_id].begun = True

    def _start(self, item: ResponseItem) -> None:
        call, call_id = read_call(item.view), called_id(item.view)
        if call is None or call_id is None:
            return
        self._running[call_id] = running = _Running(call)
        silent = isinstance(call, CommandCall | PatchCall | PlanCall) or (isinstance(call, InputCall) and not call.text)
        if not silent:
            running.shown = self._open(_asked(call, self._cwd))

    def _finish(self, item: ResponseItem, output: ToolOutput) -> None:
        running = self._running.pop(called_id(item.view) or "", None)
        if running is None:
            answer = output.body if isinstance(output.body, str) else msgspec.to_builtins(output.body)
            self._item({**_hosted(item), "output": answer})
            return
        if running.shown is not None or _is_untold(running, output):
            shown = running.shown or self._open(_asked(running.call, self._cwd))
            self._close(shown, _came_of(running, output))
        if output.ends_turn:
            self._item({"type": "agent_message", "text": output.text})

    def _say(self, item: ResponseItem) -> None:
        """Write an item that is complete on arrival."""
        match item.view:
            case Message(content=content):
                text = shown(text_of(content))
                if text or not text_of(content):
                    pages = cited_pages(content)
                    self._item({"type": "agent_message", "text": text} | ({"citations": pages} if pages else {}))
            case Reasoning() as reasoning:
                text = reasoning_text(reasoning)
                if text:
                    self._item({"type": "reasoning", "text": text})
            case WebSearchCall(action=action):
                known = msgspec.json.decode(action) if bytes(action) else {}
                self._item({"type": "web_search", "query": known.get("query", ""), "action": known})
            case _:
                self._item(_hosted(item))

    def _show_plan(self, event: PlanUpdate) -> None:
        kind = "item.started" if self._plan is None else "item.updated"
        steps = [{"text": step.step, "completed": step.status == "completed"} for step in event.plan]
        item_id = self._new_id() if self._plan is None else self._plan["id"]
        self._plan = {"id": item_id, "type": "todo_list", "items": steps}
        self._write(kind, item=self._plan)

    def _end_open(self) -> None:
        """Complete what nothing else will complete: calls that were interrupted, a process that could not be ended. The
        commands of a sub-agent go on after its turn, until the end of all."""
        if not self._thread:
            for thread in (*self._children.values(), self):
                thread._end_commands()
        interrupted = ToolOutput(INTERRUPTED, False)
        for running in self._running.values():
            if running.shown is not None:
                self._close(running.shown, _came_of(running, interrupted))
        self._running = {}
        if self._plan is not None:
            self._write("item.completed", item=self._plan)
            self._plan = None

    def _end_commands(self) -> None:
        for command in self._commands.values():
            self._close(command, _ended(KILLED, ""))
        self._commands = {}

    def _item(self, fields: Fields) -> None:
        self._write("item.completed", item={"id": self._new_id(), **fields})

    def _open(self, fields: Fields) -> _Shown:
        shown = _Shown(self._new_id(), fields)
        self._write("item.started", item={"id": shown.id, **fields, "status": "in_progress"})
        return shown

    def _close(self, shown: _Shown, fields: Fields) -> None:
        self._write("item.completed", item={"id": shown.id, **shown.fields, **fields})

    def _new_id(self) -> str:
        self._next += 1
        return f"item_{self._next - 1}"

    def _write(self, kind: str, **fields: object) -> None:
        self._stream.write(msgspec.json.encode({"type": kind, **self._thread, **fields}) + b"\n")
        self._stream.flush()


def _asked(call: Call, cwd: str) -> Fields:
    """Return the fields that are known when the call starts."""
    match call:
        case CommandCall(text=text):
            return {"type": "command_execution", "command": text, "aggregated_output": "", "exit_code": None}
        case PatchCall(files=files):
            return {"type": "file_change", "changes": [_place(cwd, file.kind, file.path) for file in files]}
        case McpCall(server=server, tool=tool, arguments=arguments):
            return {
                "type": "mcp_tool_call", "server": server, "tool": tool, "arguments": arguments,
                "result": None, "error": None,
            }  # fmt: skip
        case ToolCall(name=name, arguments=arguments) | InputCall(name=name, arguments=arguments):
            return {"type": "tool_call", "tool": name, "arguments": arguments, "output": None}
        case InvalidCall(name=name, text=text):
            return {"type": "tool_call", "tool": name, "arguments": text, "output": None}
        case PlanCall(arguments=arguments):
            return {"type": "tool_call", "tool": "update_plan", "arguments": arguments, "output": None}


def _is_untold(running: _Running, output: ToolOutput) -> bool:
    """Return whether a call that showed nothing so far has something to show at its end."""
    match running.call:
        case CommandCall() | PatchCall():
            return not running.begun  # it was refused
        case InputCall():
            return not running.answered
        case _:
            return output.success is False  # an accepted plan is a `todo_list` already


def _came_of(running: _Running, output: ToolOutput) -> Fields:
    """Return the fields that are known when the call ends. A command that never began was refused: `declined`."""
    succeeded = output.success is not False
    status = "completed" if succeeded else "failed"
    match running.call:
        case CommandCall():
            return {"aggregated_output": output.text, "status": status if succeeded else "declined"}
        case PatchCall():
            return {"status": status} if succeeded else {"error": {"message": output.text}, "status": status}
        case InputCall() if running.answered:
            return {"status": "completed"}  # its output is the command's
        case McpCall():
            if not succeeded:
                return {"error": {"message": output.text}, "status": status}
            parts = output.body if isinstance(output.body, tuple) else running.mcp and running.mcp.output
            return {"result": {"content": list(map(mcp_part, parts or (InputText(output.text),)))}, "status": status}
        case _:
            body = output.shown
            return {"output": body if isinstance(body, str) else msgspec.to_builtins(body), "status": status}


def _command(event: ExecCommandBegin) -> Fields:
    line = encodable(shlex.join(event.command))
    return {"type": "command_execution", "command": line, "aggregated_output": "", "exit_code": None}


def _ended(exit_code: int, output: str) -> Fields:
    return {
        "aggregated_output": output, "exit_code": exit_code, "status": "failed" if exit_code else "completed",
    }  # fmt: skip


def _patch(event: PatchApplyBegin) -> Fields:
    changes = [_place(event.cwd, change.kind, change.path, change.move_path) for change in event.changes]
    return {"type": "file_change", "changes": changes}


def _patched(event: PatchApplyEnd) -> Fields:
    return {"status": "completed"} if event.success else {"error": {"message": event.stderr}, "status": "failed"}


def _place(cwd: str, kind: str, path: str, move_path: str | None = None) -> Fields:
    moved = {} if move_path is None else {"move_path": _absolute(cwd, move_path)}
    return {"path": _absolute(cwd, path), "kind": kind, **moved}


def _absolute(cwd: str, path: str) -> str:
    return encodable(os.path.normpath(os.path.join(cwd, path)))


def _cost(cost: float | None) -> Fields:
    return {} if cost is None else {"cost": cost}


def _usage(usage: TokenUsage) -> Fields:
    return msgspec.structs.asdict(usage)


def _hosted(item: ResponseItem) -> Fields:
    """Return the fields of a provider's own item."""
    return {"type": "hosted_call", "kind": kind_of(item.view), "item": msgspec.Raw(item.raw)}
