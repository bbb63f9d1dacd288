"""The items of a thread, made from the model's items and what calls came to. Pure."""

import shlex
import time
from typing import Literal

import msgspec

from ferrule.doors.app_server import forms
from ferrule.doors.app_server.shapes.items import (
    AgentMessage,
    CommandExecution,
    DynamicToolCall,
    FileChange,
    McpError,
    McpResult,
    McpToolCall,
    Reasoning,
    ThreadItem,
    UnknownAction,
    WebSearch,
)
from ferrule.protocol.content import ContentPart, InputText, text_of
from ferrule.protocol.events import FileChange as Change
from ferrule.protocol.items import FunctionCall, ResponseItem, WebSearchCall, kind_of
from ferrule.protocol.items import Message as SaidMessage
from ferrule.protocol.items import Reasoning as SaidReasoning
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

SILENT = frozenset({"view_image", "request_user_input"})
"""Tools that show themselves in another way: by an item of their own, by a question."""


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def item_of_words(item: ResponseItem, item_id: str) -> ThreadItem | None:
    """Return what the model said, thought, or had its provider do; None for what nobody can read."""
    match item.view:
        case SaidMessage(role="assistant", content=content, phase=phase):
            return AgentMessage(id=item_id, text=shown(text_of(content)), phase=phase)
        case SaidMessage():
            return None
        case SaidReasoning(summary=summary, content=content):
            summaries = tuple(text_of((part,)) for part in summary)
            words = tuple(text_of((part,)) for part in content or ())
            return Reasoning(id=item_id, summary=summaries, content=words) if summaries or words else None
        case WebSearchCall(action=action):
            known = msgspec.json.decode(action) if bytes(action) else {}
            query = known.get("query") if isinstance(known, dict) else None
            return WebSearch(id=item_id, query=query if isinstance(query, str) else "", action=known)
        case view:
            return DynamicToolCall(id=item_id, tool=kind_of(view), status="completed", success=True)


def begun_item(call_id: str, call: Call | None, item: ResponseItem) -> ThreadItem | None:
    """Return the item of a call that starts; None for one that shows itself when it begins, or not at all."""
    match call:
        case McpCall(server=server, tool=tool, arguments=arguments):
            return McpToolCall(id=call_id, server=server, tool=tool, arguments=arguments, status="inProgress")
        case ToolCall(name=name) if name not in SILENT:
            return tool_item(call_id, call, item)
    return None


def item_of_call(call_id: str, item: ResponseItem, output: ToolOutput, cwd: str) -> ThreadItem | None:
    """Return the item of a stored call and its answer: without what only its events told."""
    call = read_call(item.view)
    if isinstance(call, PatchCall):
        changes = tuple(forms.change_shape(Change(file.kind, file.path), cwd) for file in call.files)
        made: ThreadItem | None = FileChange(id=call_id, changes=changes, status="inProgress")
    else:
        made = begun_item(call_id, call, item) or untold_item(call_id, call, output, cwd)
    return None if made is None else ended_item(made, output, refused=False)


def as_words(script: str) -> str:
    """Return a script as the words that run it: clients read `command` as words, and show what stands after `-lc`."""
    return shlex.join(("/bin/bash", "-lc", script))


def command_item(
    call_id: str, text: str, cwd: str, number: int | None = None, script: str | None = None
) -> CommandExecution:
    """Return the item of a command that starts; `script` is what the model wrote, without the shell around it."""
    return CommandExecution(
        id=call_id,
        command=text,
        cwd=cwd,
        status="inProgress",
        command_actions=(UnknownAction(command=script or text),),
        process_id=None if number is None else str(number),
        source="agent" if number is None else "unifiedExecStartup",
    )


def tool_item(call_id: str, call: ToolCall, item: ResponseItem) -> DynamicToolCall:
    view = item.view
    namespace = view.namespace if isinstance(view, FunctionCall) else None
    name = view.name if isinstance(view, FunctionCall) and namespace else call.name
    return DynamicToolCall(id=call_id, tool=name, namespace=namespace, arguments=call.arguments, status="inProgress")


def untold_item(call_id: str, call: Call | None, output: ToolOutput, cwd: str) -> ThreadItem | None:
    """Return the item of a call of which nothing was told, if its end is worth telling."""
    match call:
        case CommandCall(text=text):
            return command_item(call_id, as_words(text), cwd, script=text)
        case PatchCall() if output.success is False:
            return FileChange(id=call_id, changes=(), status="inProgress")
        case InvalidCall(name=name, text=text):
            return DynamicToolCall(id=call_id, tool=name, arguments=text, status="inProgress")
        case PlanCall(arguments=arguments) if output.success is False:
            return DynamicToolCall(id=call_id, tool="update_plan", arguments=arguments, status="inProgress")
        case ToolCall(name=name, arguments=arguments) | InputCall(name=name, arguments=arguments) if (
            output.success is False
        ):
            return DynamicToolCall(id=call_id, tool=name, arguments=arguments, status="inProgress")
    return None


def ended_item(
    item: ThreadItem,
    output: ToolOutput,
    took: int | None = None,
    *,
    refused: bool = True,
    parts: tuple[ContentPart, ...] = (),
) -> ThreadItem:
    """Return the item of a call with what it came to. `refused`: it did not succeed because it never began. `parts` are
    those of an MCP server's answer."""
    succeeded = output.success is not False
    status: Literal["completed", "failed"] = "completed" if succeeded else "failed"
    match item:
        case CommandExecution():
            return msgspec.structs.replace(
                item, status="completed" if succeeded else "declined", aggregated_output=output.text
            )
        case FileChange():
            failed = "declined" if refused and item.changes else "failed"
            return msgspec.structs.replace(item, status="completed" if succeeded else failed)
        case McpToolCall():
            if not succeeded:
                error = McpError(message=output.text)
                return msgspec.structs.replace(item, status=status, error=error, duration_ms=took)
            content = output.body if isinstance(output.body, tuple) else parts or (InputText(output.text),)
            result = McpResult(content=tuple(map(mcp_part, content)))
            return msgspec.structs.replace(item, status=status, result=result, duration_ms=took)
        case DynamicToolCall():
            return msgspec.structs.replace(
                item, status=status, content_items=forms.content_items(output), success=succeeded, duration_ms=took
            )
        case _:
            return item


def failed_item(item: ThreadItem) -> ThreadItem:
    """Return an item that was interrupted."""
    if isinstance(item, CommandExecution | FileChange | McpToolCall | DynamicToolCall):
        return msgspec.structs.replace(item, status="failed")
    return item
