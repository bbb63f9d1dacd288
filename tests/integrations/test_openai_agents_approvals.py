"""Approvals in the OpenAI Agents SDK: interruptions of its runs, decided each for itself."""

import json
import os
from typing import Any

import pytest

from ferrule import Action, ToolContext, ToolDefinition, ToolExecutor
from ferrule.protocol.events import ExecApproval
from ferrule.testing import function_call, shell_call
from tests.integrations.agents_sdk import TOUCH, Place, decide


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_interrupts_the_run(place: Place, wire: str, approved: bool) -> None:
    async with place.toolset() as toolset:
        agent = place.agent(toolset, wire, TOUCH, "done")
        asked = await place.run(agent)
        [item] = asked.interruptions
        assert (item.tool_name, json.loads(item.arguments)) == ("shell_command", {"command": "touch made"})
        assert os.listdir(place.folder) == []
        assert (await place.run(agent, decide(asked, approved))).final_output == "done"
    assert (place.folder / "made").exists() is approved
    said = place.script.outputs()["call_1"]
    assert said.startswith("Exit code: 0") if approved else "not approved" in said


async def test_what_is_safe_is_not_asked_for(place: Place) -> None:
    async with place.toolset() as toolset:
        agent = place.agent(toolset, "responses", function_call("shell_command", {"command": "pwd"}), "done")
        assert (await place.run(agent)).interruptions == []
    assert str(place.folder) in place.script.outputs()["call_1"]


async def test_parallel_calls_are_decided_each_for_itself(place: Place, wire: str) -> None:
    one, two = (function_call("shell_command", {"command": f"touch {name}"}) for name in ("one", "two"))
    async with place.toolset() as toolset:
        agent = place.agent(toolset, wire, [one, two], "done")
        asked = await place.run(agent)
        await place.run(agent, decide(asked, False, True))
    assert os.listdir(place.folder) == ["two"]


async def test_an_approval_is_for_what_was_shown(place: Place) -> None:
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-old\n+new\n*** End Patch"
    (place.folder / "a.txt").write_text("old\n")
    async with place.toolset("apply_patch") as toolset:
        agent = place.agent(toolset, "responses", function_call("apply_patch", {"input": patch}), "done")
        asked = await place.run(agent)
        (place.folder / "a.txt").write_text("secret\nold\n")
        await place.run(agent, decide(asked, True))
    assert "what was approved is not what the call would do now" in place.script.outputs()["call_1"]
    assert (place.folder / "a.txt").read_text() == "secret\nold\n"


async def test_a_refused_call_that_comes_again_under_its_id_is_looked_at_anew(place: Place) -> None:
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-old\n+new\n*** End Patch"
    call = function_call("apply_patch", {"input": patch}, call_id="same")
    (place.folder / "a.txt").write_text("old\n")
    async with place.toolset("apply_patch") as toolset:
        agent = place.agent(toolset, "responses", call, "refused", call, "done")
        await place.run(agent, decide(await place.run(agent), False))
        (place.folder / "a.txt").write_text("theirs\nold\n")
        await place.run(agent, decide(await place.run(agent, "again"), True))
    assert (place.folder / "a.txt").read_text() == "theirs\nnew\n"


async def test_another_command_under_the_same_call_id_is_asked_for_again(place: Place) -> None:
    calls = [function_call("shell_command", {"command": f"touch {name}"}, call_id="same") for name in ("one", "two")]
    async with place.toolset() as toolset:
        agent = place.agent(toolset, "responses", calls[0], "done", calls[1])
        done = await place.run(agent, decide(await place.run(agent), True))
        again = await place.run(agent, [*done.to_input_list()[:1], {"role": "user", "content": "again"}])
        assert len(again.interruptions) == 1
    assert os.listdir(place.folder) == ["one"]


async def test_an_interrupted_run_goes_on_in_another_program(place: Place) -> None:
    async with place.toolset() as toolset:
        stored = (await place.run(place.agent(toolset, "responses", TOUCH))).to_state().to_string()
    async with place.toolset() as toolset:
        agent = place.agent(toolset, "responses", "done")
        state = await place.sdk.RunState.from_string(agent, stored)
        [item] = state.get_interruptions()
        state.approve(item)
        assert (await place.run(agent, state)).final_output == "done"
    assert (place.folder / "made").exists()


async def test_a_tool_that_is_always_approved_is_not_asked_for_again(place: Place) -> None:
    two = function_call("shell_command", {"command": "touch two"})
    async with place.toolset() as toolset:
        agent = place.agent(toolset, "responses", TOUCH, two, "done")
        asked = await place.run(agent)
        state = asked.to_state()
        state.approve(asked.interruptions[0], always_approve=True)
        assert (await place.run(agent, state)).final_output == "done"
    assert sorted(os.listdir(place.folder)) == ["made", "two"]


class AskAction(Action):
    """Run what asks in the midst of its work."""


class AsksLate(ToolExecutor[AskAction, Any]):
    """Works, then asks."""

    async def __call__(self, action: AskAction, ctx: ToolContext) -> str:
        from ferrule.tools.effects import CommandEffect

        async def nothing(access: object) -> None:
            return None

        await ctx.run(CommandEffect(argv=("rm", "-r", "x"), cwd=ctx.cwd), nothing)
        return "ran"


@pytest.mark.parametrize("answer", [None, True])
async def test_what_is_asked_late_goes_to_on_approval(place: Place, answer: bool | None) -> None:
    asked: list[str] = []

    def on_approval(question: ExecApproval) -> bool:
        asked.append(question.text)
        return True

    late: Any = ToolDefinition(executor=AsksLate())
    async with place.toolset(late, on_approval=on_approval if answer else None) as toolset:
        result = await place.run(place.agent(toolset, "responses", function_call("ask", {}), "done"))
    assert result.interruptions == []
    assert asked == (["rm -r x"] if answer else [])
    assert ("rejected by user" in place.script.outputs()["call_1"]) is (answer is None)


async def test_each_script_of_a_native_call_has_its_approval(place: Place) -> None:
    async with place.toolset("native_shell") as toolset:
        agent = place.agent(toolset, "responses", shell_call(["pwd", "touch one", "touch two"]), "done")
        asked = await place.run(agent)
        assert len(asked.interruptions) == 1
        await place.run(agent, decide(asked, True))
    assert sorted(os.listdir(place.folder)) == ["one", "two"]
