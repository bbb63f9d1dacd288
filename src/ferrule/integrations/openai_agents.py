"""A toolset in the loop of the OpenAI Agents SDK: `Agent(tools=tools(toolset))`."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from ferrule.integrations.offered import Calls, Offer, OfferedTool, parts_of
from ferrule.protocol.content import InputFile, InputImage, text_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.items import ApplyPatchCallOutput, ShellCallOutput, ShellTimeout
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.specs import ApplyPatchTool, ShellTool, Wire, runs_here
from ferrule.session.toolset import Toolset

try:
    import agents
    from agents.editor import ApplyPatchOperation, ApplyPatchResult
    from agents.tool_context import ToolContext
except ImportError as error:
    raise UsageError("the adapter needs the extra `openai-agents`: pip install 'ferrule[openai-agents]'") from error

SHELL = "native.shell"
EDITOR = "native.apply_patch"
DETAILS = ("low", "high", "auto")
"""What the SDK takes as the detail of an image."""


def tools(toolset: Toolset, *, wire: Wire = "responses") -> list[agents.Tool]:
    """Return the tools for an `Agent`: functions, and for a Responses model a `ShellTool` and an `ApplyPatchTool` where
    the toolset has them (`wire="chat"`: functions for these, too).

    What the toolset's approval policy asks interrupts the run (`result.interruptions`); `on_approval` is asked only for
    what comes up while a call runs. A tool that the toolset does not offer at a turn is not enabled then.
    """
    calls, offer = Calls(toolset), Offer(toolset)
    native = _native(toolset, calls) if wire == "responses" else {}
    functions = [_function(tool, calls, offer) for tool in offer.all() if tool.name not in native]
    return [*native.values(), *functions]


def _native(toolset: Toolset, calls: Calls) -> dict[str, agents.Tool]:
    """Return the native tools, by the names of the functions that stand for them over the other wire."""
    specs = [entry.spec for entry in toolset.current()[0] if runs_here(entry.spec)]
    made: dict[str, agents.Tool] = {}
    if any(isinstance(spec, ShellTool) for spec in specs):
        shell = _Shell(calls)
        made["shell_command"] = agents.ShellTool(executor=shell.run, needs_approval=shell.asks)
    if any(isinstance(spec, ApplyPatchTool) for spec in specs):
        editor = _Editor(calls)
        made["apply_patch"] = agents.ApplyPatchTool(editor=editor, needs_approval=editor.asks)
    return made


def _function(tool: OfferedTool, calls: Calls, offer: Offer) -> agents.FunctionTool:
    async def invoke(ctx: ToolContext[Any], arguments: str) -> Any:
        approved = ctx.is_tool_approved(tool.name, ctx.tool_call_id) or None
        return _shown(await calls.run(tool.called, arguments or "{}", ctx.tool_call_id, approved))

    async def asks(ctx: agents.RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        decided = ctx.is_tool_approved(tool.name, call_id) is not None
        return await calls.question(tool.called, json.dumps(arguments), call_id, decided=decided) is not None

    async def is_offered(ctx: agents.RunContextWrapper[Any], agent: agents.AgentBase) -> bool:
        return tool.name in await offer.names()

    return agents.FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.parameters,
        on_invoke_tool=invoke,
        strict_json_schema=tool.strict,
        is_enabled=is_offered,
        needs_approval=asks if tool.may_ask else False,
    )


def _shown(output: ToolOutput) -> Any:
    """Return an output as the SDK takes it: a text, or a list of parts where there is more than text."""
    parts = parts_of(output)
    if not any(isinstance(part, InputImage | InputFile) for part in parts):
        return text_of(parts)
    return [_part(part) for part in parts]


def _part(part: Any) -> agents.ToolOutputText | agents.ToolOutputImage | agents.ToolOutputFileContent:
    match part:
        case InputImage(image_url=url, file_id=file_id, detail=detail):
            known: Any = detail if detail in DETAILS else None
            return agents.ToolOutputImage(image_url=url, file_id=file_id, detail=known)
        case InputFile(file_data=data, file_url=url, file_id=file_id, filename=name):
            return agents.ToolOutputFileContent(file_data=data, file_url=url, file_id=file_id, filename=name)
    return agents.ToolOutputText(text=text_of((part,)))


class _Shell:
    """The executor of a `ShellTool`. Each script is a call of its own, with an approval of its own."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def asks(self, ctx: agents.RunContextWrapper[Any], action: agents.ShellActionRequest, call_id: str) -> bool:
        """Return whether one of the scripts needs approval; all are looked at, so that what was shown is known."""
        decided = ctx.is_tool_approved("shell", call_id) is not None
        questions = [await self._calls.question(SHELL, one, call_id, decided=decided) for one in self._each(action)]
        return any(question is not None for question in questions)

    async def run(self, request: agents.ShellCommandRequest) -> agents.ShellResult:
        """Run one script after the other; after one that was refused the rest are not run."""
        call_id, action = request.data.call_id, request.data.action
        approved = request.ctx_wrapper.is_tool_approved("shell", call_id) or None
        outputs: list[agents.ShellCommandOutput] = []
        for script, arguments in zip(action.commands, self._each(action), strict=True):
            ran = await self._calls.run(SHELL, arguments, call_id, approved)
            outputs.append(_command_output(script, ran))
            if not isinstance(ran.body, ShellCallOutput):
                break
        return agents.ShellResult(output=outputs)

    def _each(self, action: agents.ShellActionRequest) -> list[str]:
        """Return the arguments of each script's call; together they keep to the toolset's budget."""
        share = self._calls.toolset.conversation.output_budget.bytes // max(len(action.commands), 1)
        length = share if action.max_output_length is None else min(share, max(action.max_output_length, 0))
        shared = {"timeout_ms": action.timeout_ms, "max_output_length": length}
        return [json.dumps({"commands": [script], **shared}) for script in action.commands]


