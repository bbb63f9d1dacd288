"""Agents of the OpenAI Agents SDK with a toolset, and a scripted model."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ferrule import Toolset
from ferrule.protocol.payload import NO_SCREENSHOT
from ferrule.testing import ScriptedModel, function_call
from ferrule.testing.steps import StepLike

if TYPE_CHECKING:
    import agents

WIRES = ("responses", "chat")
TOUCH = function_call("shell_command", {"command": "touch made"})
PNG = base64.b64decode(NO_SCREENSHOT.partition(",")[2])
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+grüße\n*** End Patch"


class Place:
    """A folder, and a model that plays a script to agents with a toolset there."""

    def __init__(self, sdk: Any, folder: Path) -> None:
        self.sdk = sdk
        self.folder = folder
        self.script = ScriptedModel()
        self.clients: list[Any] = []

    def toolset(self, *tools: Any, policy: str = "untrusted", model: str = "gpt-4.1", **more: Any) -> Toolset:
        """A toolset without a sandbox."""
        more = {"sandbox": "danger-full-access", "tools": tools or ("shell_command",)} | more
        return Toolset.for_model(model, cwd=self.folder, approval_policy=policy, **more)

    def agent(self, toolset: Toolset, wire: Any, *steps: StepLike, **more: Any) -> "agents.Agent":
        """An agent whose model says `steps`."""
        from openai import AsyncOpenAI

        from ferrule.integrations.openai_agents import tools

        self.script.add(*steps)
        client = AsyncOpenAI(base_url=self.script.base_url, api_key="unused", max_retries=0)
        self.clients.append(client)
        kind = self.sdk.OpenAIResponsesModel if wire == "responses" else self.sdk.OpenAIChatCompletionsModel
        made: agents.Agent = self.sdk.Agent(
            name="agent", tools=tools(toolset, wire=wire), model=kind("scripted-model", client), **more
        )
        return made

    async def close(self) -> None:
        """Close what agents connected with."""
        for client in self.clients:
            await client.close()

    async def run(self, agent: "agents.Agent", asked: Any = "go") -> Any:
        """Run the agent until it ends or is interrupted."""
        return await self.sdk.Runner.run(agent, asked)


def decide(result: Any, *approved: bool) -> Any:
    """The state of an interrupted run after these decisions."""
    state = result.to_state()
    for item, yes in zip(result.interruptions, approved, strict=True):
        (state.approve if yes else state.reject)(item)
    return state


def outputs(place: Place) -> list[Any]:
    """The items of the second request that answer calls, in call order."""
    items = cast("list[Any]", place.script.requests[1].body["input"])
    return sorted((item for item in items if "output" in item), key=lambda item: item["call_id"])
