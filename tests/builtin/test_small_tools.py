"""`think`, `finish`, `task_tracker`, `update_plan`, `get_memory`."""

import json
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from ferrule import Agent
from ferrule.memory import MemoryStore
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import PlanStep, PlanUpdate
from ferrule.protocol.items import FunctionCallOutput
from tests.builtin.conftest import Benches
from tests.builtin.workbench import unaffected
from tests.session.models import InProcessModel, calls, says


async def test_think(benches: Benches) -> None:
    assert await benches("think").call("think", thought="why?") == "Your thought has been logged."


async def test_finish_ends_the_turn_with_its_message(tmp_path: Path) -> None:
    finish = calls("finish", '{"message": "All done."}')
    model = InProcessModel([says("Let me finish."), finish], [says("never asked for")])
    result = await Agent(model, cwd=tmp_path, tools=["finish"]).run("go")
    assert (result.text, len(model.requests)) == ("All done.", 1)


async def test_what_was_called_beside_finish_is_answered_too(tmp_path: Path) -> None:
    both = [calls("think", '{"thought": "x"}', "one"), calls("finish", '{"message": "Done."}', "two")]
    model = InProcessModel(both, [says("hello again")])
    async with await Agent(model, cwd=tmp_path, tools=["finish", "think"]).open() as session:
        assert (await session.run("go")).text == "Done."
        assert (await session.run("and now?")).text == "hello again"
        outputs = [item.view for item in model.requests[1].items if isinstance(item.view, FunctionCallOutput)]
        assert [output.call_id for output in outputs] == ["one", "two"]


async def test_a_finish_that_is_wrong_does_not_end(tmp_path: Path) -> None:
    model = InProcessModel([calls("finish", "{}")], [says("sorry")])
    assert (await Agent(model, cwd=tmp_path, tools=["finish"]).run("go")).text == "sorry"


async def test_task_tracker_keeps_the_list_and_shows_it(benches: Benches) -> None:
    bench = benches("task_tracker")
    assert await bench.call("task_tracker") == 'No task list found. Use the "plan" command to create one.'
    tasks = [
        {"title": "one", "status": "done"},
        {"title": "two", "notes": "soon", "status": "in_progress"},
        {"title": "c"},
    ]
    planned = await bench.call("task_tracker", command="plan", task_list=tasks)
    assert planned == "Task list has been updated with 3 item(s)."
    viewed = await bench.call("task_tracker", command="view")
    assert viewed == "# Task List\n\n1. ✅ one\n2. 🔄 two\n   soon\n3. ⏳ c"
    (event,) = bench.host.told(PlanUpdate)
    assert event.plan == (PlanStep("one", "completed"), PlanStep("two", "in_progress"), PlanStep("c", "pending"))
    wrong = await bench.output("task_tracker", command="plan", task_list=[{"title": "x", "status": "open"}])
    assert wrong.success is False and "status" in wrong.text


async def test_a_plan_is_told(benches: Benches) -> None:
    bench = benches("update_plan")
    plan = [{"step": "a", "status": "completed"}, {"step": "b", "status": "in_progress"}]
    assert await bench.call("update_plan", plan=plan, explanation="a is done") == "Plan updated"
    (event,) = bench.host.told(PlanUpdate)
    assert event.explanation == "a is done" and [step.status for step in event.plan] == ["completed", "in_progress"]
    assert (await bench.output("update_plan", plan=[{"step": "a", "status": "open"}])).success is False
    assert (await bench.output("update_plan")).success is False


async def test_get_memory(benches: Benches, tmp_path: Path) -> None:
    home = tmp_path / "ferrule"
    bench = benches("get_memory", state=msgspec.structs.replace(unaffected(tmp_path), home=str(home)))
    unknown = str(uuid4())
    assert await bench.call("get_memory", memory_id=unknown) == f"memory not found for memory_id={unknown}"
    assert not home.exists()
    memory = MemoryStore(str(home)).add("Use tabs – always.", "a session about Makefiles")
    text = await bench.call("get_memory", memory_id=memory.id.upper())
    assert text == (
        f'{{\n  "memory_id": "{memory.id}",\n  "memory_summary": "Use tabs – always.",\n'
        '  "trace_summary": "a session about Makefiles"\n}'
    )
    assert json.loads(text)["memory_id"] == memory.id
    bad = await bench.output("get_memory", memory_id="nonsense")
    assert bad.text.startswith("memory_id must be a valid thread id: ") and bad.success is False
    (home / "memory.sqlite").write_bytes(b"no database at all, only a file that is long enough to be looked at" * 20)
    assert "cannot be used" in await bench.call("get_memory", memory_id=memory.id)


def test_the_memory_store(tmp_path: Path) -> None:
    store = MemoryStore(str(tmp_path / "home"))
    assert store.all() == [] and store.get("x") is None and store.remove("x") is False
    first, second = store.add("one"), store.add("two", "trace")
    assert store.all() == [first, second] and store.get(second.id) == second
    assert store.add("ONE", memory_id=first.id).summary == "ONE" and len(store.all()) == 2
    assert store.remove(first.id) and [memory.summary for memory in store.all()] == ["two"]
    assert (tmp_path / "home" / "memory.sqlite").stat().st_mode & 0o777 == 0o600
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be used"):
        MemoryStore(str(tmp_path / "file")).add("x")
