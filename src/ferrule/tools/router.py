"""From an item of the model to an invocation. The one place that knows which item carries what."""

import difflib

import msgspec

from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import (
    ApplyPatchCall,
    CustomToolCall,
    FunctionCall,
    ItemView,
    LocalShellAction,
    LocalShellCall,
    ShellCall,
    ToolSearchCall,
)
from ferrule.protocol.payload import (
    CustomPayload,
    FunctionPayload,
    LocalShellPayload,
    NativePayload,
    ShellToolCallParams,
    ToolKind,
    ToolPayload,
)
from ferrule.tools.context import ToolInvocation
from ferrule.tools.handler import ToolHandler
from ferrule.tools.registry import NATIVE, ToolRegistry


class RoutedCall(msgspec.Struct, frozen=True):
    """A call that was read. `handler` None: no such tool; `error` is then what the model reads."""

    invocation: ToolInvocation
    handler: ToolHandler | None
    parallel: bool = False
    error: str | None = None


def route(view: ItemView, registry: ToolRegistry, session_id: str = "", turn_id: str = "") -> RoutedCall | None:
    """The invocation that an item asks for, or None for an item that needs no answer of ours."""
    asked = _asked(view)
    if asked is None:
        return None
    call_id, namespace, name, payload = asked
    found = registry.find(name, namespace)
    if found is None:
        invocation = ToolInvocation(call_id, name, payload, namespace, session_id, turn_id)
        return RoutedCall(invocation, None, error=_unsupported(view, name, namespace, registry))
    if isinstance(payload, FunctionPayload) and found.handler.kind is ToolKind.MCP:
        payload = found.handler.function_payload(payload.arguments)
    invocation = ToolInvocation(call_id, found.name, payload, found.namespace, session_id, turn_id)
    return RoutedCall(invocation, found.handler, found.parallel)


def _asked(view: ItemView) -> tuple[str, str | None, str, ToolPayload] | None:
    """The call's id, the tool's namespace and name, and the payload."""
    if isinstance(view, FunctionCall):
        return view.call_id, view.namespace, view.name, FunctionPayload(view.arguments)
    match view:
        case CustomToolCall():
            return view.call_id, view.namespace, view.name, CustomPayload(view.input)
        case LocalShellCall():
            return view.call_id or view.id or "", NATIVE, "local_shell", LocalShellPayload(_shell_params(view.action))
        case ShellCall():
            return view.call_id, NATIVE, "shell", NativePayload("shell_call", _json(view.action))
        case ApplyPatchCall():
            return view.call_id, NATIVE, "apply_patch", NativePayload("apply_patch_call", _json(view.operation))
        case ToolSearchCall(execution="client", call_id=str(call_id)):
            arguments = bytes(view.arguments).decode()
            return call_id, NATIVE, "tool_search", NativePayload("tool_search_call", arguments)
    return None


def _shell_params(action: LocalShellAction) -> ShellToolCallParams:
    command = ("bash", "-lc", action.command) if isinstance(action.command, str) else action.command
    return ShellToolCallParams(
        command=command, workdir=action.working_directory, timeout_ms=action.timeout_ms, env=action.env
    )


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()


def _unsupported(view: ItemView, name: str, namespace: str | None, registry: ToolRegistry) -> str:
    kind = "custom tool call" if isinstance(view, CustomToolCall) else "call"
    known = [tool for space, tool in registry if space == namespace]
    near = difflib.get_close_matches(name, known, n=3)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    return f"unsupported {kind}: {namespace or ''}{name}{hint}"


def unanswerable(routed: RoutedCall) -> RespondToModel:
    """The error of a call that no handler can run."""
    return RespondToModel(routed.error or f"unsupported call: {routed.invocation.tool_name}")
