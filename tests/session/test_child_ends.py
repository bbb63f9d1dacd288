"""How sub-agents end, are interrupted, and go on: with real rollouts, and everything at once."""

import asyncio
from typing import Any

import pytest

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.list_agents import ListAgentsExecutor
from ferrule.dispatch.front_end import Callbacks
from ferrule.protocol.content import InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import TurnCompleted
from ferrule.testing import ScriptedModel, function_call
from ferrule.tools.children import ChildStatus
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.events import ChildEvent
from tests.session.children import CHILD, Gate, Stage, agent_id, held_children, outputs, spawn, to, waiting


async def test_input_can_interrupt(stage: Stage) -> None:
    gate = Gate()
    script = [[spawn()], to("send_input", message="STOP THAT", interrupt=True), waiting(), "done"]
    with ScriptedModel(script) as server:
        server.play([function_call("hold", {})], "as you say", when=CHILD)
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            turn = asyncio.ensure_future(session.run("go"))
            await turn
        assert {"completed": "as you say"} in outputs(server)[2]["status"].values()


async def test_an_interrupt_of_the_parent_reaches_all(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel([[spawn(), spawn()], lambda request: [function_call("wait", {"ids": [agent_id(request, 1)]})],
                        "again"]) as server:  # fmt: skip
        server.play([function_call("hold", {})], [function_call("hold", {})], when=CHILD)
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            turn = asyncio.ensure_future(session.run("go"))
            await gate.began.wait()
            await asyncio.to_thread(server.wait_for_requests, 4)
            session.interrupt()
            assert (await turn).aborted
            children = list(session._dialogue.children._children.values())
            assert [(await child.wait()).state for child in children] == ["interrupted", "interrupted"]


async def test_an_interrupted_child_goes_on(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel(["one", to("resume_agent"), waiting(), "done"]) as server:
        server.play([function_call("hold", {})], "went on", when=CHILD)
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            await session.run("hello")
            child = await session.spawn(CHILD)
            await gate.began.wait()
            child.interrupt()
            assert (await child.wait()).state == "interrupted"
            server.add()
            status = await session._dialogue.children.resume(child.id)
            assert status.state == "running"
            assert await child.wait() == ChildStatus("completed", "went on")


async def test_a_closed_child_is_opened_again_from_its_rollout(stage: Stage) -> None:
    with ScriptedModel(["one"]) as server:
        server.play("first", "second", when=CHILD)
        async with await stage.open(server.base_url) as session:
            await session.run("hello")
            child = await session.spawn(CHILD)
            await child.wait()
            children = session._dialogue.children
            assert await children.close(child.id) == ChildStatus("completed", "first")
            assert child.status.state == "shutdown"
            with pytest.raises(RespondToModel, match="is closed"):
                await children.send(child.id, ())
            assert await children.resume(child.id) == ChildStatus("completed", "first")
            await children.send(child.id, (InputText("MORE"),))
            await children._children[child.id].wait()
            assert children._children[child.id].status == ChildStatus("completed", "second")
        assert "first" in server.last_request.raw.decode() and "MORE" in server.last_request.raw.decode()
        first = session.id
        async with await stage.open(server.base_url, resume=first) as session:
            assert await session._dialogue.children.resume(child.id) == ChildStatus("completed", "second")
        async with await stage.open(server.base_url) as stranger:
            with pytest.raises(RespondToModel, match="not found"):
                await stranger._dialogue.children.resume(child.id)


async def test_b149_finished_children_free_their_slots(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel([]) as server:
        server.play(*["ok"] * 6, when=CHILD)
        server.play(*[[function_call("hold", {})]] * 3, when="HOLD")
        async with await stage.open(server.base_url, limit=3, tools=[gate.tool]) as session:
            first = [await session.spawn(CHILD) for _ in range(3)]
            for child in first:
                await child.wait()
            second = [await session.spawn(CHILD) for _ in range(3)]
            assert [child.status for child in first] == [ChildStatus("completed", "ok")] * 3, "results are kept"
            for child in second:
                await child.wait()
            held = [await session.spawn("HOLD") for _ in range(3)]
            with pytest.raises(RespondToModel, match="at most 3 agents") as refused:
                await session.spawn(CHILD)
            assert all(child.id in str(refused.value) for child in held)
            children = session._dialogue.children
            assert await children.close(held[0].id) == ChildStatus("running")
            assert await children.close("nobody") == ChildStatus("not_found")
            await session.spawn("HOLD")


async def test_slots_are_not_taken_twice_by_spawns_at_once(stage: Stage) -> None:
    gate = Gate()
    with ScriptedModel([]) as server:
        server.play(*[[function_call("hold", {})]] * 4, when="HOLD")
        async with await stage.open(server.base_url, limit=2, tools=[gate.tool]) as session:
            done = await asyncio.gather(*(session.spawn("HOLD") for _ in range(4)), return_exceptions=True)
            assert sum(isinstance(one, RespondToModel) for one in done) == 2


async def test_a_child_that_is_yet_to_begin_is_reached(stage: Stage) -> None:
    with ScriptedModel([]) as server:
        server.play("read both", when=CHILD)
        async with await stage.open(server.base_url) as session:
            child = await session.spawn(CHILD)
            child.send((InputText("AND THIS"),))
            session.interrupt()
            assert await child.wait(10) == ChildStatus("interrupted") and not server.requests
            await session._dialogue.children.resume(child.id)
            assert await child.wait() == ChildStatus("completed", "read both")
        [asked] = server.requests
        assert CHILD in asked.user_text and "AND THIS" in asked.user_text and "interrupted" not in asked.user_text


async def test_what_is_said_as_a_turn_ends_is_answered(stage: Stage) -> None:
    with ScriptedModel([]) as server:
        server.play("first", "second", when=CHILD)
        async with await stage.open(server.base_url) as session:
            child = await session.spawn(CHILD)

            def late(event: Any) -> None:
                if isinstance(event, ChildEvent) and isinstance(event.event, TurnCompleted) and len(said) < 1:
                    said.append(event)
                    child.send((InputText("LATE"),))

            said: list[Any] = []
            with session.toolset.host.listening(late):
                assert await child.wait() == ChildStatus("completed", "second")
        assert "LATE" in server.last_request.user_text


async def test_no_message_that_interrupts_is_lost(stage: Stage) -> None:
    gate = Gate()
    with held_children(gate) as server:
        server.play("read", when="SECOND")
        server._player.lanes.reverse()
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            child = await session.spawn(CHILD)
            await gate.began.wait()
            child.send((InputText("FIRST"),), interrupt=True)
            child.send((InputText("SECOND"),), interrupt=True)
            assert await child.wait() == ChildStatus("completed", "read")
        assert "FIRST" in server.last_request.user_text and "SECOND" in server.last_request.user_text


async def test_a_close_that_is_cancelled_still_ends_the_session(stage: Stage) -> None:
    gate = Gate()
    with held_children(gate) as server:
        async with await stage.open(server.base_url, tools=[gate.tool]) as session:
            child = await session.spawn(CHILD)
            await gate.began.wait()
            closing = asyncio.create_task(session._dialogue.children.close(child.id))
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert child.status == ChildStatus("shutdown")
            await asyncio.wait_for(child.closed(), 10)
            spent = session._dialogue.children.new_usage()
            assert spent.input_tokens > 0, "what it has used is counted"


@pytest.mark.parametrize("ended", [True, False])
async def test_a_rollout_is_opened_once(stage: Stage, ended: bool) -> None:
    """Two resumes at once open one session; one that its parent's end overtakes is closed."""
    with ScriptedModel([]) as server:
        server.play("said", when=CHILD)
        session = await stage.open(server.base_url)
        try:
            child = await session.spawn(CHILD)
            await child.wait()
            children = session._dialogue.children
            await children.close(child.id)
            opened: list[Any] = []
            reached, go = asyncio.Event(), asyncio.Event()
            reopen = children._reopen_child

            async def slowly(agent_id: str, front_end: Callbacks) -> Any:
                reached.set()
                await go.wait()
                opened.append(await reopen(agent_id, front_end))
                return opened[-1]

            children._reopen_child = slowly
            resumes = [asyncio.create_task(children.resume(child.id)) for _ in range(1 if ended else 2)]
            await reached.wait()
            if ended:
                await session.aclose()
            go.set()
            if ended:
                with pytest.raises(RespondToModel, match="has ended"):
                    await resumes[0]
            else:
                assert await asyncio.gather(*resumes) == [ChildStatus("completed", "said")] * 2
            assert len(opened) == 1
        finally:
            await session.aclose()


async def test_a_resumed_child_is_what_it_was(stage: Stage) -> None:
    with ScriptedModel([], models=["m-1", "m-2"]) as server:
        server.play("first", "second", when=CHILD)
        async with await stage.open(server.base_url) as session:
            child = await session.spawn(CHILD, model="m-2", instructions="Be quick.")
            await child.wait()
            children = session._dialogue.children
            await children.close(child.id)
            await children.resume(child.id)
            await children.send(child.id, (InputText("MORE"),))
            await children._children[child.id].wait()
        first, second = server.requests
        assert second.body["model"] == "m-2" and second.body["instructions"] == first.body["instructions"]


async def test_the_parents_end_waits_for_a_child_that_is_being_closed(stage: Stage) -> None:
    ends: list[str] = []
    go = asyncio.Event()
    with ScriptedModel([]) as server:
        server.play("ok", when=CHILD)
        async with await stage.open(server.base_url) as session:
            child = await session.spawn(CHILD)
            await child.wait()
            assert child.session is not None
            child_end, model_end = child.session.aclose, session.model.aclose

            async def slowly() -> None:
                await go.wait()
                await child_end()
                ends.append("child")

            async def noted() -> None:
                ends.append("model")
                await model_end()

            child.session.aclose, session.model.aclose = slowly, noted  # type: ignore[method-assign]
            closing = asyncio.create_task(session._dialogue.children.close(child.id))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.2, go.set)
        await closing
    assert ends == ["child", "model"]


async def test_a_tool_that_the_parent_brought_is_closed_with_the_parent(stage: Stage) -> None:
    ends: list[str] = []

    class Held(ListAgentsExecutor):
        def close(self) -> None:
            ends.append("closed")

    mine = ToolDefinition(name="mine", description="d", executor=Held(), annotations=LOOKS)
    with ScriptedModel([[function_call("mine", {})], "done"]) as server:
        server.play([function_call("mine", {})], "used it", when=CHILD)
        async with await stage.open(server.base_url, tools=[mine]) as session:
            await session.run("go")
            child = await session.spawn(CHILD)
            assert await child.wait() == ChildStatus("completed", "used it")
            await session._dialogue.children.close(child.id)
            assert not ends
    assert ends == ["closed"]
