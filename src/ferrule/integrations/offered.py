"""What every framework needs of a toolset: its tools as functions, calls with the answers given, results as parts."""

import base64
import binascii
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from ferrule.model.adapt import wire_name
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.payload import NO_OUTPUT, ToolOutput
from ferrule.session.toolset import Toolset
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.answering import Approval

MAX_SHOWN = 1024
"""Questions that are remembered until their calls run; a refused call never does."""

Arguments = Mapping[str, JsonValue] | str


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool as a function: `parameters` is a JSON Schema. `name` is what a server takes, `called` what
    `Toolset.call` takes. `strict`: the schema is one for strict mode."""

    name: str
    called: str
    description: str
    parameters: dict[str, Any]
    annotations: ToolAnnotations
    strict: bool = False


def offered(toolset: Toolset) -> list[OfferedTool]:
    """Return the tools that there are now, freeform ones as functions with one text parameter.

    Raises `UsageError` if two of them have one name for a server.
    """
    registry = toolset.current()[1]
    tools: dict[str, OfferedTool] = {}
    for spec in toolset.specs("chat"):
        function: dict[str, Any] = spec["function"]
        name = wire_name(function["name"])
        if name in tools:
            raise UsageError(f"two tools are called {name!r} for the model: give one of them another name")
        found = registry.find(function["name"])
        tools[name] = OfferedTool(
            name,
            function["name"],
            function.get("description", ""),
            function["parameters"],
            ToolAnnotations() if found is None else found.handler.annotations,
            function.get("strict", False),
        )
    return list(tools.values())


class Calls:
    """Runs the calls of a framework that asks its user before a call, in whichever loop it runs.

    A decision is for exactly the question that was asked for this call id and these arguments: the first one, however
    often the framework asks again. After a restart of the program nothing is remembered, and the decision is for what
    these arguments ask then.
    """

    def __init__(self, toolset: Toolset) -> None:
        """From here on the toolset's tools tell the model that what calls ask is answered."""
        toolset.answer_first()
        self.toolset = toolset
        self._shown: OrderedDict[tuple[str, str, str], ExecApproval] = OrderedDict()

    async def question(self, name: str, arguments: Arguments, call_id: str) -> ExecApproval | None:
        """Return what the user is to be asked before this call, None: nothing. See `Toolset.question_of`."""
        question = await self.toolset.on_own_loop(lambda: self.toolset.question_of(name, arguments, call_id))
        key = _key(name, arguments, call_id)
        if question is None:
            return self._shown.get(key)
        while len(self._shown) >= MAX_SHOWN:
            self._shown.popitem(last=False)
        return self._shown.setdefault(key, question)

    async def run(self, name: str, arguments: Arguments, call_id: str, decision: Approval | None = None) -> ToolOutput:
        """Run a call with the user's decision; None if there was no question. See `Toolset.call`."""
        shown = self._shown.pop(_key(name, arguments, call_id), None)
        return await self.toolset.on_own_loop(
            lambda: self.toolset.call(name, arguments, call_id, decision=decision, shown=shown)
        )


def _key(name: str, arguments: Arguments, call_id: str) -> tuple[str, str, str]:
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return call_id, name, text


def parts_of(output: ToolOutput) -> tuple[ContentPart, ...]:
    """Return what the model is to see, part by part: one text at least."""
    body = output.body
    parts = body if isinstance(body, tuple) else (InputText(output.text),)
    kept = tuple(part for part in parts if not (isinstance(part, InputText) and not part.text.strip()))
    return kept or (InputText(NO_OUTPUT),)


def image_data(image: InputImage) -> tuple[str, bytes] | None:
    """Return the media type and the bytes of an image that is a `data:` URL; None for any other."""
    head, separator, data = (image.image_url or "").partition(";base64,")
    if not separator or not head.startswith("data:"):
        return None
    try:
        return head.removeprefix("data:"), base64.b64decode(data, validate=True)
    except binascii.Error:
        return None
