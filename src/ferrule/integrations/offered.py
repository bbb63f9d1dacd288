"""What every framework needs of a toolset: its tools as functions, calls with the answers given, results as parts."""

import base64
import binascii
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any

import msgspec

from ferrule.dispatch.gate import Gate
from ferrule.model.adapt import as_functions, wire_name
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.payload import NO_OUTPUT, ToolKind, ToolOutput
from ferrule.protocol.permissions import AskForApproval
from ferrule.session.toolset import Toolset
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.answering import Approval
from ferrule.tools.handler import ToolHandler
from ferrule.tools.search import ToolSearch, as_loaded_specs

MAX_SHOWN = 1024
"""Questions that are remembered until their calls run; a refused call never does."""

Arguments = Mapping[str, JsonValue] | str


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool as a function: `parameters` is a JSON Schema. `name` is what a server takes, `called` what
    `Toolset.call` takes. `strict`: the schema is one for strict mode. `may_ask`: a call may need approval."""

    name: str
    called: str
    description: str
    parameters: dict[str, Any]
    annotations: ToolAnnotations
    strict: bool = False
    may_ask: bool = True


def offered(toolset: Toolset) -> list[OfferedTool]:
    """Return the tools that there are now, freeform ones as functions with one text parameter.

    Raises `UsageError` if two of them have one name for a server.
    """
    return _tools(toolset, toolset.specs("chat"))


def _tools(toolset: Toolset, specs: Iterable[Mapping[str, Any]]) -> list[OfferedTool]:
    registry = toolset.current()[1]
    never = toolset.conversation.permissions.approval_policy is AskForApproval.NEVER
    tools: dict[str, OfferedTool] = {}
    for spec in specs:
        function = spec["function"]
        name = wire_name(function["name"])
        if name in tools:
            raise UsageError(f"two tools are called {name!r} for the model: give one of them another name")
        found = registry.find(function["name"])
        handler = ToolHandler() if found is None else found.handler
        tools[name] = OfferedTool(
            name,
            function["name"],
            function.get("description", ""),
            function["parameters"],
            handler.annotations,
            function.get("strict", False),
            not never and (handler.kind is ToolKind.MCP or not handler.annotations.readOnlyHint),
        )
    return list(tools.values())


class Offer:
    """The tools of a toolset for a framework that takes them once, and asks before each request which of them count."""

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._known: tuple[object, frozenset[str]] = (None, frozenset())

    def all(self) -> list[OfferedTool]:
        """Return the tools that there are now, and those that a model finds by a search only."""
        listed = self._toolset.specs("chat")
        names = {spec["function"]["name"] for spec in listed}
        hidden = as_loaded_specs(self._toolset.conversation.shared.get(ToolSearch).tools)
        functions = (function for spec in hidden for function in as_functions(spec) if function.name not in names)
        return _tools(self._toolset, [*listed, *filter(None, (function.to_chat() for function in functions))])

    async def names(self) -> frozenset[str]:
        """Return the names that count now."""
        await self._toolset.on_own_loop(self._toolset.settled)
        current = self._toolset.current()[0]
        if self._known[0] is not current:
            names = frozenset(wire_name(spec["function"]["name"]) for spec in self._toolset.specs("chat"))
            self._known = (current, names)
        return self._known[1]


class Calls:
    """Runs the calls of a framework that asks its user before a call, in whichever loop it runs.

    A decision is for exactly the question that was shown last for this call id and these arguments, however often the
    framework asks again once it is there. After a restart of the program nothing is remembered, and the decision is for
    what these arguments ask then.
    """

    def __init__(self, toolset: Toolset) -> None:
        """From here on the toolset's tools tell the model that what calls ask is answered."""
        toolset.answer_first()
        self.toolset = toolset
        self._shown: OrderedDict[tuple[str, str, str], ExecApproval | None] = OrderedDict()

    async def question(
        self, name: str, arguments: Arguments, call_id: str, *, decided: bool = False
    ) -> ExecApproval | None:
        """Return what the user is to be asked before this call, None: nothing. See `Toolset.question_of`.

        `decided`: the user has answered what was shown. Before, each look is a new one: a call that was refused or
        forgotten may come again under its id.
        """
        question = await self.toolset.on_own_loop(lambda: self.toolset.question_of(name, arguments, call_id))
        key = _key(name, arguments, call_id)
        before = self._shown.pop(key, None)
        shown = (before or question) if decided else question
        self._shown[key] = shown
        while len(self._shown) > MAX_SHOWN:
            self._shown.popitem(last=False)
        return shown

    async def run(self, name: str, arguments: Arguments, call_id: str, decision: Approval | None = None) -> ToolOutput:
        """Run a call with the user's decision; None, or where this call was looked at and had no question: whatever it
        asks is asked as always. See `Toolset.call`."""
        key = _key(name, arguments, call_id)
        undecided = key in self._shown and self._shown[key] is None
        shown = self._shown.pop(key, None)
        return await run_call(self.toolset, name, arguments, call_id, None if undecided else decision, shown)


_gate: ContextVar[Gate | None] = ContextVar("gate", default=None)
"""The gate that a call has passed: what it calls in turn must not wait for it."""


async def run_call(
    toolset: Toolset,
    name: str,
    arguments: Arguments,
    call_id: str | None,
    decision: Approval | None = None,
    shown: ExecApproval | None = None,
) -> ToolOutput:
    """Run a call from any loop, beside the other calls of the toolset where its tool allows that. See `Toolset.call`.

    Raises `RuntimeError` if the toolset belongs to a third loop.
    """

    async def run() -> ToolOutput:
        gate = None if _gate.get() is toolset.gate else toolset.gate
        token = _gate.set(toolset.gate)
        try:
            return await toolset.call(name, arguments, call_id, decision=decision, shown=shown, gate=gate)
        finally:
            _gate.reset(token)

    return await toolset.on_own_loop(run)


def _key(name: str, arguments: Arguments, call_id: str) -> tuple[str, str, str]:
    """Return the same key for arguments and for their JSON, whatever its order and white space."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return call_id, name, str(arguments)
    return call_id, name, json.dumps(arguments, sort_keys=True)


def parts_of(output: ToolOutput) -> tuple[ContentPart, ...]:
    """Return what the model is to see, part by part: one text at least."""
    body = output.body
    parts = body if isinstance(body, tuple) else (InputText(output.text),)
    kept = tuple(part for part in parts if not (isinstance(part, InputText) and not part.text.strip()))
    return kept or (InputText(NO_OUTPUT),)


def image_data(image: InputImage) -> tuple[str, bytes] | None:
    """Return the media type and the bytes of an image that is a `data:` URL; None for any other."""
    return data_of(image.image_url)


def data_of(url: str | None) -> tuple[str, bytes] | None:
    """Return the media type and the bytes in a `data:` URL; None for any other."""
    head, separator, data = (url or "").partition(";base64,")
    if not separator or not head.startswith("data:"):
        return None
    try:
        return head.removeprefix("data:"), base64.b64decode(data, validate=True)
    except binascii.Error:
        return None
