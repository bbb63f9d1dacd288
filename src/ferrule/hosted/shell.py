"""`shell` in a container: commands that really run, services that stay, files that are kept.

Source: `shell` with a container as its environment, `shell_call` and `shell_call_output` of the Responses API.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from ferrule.hosted.containers import ClientContainer, ClientContainers
from ferrule.hosted.shell_output import told
from ferrule.hosted.tool import HostedCall, HostedTool, Scope, Telling
from ferrule.hosted.wanted import memory_note
from ferrule.process.launcher import LaunchError
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import OutputBody
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonObject, decode
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.protocol.truncation import OutputBudget, truncate_text

MODEL_BUDGET = OutputBudget(10_000)
"""Of what one command printed that the model reads: as of a command of a session."""
MOST_COMMANDS = 64
"""In one call: more is a script."""
KNOWN = {"type", "container_id", "file_ids", "memory_limit", "network_policy", "skills"}
"""Fields of an environment."""
HERE = ("container_auto", "container_reference")
NAME = "shell"
"""The model's function."""
DESCRIPTION = (
    "Run commands with {shell} in a Linux container, in order, each in a new shell in /mnt/data. What a command leaves "
    "running goes on. Files are in /mnt/data, also those that the user gave; write results for the user there, and "
    "name each as a link of the form sandbox:/mnt/data/NAME. There is no terminal and no sudo."
)
PARAMETERS = JsonSchema(
    {
        "type": "object",
        "properties": {
            "commands": {"type": "array", "items": {"type": "string"}},
            "timeout_ms": {"type": "integer", "description": "For each command"},
        },
        "required": ["commands"],
        "additionalProperties": False,
    }
)


class _Arguments(msgspec.Struct, frozen=True):
    commands: Annotated[list[str], msgspec.Meta(min_length=1, max_length=MOST_COMMANDS)]
    timeout_ms: Annotated[int, msgspec.Meta(gt=0)] | None = None
    max_output_length: Annotated[int, msgspec.Meta(gt=0)] | None = None


class HostedShell(HostedTool):
    """The tool. A command that names no limit may take `command_seconds`."""

    kind = "shell"

    def __init__(self, containers: ClientContainers, *, command_seconds: float) -> None:
        self._containers = containers
        self._command_ms = int(command_seconds * 1000)

    @property
    def goes_first(self) -> bool:
        """True: no other server has the containers, files and skills of our clients."""
        return True

    def is_meant(self, tool: JsonObject) -> bool:
        """Return whether this is the declared tool."""
        return tool.get("type") == "shell" and (tool.get("environment") or {}).get("type") in HERE

    async def check(self, tool: JsonObject, owner: str) -> str:
        """Look up the container, or the files and skills for a new one. Returns what the model is told of languages
        and skills. Raises `ToolRefused`."""
        return await self._containers.check(owner, *_named(tool), "environment", by="environment.container_id")

    def not_run(self, tool: JsonObject) -> Sequence[str]:
        """Return the fields of the environment that are only kept."""
        return sorted(tool["environment"].keys() - KNOWN)

    def functions(self, tool: JsonObject) -> Sequence[ResponsesApiTool]:
        """Return the function that the model is told of."""
        described = DESCRIPTION.format(shell=self._containers.shell) + memory_note(tool["environment"])
        return (ResponsesApiTool(name=NAME, description=described, parameters=PARAMETERS),)

    async def run(self, call: HostedCall, telling: Telling) -> OutputBody:
        """Run the commands of a call."""
        try:
            asked = msgspec.convert(decode(call.arguments), _Arguments)
        except msgspec.ValidationError as error:
            raise RespondToModel(f"{NAME}: {error}") from error
        place = await self._containers.place(call.scope, *_named(call.tool))
        action = msgspec.structs.asdict(asked)
        environment = {"type": "container_reference", "container_id": place.id}
        same = {"call_id": call.call_id, "action": action, "environment": environment}
        item = telling.add_item("shell_call", same)
        for number, command in enumerate(asked.commands):
            at = {"output_index": item.index, "command_index": number}
            telling.tell("response.shell_call_command.added", **at, command="")
            telling.tell("response.shell_call_command.delta", **at, delta=command)
            telling.tell("response.shell_call_command.done", **at, command=command)
        telling.end_item(item, same)
        return await self._outputs(place, call, asked, telling)

    async def _outputs(
        self, place: ClientContainer, call: HostedCall, asked: _Arguments, telling: Telling
    ) -> OutputBody:
        """Run the commands, tell their outputs as an item, and return what the model reads."""
        same = {"call_id": call.call_id, "max_output_length": asked.max_output_length}
        item = telling.add_item("shell_call_output", {**same, "output": []})
        entries: list[JsonObject] = []
        for number, command in enumerate(asked.commands):
            entry = await self._output(place, command, asked)
            entries.append(entry)
            delta = {name: entry[name] for name in ("stdout", "stderr") if entry[name]}
            telling.tell_of(item, "response.shell_call_output_content.delta", command_index=number, delta=delta)
            telling.tell_of(item, "response.shell_call_output_content.done", command_index=number, output=[entry])
        telling.end_item(item, {**same, "output": entries})
        return "\n\n".join(truncate_text(told(entry), MODEL_BUDGET) for entry in entries)

    async def _output(self, place: ClientContainer, command: str, asked: _Arguments) -> JsonObject:
        limit_ms = asked.timeout_ms or self._command_ms
        try:
            done = await place.box.run(command, timeout=limit_ms / 1000)
        except LaunchError as error:
            return {"stdout": "", "stderr": str(error), "outcome": {"type": "exit", "exit_code": 126}}
        outcome = {"type": "timeout"} if done.timed_out else {"type": "exit", "exit_code": done.status.shell_code}
        most = asked.max_output_length
        refusals = "".join(f"[{text}]\n" for text in place.take_refusals())
        stderr = refusals + done.stderr.text()
        return {"stdout": done.stdout.text()[:most], "stderr": stderr[:most], "outcome": outcome}

    async def citations(self, scope: Scope, used: Sequence[str], text: str) -> Sequence[JsonObject]:
        """Return the annotations for the files that a text names."""
        return await self._containers.citations(scope, used, text)


def _named(tool: JsonObject) -> tuple[str | None, JsonObject]:
    """Return the id of the declared container, and what is declared of a new one."""
    declared = tool["environment"]
    return (declared["container_id"] if declared["type"] == "container_reference" else None), declared
