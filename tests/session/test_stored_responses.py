"""Reasoning that lasts: where the provider keeps responses, a request goes on from the last one."""

from pathlib import Path

import pytest

from ferrule import Agent, tool
from ferrule.protocol.settings import ProviderSettings
from ferrule.testing import ScriptedModel, Step, function_call, http_error, message, reasoning, step
from ferrule.testing.steps import StepLike

PROFILES = '[provider.keeper]\nlike = "openai"\nenv_key = ""\nkey_required = false\nstores = true\n'


@tool(read_only=True)
async def look() -> str:
    return "a.txt"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "profiles.toml").write_text(PROFILES)
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path))
    return tmp_path


def agent(model: ScriptedModel, home: Path, profile: str = "keeper") -> Agent:
    provider = ProviderSettings(
        name="keeper", base_url=model.base_url, wire_api="responses", profile=profile, stream_max_retries=1
    )
    return Agent("gpt-5.5", tools=[look], cwd=home, provider=provider)


def sent(model: ScriptedModel) -> list[tuple[object, list[object]]]:
    """What each request goes on from, and the kinds of the items in it."""
    return [
        (request.body.get("previous_response_id"), [item.get("type", "message") for item in request.items])
        for request in model.requests
    ]


async def test_a_request_goes_on_from_the_last_response_and_sends_what_is_new(home: Path) -> None:
    script: list[StepLike] = [[reasoning(text="Hm."), function_call("look", {})], "Done.", "Bye."]
    with ScriptedModel(script) as model:
        async with await agent(model, home).open() as session:
            await session.run("go")
            await session.run("and now?")
        first, second, third = sent(model)
    assert first == (None, ["message", "message"])
    assert second[0] and second[1] == ["function_call_output"]
    assert third[0] not in (None, second[0])
    assert third[1] == ["message"]


async def test_where_responses_are_not_kept_the_whole_history_is_sent(home: Path) -> None:
    with ScriptedModel([[function_call("look", {})], "Done."]) as model:
        await agent(model, home, "openai").run("go")
        assert sent(model)[1] == (None, ["message", "message", "function_call", "function_call_output"])


@pytest.mark.parametrize(
    "cut",
    [step(function_call("look", {}), end="max_output_tokens"), step("Hm", end="max_output_tokens")],
    ids=["call", "text"],
)
async def test_a_response_that_was_cut_short_is_not_gone_on_from(home: Path, cut: Step) -> None:
    with ScriptedModel(["One.", cut, "Two.", "Three."]) as model:
        async with await agent(model, home).open() as session:
            for prompt in ("one", "two", "three"):
                await session.run(prompt)
        assert sent(model)[1][0] is not None
        assert sent(model)[2][0] is None


async def test_a_call_that_comes_again_after_a_break_is_answered_by_the_whole_history(home: Path) -> None:
    broken = step(function_call("look", {}, call_id="c1"), message("Now"), cut_after="response.output_item.done")
    again = [function_call("look", {}, call_id="c1"), function_call("look", {}, call_id="c2")]
    with ScriptedModel(["One.", broken, again, "Done."]) as model:
        async with await agent(model, home).open() as session:
            await session.run("one")
            await session.run("go")
        kept = [request for request, _ in sent(model)]
    assert kept[1] == kept[2] is not None
    assert kept[3] is None


async def test_a_response_that_the_provider_lost_is_replaced_by_the_whole_history(home: Path) -> None:
    lost = http_error(400, "Previous response not found", code="previous_response_not_found")
    with ScriptedModel(["One.", lost, "Two.", "Three."]) as model:
        async with await agent(model, home).open() as session:
            await session.run("one")
            assert (await session.run("two")).text == "Two."
            await session.run("three")
        kept = [request for request, _ in sent(model)]
    assert kept[1] is not None
    assert kept[2] is None
    assert kept[3] is not None
