"""`update_plan`: the user sees the plan; nothing else happens."""

import json

from ferrule.protocol.events import PlanStep, PlanUpdate
from ferrule.protocol.items import CustomToolCall, CustomToolCallOutput, ItemView
from tests.builtin.conftest import Benches

PLAN = [{"step": "Look", "status": "completed"}, {"step": "Mend", "status": "in_progress"}]


async def test_the_plan_is_told_and_touches_nothing(benches: Benches) -> None:
    bench = benches("update_plan")
    output = await bench.output("update_plan", explanation="Found it.", plan=PLAN)
    assert (output.text, output.success) == ("Plan updated", True)
    steps = (PlanStep("Look", "completed"), PlanStep("Mend", "in_progress"))
    assert bench.host.told(PlanUpdate) == [PlanUpdate(plan=steps, explanation="Found it.")]
    assert bench.host.effects == []


async def test_a_plan_may_come_as_a_freeform_call(benches: Benches) -> None:
    bench = benches("update_plan")

    async def answer(text: str) -> ItemView:
        return (await bench.answer(CustomToolCall(call_id="c", name="update_plan", input=text))).view

    assert await answer(f" {json.dumps({'plan': PLAN})}") == CustomToolCallOutput(call_id="c", output="Plan updated")
    assert [len(event.plan) for event in bench.host.told(PlanUpdate)] == [2]
    for wrong, words in (('{"plan": 3}', "plan"), ('{"plan"', "failed to parse"), ("- Look", "takes JSON arguments")):
        assert words in str(await answer(wrong))
    assert len(bench.host.told(PlanUpdate)) == 1


async def test_a_wrong_status_is_named_and_nothing_is_told(benches: Benches) -> None:
    bench = benches("update_plan")
    output = await bench.output("update_plan", plan=[{"step": "Look", "status": "done"}])
    assert output.success is False
    assert output.text.startswith("failed to parse function arguments: ")
    for word in ("plan[0].status", "pending", "in_progress", "completed", "done"):
        assert word in output.text
    assert bench.host.told(PlanUpdate) == []


async def test_a_missing_plan_is_named(benches: Benches) -> None:
    assert "plan" in await benches("update_plan").call("update_plan", explanation="why")
