"""Pair calls with outputs: which item waits for an answer, which one answers it; put a replay in order."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from ferrule.protocol.items import (
    ApplyPatchCall,
    ApplyPatchCallOutput,
    ComputerCall,
    ComputerCallOutput,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    ItemView,
    LocalShellCall,
    LocalShellCallOutput,
    McpApprovalRequest,
    McpApprovalResponse,
    Reasoning,
    ResponseItem,
    ShellCall,
    ShellCallOutput,
    ToolSearchCall,
    ToolSearchOutput,
    UnknownItem,
    kind_of,
)
from ferrule.protocol.payload import (
    ABORTED,
    CustomPayload,
    FunctionPayload,
    LocalShellPayload,
    NativePayload,
    ShellToolCallParams,
    ToolOutput,
    ToolPayload,
)

Output = (
    FunctionCallOutput
    | CustomToolCallOutput
    | LocalShellCallOutput
    | ShellCallOutput
    | ApplyPatchCallOutput
    | ComputerCallOutput
    | ToolSearchOutput
)


def in_place(items: Iterable[ResponseItem]) -> list[ResponseItem]:
    """Sort the items of each response by where they began: one that was complete earlier may have begun later."""
    runs = groupby(items, lambda item: None if item.origin is None else item.origin.response or None)
    return [item for _, run in runs for item in sorted(run, key=place_of)]


def place_of(item: ResponseItem) -> int:
    """Return where an item began in its response."""
    return 0 if item.origin is None else item.origin.place


def called_id(view: ItemView) -> str | None:
    """Return the id under which an item waits for our answer, or None if it waits for none."""
    match view:
        case FunctionCall() | CustomToolCall() | ApplyPatchCall() | ComputerCall():
            return view.call_id
        case ShellCall(environment=where):
            return view.call_id if where is None or where.type == "local" else None
        case LocalShellCall():
            return view.call_id or view.id or ""
        case ToolSearchCall():  # one that the provider has run has none
            return view.call_id
        case McpApprovalRequest():
            return view.id
        case UnknownItem():
            return view.awaits
    return None


def answered_id(view: ItemView) -> str | None:
    """Return the id of the call that an output answers, or None if the item is no output."""
    match view:
        case LocalShellCallOutput():
            return view.call_id or view.id
        case McpApprovalResponse():
            return view.approval_request_id
        case UnknownItem():
            return view.answers
    return view.call_id if isinstance(view, Output) else None


def settled(responses: Sequence[Sequence[ResponseItem]]) -> list[ResponseItem]:
    """Return the items of a replay as they were sent: response by response, each ended by its outputs in call order.

    A call without an output gets `aborted`. An output without a call and a second output of a call are left out.
    Outputs of the provider stay where they are.
    """
    history: list[ResponseItem] = []
    for response in responses:
        outputs: dict[str, ResponseItem] = {}
        calls: list[ItemView] = []
        there: set[str] = set()
        said: list[ResponseItem] = []
        for item in response:  # an output may stand before calls of the response that answers went on with
            answered = answered_id(item.view)
            if answered is not None and item.origin is None:
                outputs.setdefault(answered, item)
            else:
                said.append(item)
        for item in in_place(said):
            answered = answered_id(item.view)
            if answered is not None:
                there.add(answered)
            if called_id(item.view) is not None:
                calls.append(item.view)
            history.append(item)
        for call in calls:
            call_id = called_id(call) or ""
            if call_id not in there:
                history.append(outputs.get(call_id) or aborted_output(call))
    return history


def aborted_output(call: ItemView, text: str = ABORTED) -> ResponseItem:
    """Return the output of a call that was cut off."""
    call_id = call.call_id if isinstance(call, ShellCall) else called_id(call)
    return ToolOutput(text, False).into_response(call_id or "", _payload(call))


def _payload(call: ItemView) -> ToolPayload:
    if isinstance(call, CustomToolCall):
        return CustomPayload("")
    if isinstance(call, LocalShellCall):
        return LocalShellPayload(ShellToolCallParams(command=()))
    if isinstance(call, FunctionCall):
        return FunctionPayload("")
    return NativePayload(kind_of(call), "")


def answered(items: Sequence[ResponseItem]) -> tuple[ResponseItem, ...]:
    """Return the items up to the first call that waits for its output; with it goes the reasoning before it."""
    outputs = {answered_id(item.view) for item in items}
    end = next((at for at, item in enumerate(items) if called_id(item.view) not in (None, *outputs)), len(items))
    while end < len(items) and end and isinstance(items[end - 1].view, Reasoning):
        end -= 1
    return tuple(items[:end])
