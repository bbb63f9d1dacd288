"""A toolset for agents of LangChain and LangGraph's `ToolNode`: `create_agent(model, tools(toolset))`."""

import json
from base64 import b64encode
from functools import cached_property, partial
from typing import Any

import msgspec

from ferrule.integrations.offered import Offer, OfferedTool, data_of, parts_of, run_call
from ferrule.protocol.content import ContentPart, InputFile, InputImage, InputText, text_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.permissions import ReviewDecision
from ferrule.session.toolset import Toolset
from ferrule.sync import wait_for_coroutine
from ferrule.tools.questions import Decision

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import BaseTool, ToolException
    from langgraph.prebuilt import ToolRuntime

    from ferrule.integrations.interrupts import Answer, Approvals, Approve, Decided, Edit, PendingCall, Reject, Respond
except ImportError as error:
    raise UsageError("the adapter needs the extra `langchain`: pip install 'ferrule[langchain]'") from error

RUNTIME = "ferrule_runtime"
"""The argument in which `ToolNode` hands in what it knows of the run."""
CHANGED = "The user changed this call before it ran. It ran with the arguments {}.\n"
REFUSED = "tool call rejected by user"


def tools(toolset: Toolset) -> list[BaseTool]:
    """Return the tools that there are now, as LangChain's.

    A call that asks for approval interrupts its graph, which needs a checkpointer, with a request as that of
    `HumanInTheLoopMiddleware`; `Command(resume={"decisions": [{"type": "approve"}]})` answers it, or `reject`, `edit`,
    `respond`. Outside of a graph `on_approval` of the toolset answers. A failed call is a `ToolMessage` with
    `status="error"`, and a `ToolException` where the caller gave no call id. Whoever opened `toolset` closes it, after
    the last run.
    """
    toolset.answer_first()
    found = Offer(toolset).all()
    approvals = Approvals(toolset, {tool.name: tool.called for tool in found})
    return [AdaptedTool(tool, toolset, approvals) for tool in found]


class AdaptedTool(BaseTool):
    """See `tools`."""

    _toolset: Toolset
    _approvals: Approvals
    _called: str

    def __init__(self, tool: OfferedTool, toolset: Toolset, approvals: Approvals) -> None:
        """Make LangChain's form of a tool."""
        metadata = {"annotations": msgspec.to_builtins(tool.annotations)}
        super().__init__(name=tool.name, description=tool.description, args_schema=tool.parameters, metadata=metadata)
        self._toolset, self._approvals, self._called = toolset, approvals, tool.called

    def func(self, ferrule_runtime: ToolRuntime) -> None:
        """Do nothing; from the annotations `ToolNode` knows what to hand in."""

    @cached_property
    def _injected_args_keys(self) -> frozenset[str]:
        return frozenset({RUNTIME})

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Pass the arguments as one, whatever their names, and the call id."""
        return (tool_input, tool_call_id), {}

    def _run(self, tool_input: str | dict[str, Any], call_id: str | None) -> Any:
        return wait_for_coroutine(self._arun(tool_input, call_id))

    async def _arun(self, tool_input: str | dict[str, Any], call_id: str | None) -> Any:
        if isinstance(tool_input, str):
            raise ToolException(f"{self.name} takes an object of arguments, not a text")
        runtime = tool_input.get(RUNTIME)
        run = runtime if isinstance(runtime, ToolRuntime) else None
        arguments = {name: value for name, value in tool_input.items() if run is None or name != RUNTIME}
        call = PendingCall(self.name, self._called, arguments, call_id or "")
        decided = await self._approvals.decided(call, run)
        output = await self._approvals.once(call, partial(self._answered, call, decided))
        return self._message(output, None if decided is None else decided.answer, call_id)

    async def _answered(self, call: PendingCall, decided: Decided | None) -> ToolOutput:
        arguments, decision = call.text, None
        shown: ExecApproval | None = None
        match decided:
            case (Respond(message=message), _):
                return ToolOutput(message, True)
            case (Reject(message=message), None):
                return ToolOutput(message or REFUSED, False)
            case (Reject(message=message), _):
                decision = Decision(ReviewDecision.DENIED, message)
            case (Approve(), shown):
                decision = Decision(ReviewDecision.APPROVED)
            case (Edit(edited_action=edited), _):
                arguments, decision = json.dumps(edited.args), Decision(ReviewDecision.APPROVED)
        return await run_call(self._toolset, call.called, arguments, call.call_id, decision, shown)

    def _message(self, output: ToolOutput, answer: Answer | None, call_id: str | None) -> Any:
        """Return the output as LangChain has it. Raises `ToolException`."""
        parts = parts_of(output)
        if isinstance(answer, Edit):
            changed = json.dumps(answer.edited_action.args, ensure_ascii=False)
            parts = (InputText(CHANGED.format(changed)), *parts)
        if all(isinstance(part, InputText) for part in parts):
            content: Any = text_of(parts)
        else:
            content = [_block(part) for part in parts]
        failed = output.success is False
        if call_id is not None:
            status = "error" if failed else "success"
            artifact = {"success": output.success}
            return ToolMessage(content, tool_call_id=call_id, name=self.name, status=status, artifact=artifact)
        if failed:
            raise ToolException(content)
        return content


def _block(part: ContentPart) -> dict[str, Any]:
    match part:
        case InputText(text=text):
            return {"type": "text", "text": text}
        case InputImage(image_url=str(url)):
            return {"type": "image", **_source(url)}
        case InputFile(file_data=data, file_url=url, filename=name) if at := data or url:
            return {"type": "file", **_source(at), **({"filename": name} if name else {})}
    return {"type": "text", "text": msgspec.json.encode(part).decode()}


def _source(url: str) -> dict[str, str]:
    known = data_of(url)
    return {"url": url} if known is None else {"base64": b64encode(known[1]).decode(), "mime_type": known[0]}
