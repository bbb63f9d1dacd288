"""A screen through `ferrule serve`: for the OpenAI Agents SDK, and for a session of ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Computer
from ferrule.protocol.settings import ProviderSettings
from ferrule.testing import ScriptedModel, function_call, reasoning, step
from ferrule.testing.steps import StepLike
from tests.containers.screens import require_screen
from tests.containers.sites import Site
from tests.gateway.served import new_place, serving

Fields = dict[str, Any]
BOOKING: tuple[list[Fields], ...] = (
    [{"type": "screenshot"}],
    [
        {"type": "click", "x": 200, "y": 100},
        {"type": "type", "text": "Grace"},
        {"type": "keypress", "keys": ["ENTER"]},
    ],
    [
        {"type": "click", "x": 200, "y": 100},
        {"type": "keypress", "keys": ["ARROWDOWN"]},
        {"type": "keypress", "keys": ["ENTER"]},
    ],
    [{"type": "click", "x": 60, "y": 220}],
    [{"type": "click", "x": 60, "y": 220.4, "button": "left"}, {"type": "wait"}],
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


def booking() -> list[StepLike]:
    """A model that fills the form, turn by turn, and thinks before each."""
    turns = (step(reasoning("I look."), function_call("computer", {"actions": actions})) for actions in BOOKING)
    return [*turns, "Booked."]


async def test_a_form_is_filled_and_booked_through_the_gateway(site: Site, tmp_path: Path) -> None:
    await require_screen()
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    with ScriptedModel(booking()) as model, serving(new_place(tmp_path), model.base_url) as gateway:
        async with (
            AsyncOpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as client,
            Computer(start_url=site.url("/book"), allowed_domains=[site.name], hosts=site.hosts) as computer,
        ):
            made = agents.Agent(
                name="clerk",
                tools=[agents.ComputerTool(computer=computer)],
                model=agents.OpenAIResponsesModel("gpt-5.5", client),
            )
            result = await agents.Runner.run(made, "Book Tuesday for Grace.", auto_previous_response_id=True)
            assert result.final_output == "Booked." and site.booked == ["name=Grace&day=Tuesday"]
            calls = [item.raw_item for item in result.new_items if item.type == "tool_call_item"]
            assert [len(call.actions) for call in calls] == [len(actions) for actions in BOOKING]

            model.add(*booking())
            await computer.open_url(site.url("/book"))
            provider = ProviderSettings(name="gateway", base_url=gateway.url, wire_api="responses")
            ours = Agent("gpt-5.5", provider=provider, tools=[computer], cwd=tmp_path)
            assert (await ours.run("Book it again.")).text == "Booked."
            assert site.booked == ["name=Grace&day=Tuesday"] * 2
            assert not computer.screen.notices()
        model.check()
        last = model.last_request
    assert [tool for tool in last.tool_names if tool != "open_url"] == ["computer"]
    texts = [output.text for output in last.outputs]
    assert len(texts) == len(BOOKING) and all(text.startswith("The screen after the actions:") for text in texts)
    assert json.dumps(last.body).count("data:image/png;base64,") == len(BOOKING)
