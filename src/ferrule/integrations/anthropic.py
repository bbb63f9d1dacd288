"""A toolset for the Messages API: the tools of a request, run by the SDK's tool runner or by `run`."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from typing import Any, Final

from ferrule.builtin.bash import BashTool
from ferrule.builtin.str_replace_based_edit_tool import StrReplaceBasedEditTool
from ferrule.integrations.offered import OfferedTool, image_data, offered, parts_of, run_call
from ferrule.protocol.content import ContentPart, InputFile, InputImage, text_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.payload import ToolOutput
from ferrule.session.toolset import Toolset
from ferrule.sync import wait_for_coroutine
from ferrule.tools.handler import ToolHandler

try:
    from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool, BetaBuiltinFunctionTool, ToolError
except ImportError as error:
    raise UsageError("the adapter needs the extra `anthropic`: pip install 'ferrule[anthropic]'") from error

KNOWN: Final[dict[type[ToolHandler], str]] = {
    BashTool: "bash_20250124",
    StrReplaceBasedEditTool: "text_editor_20250728",
}
"""Tools that Claude was trained on: the API takes them by a type, without a schema."""
IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""Images that the API takes."""
PDF = "data:application/pdf;base64,"
CUT_OFF = frozenset(("max_tokens", "model_context_window_exceeded", "refusal"))
"""Why a message may have ended within a call. Not every server of the API says `tool_use` where its model calls."""

Block = dict[str, Any]


class MessagesTool(dict[str, Any], BetaAsyncBuiltinFunctionTool, BetaBuiltinFunctionTool):
    """A tool as a request has it, which the tool runners of both clients can run."""

    def __init__(self, definition: Block, toolset: Toolset, called: str) -> None:
        super().__init__(definition)
        self._toolset = toolset
        self._called = called

    def to_dict(self) -> Any:
        """Return the tool as the request has it."""
        return dict(self)

    def call(self, input: object) -> Any:  # noqa: A002 - the SDK's name
        """Run a call for a tool runner, which gives no id. Where a loop runs, that begins when the result is awaited or
        iterated over. Raises `ToolError`."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return wait_for_coroutine(self._content(input))
        return _Content(lambda: self._content(input))

    async def _content(self, given: object) -> Any:
        output = await run_call(self._toolset, self._called, json.dumps(given), None)
        if output.success is False:
            raise ToolError(_content(output))
        return _content(output)


class _Content:
    """What a call gives: the async client's runner awaits it, the plain client's iterates over it (in a notebook)."""

    def __init__(self, run: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._run = run

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._run().__await__()

    def __iter__(self) -> Iterator[Block]:
        content = wait_for_coroutine(self._run())
        return iter([{"type": "text", "text": content}] if isinstance(content, str) else content)


def tools(toolset: Toolset) -> list[Any]:
    """Return the tools that there are now, Claude's bash and text editor by their types.

    They go into `messages.create`, whose calls `run` runs, and into `beta.messages.tool_runner` of either client. The
    toolset's `on_approval` answers what its policy asks.
    """
    registry = toolset.current()[1]
    return [
        MessagesTool(_definition(tool, registry.handler(tool.called)), toolset, tool.called)
        for tool in offered(toolset)
    ]


def _definition(tool: OfferedTool, handler: ToolHandler | None) -> Block:
    known = KNOWN.get(type(handler)) if handler is not None else None
    if known is not None:
        return {"type": known, "name": tool.name}
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


async def run(toolset: Toolset, message: object) -> list[Block]:
    """Run the `tool_use` blocks of a message, or of its content, and return their `tool_result` blocks, in order.

    Calls run beside each other where their tools allow it. Those of a message that was cut off do not run.
    """
    reason, content = _get(message, "stop_reason"), _get(message, "content")
    blocks: Any = message if content is None else content
    calls = [block for block in blocks if _get(block, "type") == "tool_use"]
    if reason in CUT_OFF:
        cut_off = ToolOutput(f"not run: the message ended with {reason}, so the call may not be whole", False)
        return [_result(call, cut_off) for call in calls]
    names = {tool.name: tool.called for tool in offered(toolset)}
    outputs = await asyncio.gather(*(_ran(toolset, names, call) for call in calls))
    return [_result(call, output) for call, output in zip(calls, outputs, strict=True)]


def run_sync(toolset: Toolset, message: object) -> list[Block]:
    """`run`, for plain code."""
    return wait_for_coroutine(run(toolset, message))


def _ran(toolset: Toolset, names: dict[str, str], call: object) -> Awaitable[ToolOutput]:
    name = str(_get(call, "name"))
    return run_call(toolset, names.get(name, name), json.dumps(_get(call, "input")), _get(call, "id"))


def _get(given: object, name: str) -> Any:
    """Return a field of an object of the SDK, or of the mapping that it stands for."""
    return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)


def _result(call: object, output: ToolOutput) -> Block:
    result = {"type": "tool_result", "tool_use_id": _get(call, "id"), "content": _content(output)}
    return {**result, "is_error": True} if output.success is False else result


def _content(output: ToolOutput) -> Any:
    """Return what the model is to see: a text, or blocks where there is more than text."""
    parts = parts_of(output)
    if any(isinstance(part, InputImage | InputFile) for part in parts):
        return [_block(part) for part in parts]
    return text_of(parts)


def _block(part: ContentPart) -> Block:
    match part:
        case InputImage(image_url=str(url)):
            found = image_data(part)
            if url.startswith("http"):
                return {"type": "image", "source": {"type": "url", "url": url}}
            if found is not None and found[0] in IMAGES:
                return _base64("image", found[0], url.partition(",")[2])
        case InputFile(file_url=str(url)):
            return {"type": "document", "source": {"type": "url", "url": url}}
        case InputFile(file_data=str(data)) if data.startswith(PDF):
            return _base64("document", "application/pdf", data.removeprefix(PDF))
    if isinstance(part, InputImage | InputFile):
        return {"type": "text", "text": "[a file of a kind that cannot be shown, left out]"}
    return {"type": "text", "text": text_of((part,))}


def _base64(kind: str, media_type: str, data: str) -> Block:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}
