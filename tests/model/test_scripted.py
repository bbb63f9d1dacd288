"""The scripted server plays the same script over all wires and we read the same items."""

from collections.abc import Iterator

import pytest

from ferrule.model.provider import open_model
from ferrule.model.stream import Completed
from ferrule.protocol.content import text_of
from ferrule.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Message,
    ResponseItem,
    make_item,
)
from ferrule.protocol.settings import ProviderSettings
from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel, custom_tool_call, function_call, message, reasoning, step
from tests.model.support import outcome, request, user

PATCH = '*** Begin Patch\n*** Add File: ü.txt\n+"quoted" \\ 🔧\n*** End Patch\n'


@pytest.fixture
def scripted() -> Iterator[ScriptedModel]:
    script = [
        step(
            reasoning(text="Hm."), message("Looking."), function_call("exec_command", {"cmd": "ls"}),
            custom_tool_call("apply_patch", PATCH),
        ),
        step(message("Done.")),
    ]  # fmt: skip
    with ScriptedModel(script) as server:
        yield server


def answer(item: ResponseItem) -> list[ResponseItem]:
    if isinstance(item.view, FunctionCall):
        return [make_item(FunctionCallOutput(call_id=item.view.call_id, output="a.txt"))]
    if isinstance(item.view, CustomToolCall):
        return [make_item(CustomToolCallOutput(call_id=item.view.call_id, output="Done!"))]
    return []


def essence(item: ResponseItem) -> tuple[str, ...]:
    view = item.view
    if isinstance(view, FunctionCall):
        return ("function", view.name, view.arguments)
    if isinstance(view, CustomToolCall):
        return ("custom", view.name, view.input)
    return ("message", text_of(view.content)) if isinstance(view, Message) else ()


@pytest.mark.parametrize(
    ("wire", "profile"),
    [
        ("responses", None),
        ("responses", "ollama"),
        ("chat", None),
        ("chat", "openai"),
        ("messages", None),
        ("messages", "anthropic"),
        ("messages", "openai"),
    ],
)
async def test_a_turn_with_calls(scripted: ScriptedModel, wire: Wire, profile: str | None) -> None:
    provider = ProviderSettings(name="box", base_url=scripted.base_url, profile=profile)
    model = open_model(provider, wire=wire, env={})
    history = [user("Go")]
    said: list[tuple[str, ...]] = []
    for _ in range(2):
        found = await outcome(model, request(*history, model="scripted-model"))
        assert found.error is None
        assert isinstance(found.events[-1], Completed)
        said += filter(None, map(essence, found.items))
        history += [*found.items, *(output for item in found.items for output in answer(item))]
    scripted.check()
    assert said == [
        ("message", "Looking."),
        ("function", "exec_command", '{"cmd":"ls"}'),
        ("custom", "apply_patch", PATCH),
        ("message", "Done."),
    ]
