"""`code_interpreter`: Python in a container, whose state is kept from call to call.

Source: `code_interpreter` and `code_interpreter_call` of the Responses API.
"""

from collections.abc import Callable, Sequence

import msgspec

from ferrule.hosted.containers import ClientContainer, ClientContainers
from ferrule.hosted.tool import HostedCall, HostedTool, Scope, Telling
from ferrule.hosted.wanted import memory_note
from ferrule.process.kernel import CellResult, CellTimedOut, KernelDied, KernelLost
from ferrule.process.launcher import LaunchError
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, OutputBody, ResponseItem, make_item
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonObject, decode
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.protocol.truncation import OutputBudget, truncate_text

OUTPUTS = "code_interpreter_call.outputs"
"""The `include` that shows what a call printed and drew."""
MODEL_BUDGET = OutputBudget(10_000)
"""Of what a call printed that the model reads: as of a command of a session."""
NAME = "python"
"""The model's function."""
KNOWN = {"type", "file_ids", "memory_limit", "network_policy"}
"""Fields of a container."""
DESCRIPTION = (
    "Run Python in a container that keeps its state from call to call. Standard output, errors, the value of the last "
    "expression and open figures come back. Files are in /mnt/data, also those that the user gave; write results for "
    "the user there, and name each as a link of the form sandbox:/mnt/data/NAME."
)
PARAMETERS = JsonSchema(
    {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python source"}},
        "required": ["code"],
        "additionalProperties": False,
    }
)


class _Arguments(msgspec.Struct, frozen=True):
    code: str


class CodeInterpreter(HostedTool):
    """The tool. A cell may take `cell_seconds`."""

    kind = "code_interpreter"

    def __init__(self, containers: ClientContainers, *, cell_seconds: float) -> None:
        self._containers = containers
        self._cell_ms = int(cell_seconds * 1000)

    @property
    def goes_first(self) -> bool:
        """True: no other server has the containers, files and skills of our clients."""
        return True

    async def check(self, tool: JsonObject, owner: str) -> str:
        """Look up the container, or the files for a new one. Returns what the model is told of its languages and
        skills. Raises `ToolRefused`."""
        return await self._containers.check(owner, *_named(tool), "container", by="container")

    def not_run(self, tool: JsonObject) -> Sequence[str]:
        """Return the fields of the container that are only kept."""
        return sorted(_named(tool)[1].keys() - KNOWN)

    def functions(self, tool: JsonObject) -> Sequence[ResponsesApiTool]:
        """Return the function that the model is told of."""
        described = DESCRIPTION + memory_note(tool["container"])
        return (ResponsesApiTool(name=NAME, description=described, parameters=PARAMETERS),)

    async def run(self, call: HostedCall, telling: Telling) -> OutputBody:
        """Run a cell."""
        try:
            code = msgspec.convert(decode(call.arguments), _Arguments).code
        except msgspec.ValidationError as error:
            raise RespondToModel(f"{NAME}: {error}") from error
        place = await self._containers.place(call.scope, *_named(call.tool))
        item = telling.add_item("code_interpreter_call", {"container_id": place.id, "code": "", "outputs": None})
        telling.tell_of(item, "response.code_interpreter_call.in_progress")
        telling.tell_of(item, "response.code_interpreter_call_code.delta", delta=code)
        telling.tell_of(item, "response.code_interpreter_call_code.done", code=code)
        telling.tell_of(item, "response.code_interpreter_call.interpreting")
        outcome = await self._evaluate(place, code)
        telling.tell_of(item, "response.code_interpreter_call.completed")
        outputs = outcome.outputs() if OUTPUTS in call.scope.include else None
        fields = {"status": outcome.status, "container_id": place.id, "code": code, "outputs": outputs}
        telling.end_item(item, fields)
        return outcome.for_model()

    async def _evaluate(self, place: ClientContainer, code: str) -> "_Outcome":
        try:
            with place.box.in_use():
                async with place.turn:
                    kernel = await place.python()
                    result = await kernel.run(code, self._cell_ms)
        except KernelLost as error:
            return _Outcome(_logs(place, error.written.text(), _lost(error, self._cell_ms)), (), "failed")
        except LaunchError as error:
            return _Outcome(str(error), (), "failed")
        status = "incomplete" if result.interrupted else "completed"
        return _Outcome(_logs(place, result.inherited.text(), _error_in(result)), result.images, status)

    async def citations(self, scope: Scope, used: Sequence[str], text: str) -> Sequence[JsonObject]:
        """Return the annotations for the files that a text names."""
        return await self._containers.citations(scope, used, text)

    def replayed(self, item: JsonObject, called: Callable[[str], str]) -> tuple[ResponseItem, ...]:
        """Return a call that the client sends back as the model saw it."""
        if item.get("type") != "code_interpreter_call":
            return ()
        call_id, arguments = str(item.get("id")), msgspec.json.encode({"code": item.get("code") or ""}).decode()
        outputs = [entry for entry in item.get("outputs") or () if isinstance(entry, dict)]
        logs = [entry.get("logs") for entry in outputs if entry.get("type") == "logs"]
        output = "\n".join(map(str, logs)) or "(its output is not kept)"
        return (
            make_item(FunctionCall(call_id=call_id, name=called(NAME), arguments=arguments)),
            make_item(FunctionCallOutput(call_id=call_id, output=output)),
        )


def _named(tool: JsonObject) -> tuple[str | None, JsonObject]:
    """Return the id of the declared container, and what is declared of a new one."""
    declared = tool["container"]
    return (declared, {}) if isinstance(declared, str) else (None, declared)


class _Outcome(msgspec.Struct, frozen=True):
    """The outcome of a cell. `images` are data URLs."""

    logs: str
    images: tuple[str, ...]
    status: str

    def outputs(self) -> list[JsonObject]:
        """Return it as the client sees it."""
        logs: list[JsonObject] = [{"type": "logs", "logs": self.logs}] if self.logs else []
        return [*logs, *({"type": "image", "url": url} for url in self.images)]

    def for_model(self) -> OutputBody:
        """Return it as the model reads it."""
        text = truncate_text(self.logs, MODEL_BUDGET) or "(no output)"
        if not self.images:
            return text
        parts: list[ContentPart] = [InputText(text), *(InputImage(image_url=url) for url in self.images)]
        return tuple(parts)


def _logs(place: ClientContainer, written: str, error: str) -> str:
    notices = [f"[{notice}]" for notice in (*place.box.take_notices(), *place.take_refusals())]
    return "\n".join(part.rstrip("\n") for part in (*notices, written, error) if part)


def _error_in(result: CellResult) -> str:
    return result.error or ""


def _lost(error: KernelLost, limit_ms: int) -> str:
    if isinstance(error, CellTimedOut):
        return f"Python was ended: the code ran longer than {limit_ms // 1000} seconds and did not stop. State is lost."
    if isinstance(error, KernelDied):
        return f"Python ended: {error}. State is lost; the next call starts it anew."
    return f"{error}"
