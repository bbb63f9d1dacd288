"""A toolset in agents of Pydantic AI: `Agent(model, toolsets=[toolset(ours)])`."""

import asyncio
from collections import OrderedDict
from typing import Any

import msgspec

from ferrule.integrations.offered import MAX_SHOWN, OfferedTool, data_of, offered, parts_of, run_call
from ferrule.protocol.content import ContentPart, InputFile, InputImage, InputText, text_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.payload import ToolOutput
from ferrule.session.toolset import Toolset

try:
    from pydantic_ai import (
        AbstractToolset,
        BinaryContent,
        DocumentUrl,
        ImageUrl,
        RunContext,
        ToolDefinition,
        ToolReturn,
        ToolsetTool,
    )
    from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed, ToolFailedError
    from pydantic_ai.messages import ToolCallPart, ToolReturnPart
    from pydantic_core import SchemaValidator, core_schema
except ImportError as error:
    raise UsageError("the adapter needs the extra `pydantic-ai`: pip install 'ferrule[pydantic-ai]'") from error

ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
"""Ferrule checks the arguments itself, and says what is wrong with them."""


def toolset(tools: Toolset, *, id: str | None = None) -> "AdaptedToolset":  # noqa: A002 - Pydantic AI's word
    """Return the toolset as one of Pydantic AI, with whatever tools there are at each request.

    A call that asks for approval is deferred: the agent needs `DeferredToolRequests` among its output types. A failed
    call is a return with `outcome="failed"`, which costs none of the tool's retries. `id` names the toolset where
    several of one agent need names. Whoever opened `tools` closes it, after the last run.
    """
    return AdaptedToolset(tools, id)


class AdaptedToolset(AbstractToolset[Any]):
    """See `toolset`."""

    def __init__(self, tools: Toolset, name: str | None) -> None:
        tools.answer_first()
        self._tools = tools
        self._name = name
        self._called: dict[str, str] = {}
        self._asked: OrderedDict[tuple[str, str], None] = OrderedDict()

    @property
    def id(self) -> str | None:
        """The name that the user gave."""
        return self._name

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools that there are now."""
        await self._tools.on_own_loop(self._tools.settled)
        found = offered(self._tools)
        self._called.update((tool.name, tool.called) for tool in found)
        return {
            tool.name: ToolsetTool(
                toolset=self, tool_def=_definition(tool), max_retries=ctx.max_retries, args_validator=ANY_OBJECT
            )
            for tool in found
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[Any]:
        """Run a call. Raises `ApprovalRequired`, with the question as its metadata, `ToolFailed`, and `ModelRetry` when
        the `timeout` of its definition is over."""
        called, call_id = self._called.get(name, name), ctx.tool_call_id or ""
        question = await self._tools.on_own_loop(lambda: self._tools.question_of(called, tool_args, call_id))
        if question is not None and not self._is_approved(question, tool_args, ctx):
            self._asked[call_id, question.fingerprint] = None
            if len(self._asked) > MAX_SHOWN:
                self._asked.popitem(last=False)
            raise ApprovalRequired(metadata=msgspec.to_builtins(question))
        limit = tool.tool_def.timeout
        try:
            async with asyncio.timeout(limit):
                output = await run_call(
                    self._tools, called, tool_args, call_id, None if question is None else True, question
                )
        except TimeoutError:
            raise ModelRetry(f"{name} was ended after {limit} seconds") from None
        return _returned(output, name, call_id)

    def _is_approved(self, question: ExecApproval, arguments: dict[str, Any], ctx: RunContext[Any]) -> bool:
        """Tell whether the user approves of this question. What was shown is known from the metadata that came with
        the approval, or while this program runs; arguments that the user has replaced need not have been shown."""
        if not ctx.tool_call_approved:
            return False
        given, call_id = ctx.tool_call_metadata, ctx.tool_call_id or ""
        if isinstance(given, dict) and "fingerprint" in given:
            shown = {given["fingerprint"]}
        else:  # servers may give calls of several runs one id
            shown = {fingerprint for asked, fingerprint in self._asked if asked == call_id}
        self._asked.pop((call_id, question.fingerprint), None)
        return not shown or question.fingerprint in shown or arguments != _called_with(ctx)


def _called_with(ctx: RunContext[Any]) -> dict[str, Any] | None:
    """Return the arguments of the running call in the history."""
    parts = (part for message in reversed(ctx.messages) for part in message.parts)
    calls = (part for part in parts if isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id)
    call = next(calls, None)
    return None if call is None else call.args_as_dict()


def _definition(tool: OfferedTool) -> ToolDefinition:
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=tool.parameters,
        strict=tool.strict,
        metadata={"annotations": msgspec.to_builtins(tool.annotations)},
    )


def _returned(output: ToolOutput, name: str, call_id: str) -> ToolReturn[Any]:
    """Return the answer as Pydantic AI has it. Raises `ToolFailed`."""
    parts = parts_of(output)
    content: Any = text_of(parts) if all(isinstance(part, InputText) for part in parts) else [*map(_part, parts)]
    if isinstance(content, list) and len(content) == 1:
        content = content[0]
    if output.success is not False:
        return ToolReturn(content)
    if isinstance(content, str):
        raise ToolFailed(content)
    raise ToolFailedError(ToolReturnPart(name, content, call_id, outcome="failed"))


def _part(part: ContentPart) -> str | BinaryContent | ImageUrl | DocumentUrl:
    match part:
        case InputText(text=text):
            return text
        case InputImage(image_url=str(url), detail=detail):
            vendor = {"detail": detail} if detail else None
            known = data_of(url)
            if known is None:
                return ImageUrl(url, vendor_metadata=vendor)
            return BinaryContent(known[1], media_type=known[0], vendor_metadata=vendor)
        case InputFile(file_url=str(url)):
            return DocumentUrl(url)
        case InputFile(file_data=data, filename=filename) if known := data_of(data):
            return BinaryContent(known[1], media_type=known[0], identifier=filename)
    return msgspec.json.encode(part).decode()
