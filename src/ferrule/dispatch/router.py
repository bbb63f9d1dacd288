"""Turn a model's item into an invocation. The only place that knows which item carries what."""

import difflib

import msgspec

from ferrule.dispatch.remote_approval import RemoteApproval
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import (
    ApplyPatchCall,
    ComputerCall,
    CustomToolCall,
    FunctionCall,
    ItemView,
    LocalShellAction,
    LocalShellCall,
    McpApprovalRequest,
    ShellCall,
    ToolSearchCall,
    UnknownItem,
    kind_of,
)
from ferrule.protocol.payload import (
    CustomPayload,
    FunctionPayload,
    LocalShellPayload,
    McpPayload,
    NativePayload,
    ShellToolCallParams,
    ToolKind,
    ToolPayload,
)
from ferrule.tools.context import ToolInvocation
from ferrule.tools.handler import ToolHandler
from ferrule.tools.registry import NATIVE, FoundTool, ToolRegistry

_FOR_THE_USER = FoundTool(RemoteApproval(), NATIVE, "mcp_approval_request", True)
"""Always asked rather than run, whatever tools there are."""
_MCP = ToolKind.MCP
"""Looked up once: until Python 3.12 a member of an enum costs as much as the rest of `route`."""


class RoutedCall(msgspec.Struct, frozen=True, gc=False):
    """A parsed call. `handler` None: no such tool; `error` is then what the model reads."""

    invocation: ToolInvocation
    handler: ToolHandler | None
    parallel: bool = False
    error: str | None = None
    perhaps_elsewhere: bool = False
    """It may have run on the model's side: its response can still bring the answer."""


def route(view: ItemView, registry: ToolRegistry, session_id: str = "", turn_id: str = "") -> RoutedCall | None:
    """Return the invocation in an item, or None for an item that needs no answer of ours."""
    payload: ToolPayload
    if isinstance(view, FunctionCall):
        call_id, namespace, name, payload = view.call_id, view.namespace, view.name, FunctionPayload(view.arguments)
    elif (asked := _asked(view)) is not None:
        call_id, namespace, name, payload = asked
    else:
        return None
    native = namespace == NATIVE
    found = _FOR_THE_USER if native and isinstance(view, McpApprovalRequest) else registry.find(name, namespace)
    if found is None:
        invocation = ToolInvocation(call_id, name, payload, namespace, session_id, turn_id)
        return RoutedCall(invocation, None, error=_unsupported(view, name, namespace, registry), perhaps_elsewhere=True)
    if found.handler.kind is _MCP:
        payload = mcp_payload(found, payload)
    invocation = ToolInvocation(call_id, found.name, payload, found.namespace, session_id, turn_id)
    unsaid = native and isinstance(view, ShellCall) and view.environment is None
    return RoutedCall(invocation, found.handler, found.parallel, None, unsaid)


def mcp_payload(found: FoundTool, payload: ToolPayload) -> ToolPayload:
    """Return a JSON call with the MCP server and the tool that it means; any other call as it is."""
    if not isinstance(payload, FunctionPayload):
        return payload
    made = found.handler.function_payload(payload.arguments)
    if not isinstance(made, FunctionPayload):
        return made
    flat = found.name if found.namespace is None else f"{found.namespace}__{found.name}"
    server, known, tool = flat.removeprefix("mcp__").partition("__")
    return McpPayload(server if known else "", tool if known else flat, payload.arguments)


def _asked(view: ItemView) -> tuple[str, str | None, str, ToolPayload] | None:
    """Return the id of a call of any other kind, the tool's namespace and name, and the payload."""
    match view:
        case CustomToolCall():
            return view.call_id, view.namespace, view.name, CustomPayload(view.input)
        case LocalShellCall():
            return view.call_id or view.id or "", NATIVE, "local_shell", LocalShellPayload(_shell_params(view.action))
        case ShellCall(environment=where) if where is None or where.type == "local":
            return view.call_id, NATIVE, "shell", NativePayload("shell_call", _json(view.action))
        case ApplyPatchCall():
            return view.call_id, NATIVE, "apply_patch", NativePayload("apply_patch_call", _json(view.operation))
        case ToolSearchCall(execution="client", call_id=str(call_id)):
            arguments = bytes(view.arguments).decode()
            return call_id, NATIVE, "tool_search", NativePayload("tool_search_call", arguments)
        case ComputerCall():
            return view.call_id, NATIVE, "computer", NativePayload("computer_call", _json(view))
        case McpApprovalRequest(id=str(request_id)):
            return request_id, NATIVE, "mcp_approval_request", NativePayload("mcp_approval_request", _json(view))
        case UnknownItem(original_type=kind, awaits=str(call_id)):
            return call_id, NATIVE, kind.removesuffix("_call"), NativePayload(kind, "{}")
    return None


def _shell_params(action: LocalShellAction) -> ShellToolCallParams:
    command = ("bash", "-lc", action.command) if isinstance(action.command, str) else action.command
    return ShellToolCallParams(
        command=command, workdir=action.working_directory, timeout_ms=action.timeout_ms, env=action.env
    )


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()


def _unsupported(view: ItemView, name: str, namespace: str | None, registry: ToolRegistry) -> str:
    if namespace == NATIVE:
        return f"unsupported call: nobody answers a {kind_of(view)} here; use the tools that you were given"
    kind = "custom tool call" if isinstance(view, CustomToolCall) else "call"
    known = [tool for space, tool in registry if space == namespace]
    near = difflib.get_close_matches(name, known, n=3)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    return f"unsupported {kind}: {f'{namespace}.' if namespace else ''}{name}{hint}"


def unanswerable(routed: RoutedCall) -> RespondToModel:
    """Build the error of a call that no handler can run."""
    return RespondToModel(routed.error or f"unsupported call: {routed.invocation.tool_name}")