def _command_output(script: str, ran: ToolOutput) -> agents.ShellCommandOutput:
    if not isinstance(ran.body, ShellCallOutput):
        outcome = agents.ShellCallOutcome(type="exit", exit_code=1)
        return agents.ShellCommandOutput(stderr=ran.text, outcome=outcome, command=script)
    [one] = ran.body.output
    if isinstance(one.outcome, ShellTimeout):
        outcome = agents.ShellCallOutcome(type="timeout")
    else:
        outcome = agents.ShellCallOutcome(type="exit", exit_code=one.outcome.exit_code)
    return agents.ShellCommandOutput(stdout=one.stdout, stderr=one.stderr, outcome=outcome, command=script)


class _Editor:
    """The editor of an `ApplyPatchTool`.

    The SDK tells an editor no call id. What was asked is known by the operation alone; one for which nothing was asked
    here was approved elsewhere (for the whole tool, or before a restart), or the SDK would not have it done.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def asks(self, ctx: agents.RunContextWrapper[Any], operation: ApplyPatchOperation, call_id: str) -> bool:
        """Return whether the operation needs approval."""
        decided = ctx.is_tool_approved("apply_patch", call_id) is not None
        return await self._calls.question(EDITOR, _arguments(operation), "", decided=decided) is not None

    async def _apply(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        if operation.move_to is not None:
            text = f"{operation.path} was not moved: create {operation.move_to}, and delete the old file"
            return ApplyPatchResult(status="failed", output=text)
        ran = await self._calls.run(EDITOR, _arguments(operation), "", True)
        said = ran.body.output if isinstance(ran.body, ApplyPatchCallOutput) else ran.text
        return ApplyPatchResult(status="failed" if ran.success is False else "completed", output=said)

    create_file: Callable[..., Awaitable[ApplyPatchResult]] = _apply
    update_file: Callable[..., Awaitable[ApplyPatchResult]] = _apply
    delete_file: Callable[..., Awaitable[ApplyPatchResult]] = _apply


def _arguments(operation: ApplyPatchOperation) -> str:
    return json.dumps({"type": operation.type, "path": operation.path, "diff": operation.diff or ""})
