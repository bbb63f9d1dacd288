"""The turn loop: what runs, in which order answers stand, and what a failure leaves behind."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import msgspec
import pytest

from ferrule import Agent, tool
from ferrule.config import ferrule_home
from ferrule.history.pairs import answered_id, settled
from ferrule.model.stream import Created, ItemDone, ModelError, ModelRequest, ResponseEvent
from ferrule.protocol.content import text_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import ItemCompleted, TurnAborted, TurnCompleted, TurnFailed
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, ResponseItem, make_item, read_item
from ferrule.protocol.settings import ProviderSettings
from ferrule.session.rollout import find_rollout, read_rollout
from ferrule.session.session import Session
from ferrule.session.turn import TurnLimit
from ferrule.session.turn_calls import MAX_CALLS, TOO_MANY_CALLS
from tests.session.models import InProcessModel, calls, says


@tool(read_only=True)
async def quick(text: str = "") -> str:
    return f"quick {text}"


@tool(read_only=True)
async def fails() -> str:
    raise ValueError("boom")


def outputs(session: Session) -> list[tuple[str, str]]:
    return [
        (item.view.call_id, text_of(item.view.output))
        for item in session.history.items
        if isinstance(item.view, FunctionCallOutput)
    ]


def kinds(session: Session) -> list[str]:
    return [str(item.view.__struct_config__.tag) for item in session.history.items]


async def test_the_model_is_asked_until_no_tool_ran(tmp_path: Path) -> None:
    model = InProcessModel([says("Let me look."), calls("quick", '{"text":"1"}')], [says("Done.")])
    async with await Agent(model, tools=[quick], cwd=tmp_path).open() as session:
        result = await session.run("go")
    assert result.text == "Done."
    assert result.usage.total_tokens == 30
    assert kinds(session)[-5:] == ["message", "message", "function_call", "function_call_output", "message"]
    assert outputs(session) == [("call_1", "quick 1")]


async def test_tools_start_before_the_stream_ended(tmp_path: Path) -> None:
    started, finished = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def mark() -> str:
        started.set()
        await finished.wait()
        return "ok"

    async def stream(request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        yield Created("r")
        yield ItemDone(ResponseItem(make_item(calls("mark")).raw, calls("mark")))
        await asyncio.wait_for(started.wait(), 30)
        finished.set()

    model = InProcessModel(stream, [says("Done.")])
    async with await Agent(model, tools=[mark], cwd=tmp_path).open() as session:
        assert (await session.run("go")).text == "Done."


async def test_s26_too_many_calls_of_one_response_are_answered_but_not_run(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(read_only=True)
    async def count(text: str) -> str:
        ran.append(text)
        return "ran"

    many = [calls("count", f'{{"text":"{number}"}}', f"call_{number}") for number in range(MAX_CALLS + 3)]
    model = InProcessModel(many, [calls("count", '{"text":"again"}', "call_again")], [says("Done.")])
    async with await Agent(model, tools=[count], cwd=tmp_path).open() as session:
        assert (await session.run("go")).text == "Done."
    assert MAX_CALLS == 256
    answers = outputs(session)
    assert [call_id for call_id, _ in answers] == [*(f"call_{number}" for number in range(MAX_CALLS + 3)), "call_again"]
    assert [text for _, text in answers] == ["ran"] * MAX_CALLS + [TOO_MANY_CALLS] * 3 + ["ran"]
    assert len(ran) == MAX_CALLS + 1 and ran[-1] == "again"


async def test_b152_every_call_of_a_crashing_batch_is_answered(tmp_path: Path) -> None:
    class Odd(BaseException):
        pass

    @tool(read_only=True)
    async def odd() -> str:
        raise Odd("strange")

    @tool(read_only=True)
    async def gives_up() -> str:
        raise asyncio.CancelledError

    @tool(read_only=True)
    async def nothing() -> None:
        return None

    names = ["quick", "fails", "odd", "gives_up", "nothing", "no_such_tool"]
    batch = [calls(name, call_id=f"c{index}") for index, name in enumerate(names)]
    model = InProcessModel(batch, [says("I saw it all.")])
    agent = Agent(model, tools=[quick, fails, odd, gives_up, nothing], cwd=tmp_path)
    async with await agent.open() as session:
        result = await session.run("go")
    assert result.text == "I saw it all."
    assert outputs(session) == [
        ("c0", "quick "),
        ("c1", "fails failed: ValueError: boom"),
        ("c2", "odd failed: Odd: strange"),
        ("c3", "aborted"),
        ("c4", "(no output)"),
        ("c5", "unsupported call: no_such_tool"),
    ]


async def test_b154_siblings_are_independent_and_answers_stand_in_call_order(tmp_path: Path) -> None:
    quick_done = asyncio.Event()

    @tool(read_only=True)
    async def slow() -> str:
        await quick_done.wait()
        return "slow"

    @tool(read_only=True)
    async def fast() -> str:
        quick_done.set()
        return "fast"

    batch = [calls("slow", call_id="a"), calls("fails", call_id="b"), calls("fast", call_id="c")]
    model = InProcessModel(batch, [says("ok")])
    async with await Agent(model, tools=[slow, fails, fast], cwd=tmp_path).open() as session:
        await session.run("go")
    assert outputs(session) == [("a", "slow"), ("b", "fails failed: ValueError: boom"), ("c", "fast")]


async def test_b154_an_interrupt_aborts_the_stalled_call_and_keeps_the_finished_ones(tmp_path: Path) -> None:
    stalled = asyncio.Event()

    @tool(read_only=True)
    async def stalls() -> str:
        stalled.set()
        await asyncio.Event().wait()
        return "never"

    events: list[object] = []
    batch = [calls("quick", call_id="a"), calls("stalls", call_id="b"), calls("quick", call_id="c")]
    model = InProcessModel(batch, [says("after")])
    agent = Agent(model, tools=[quick, stalls], cwd=tmp_path, on_event=events.append)
    async with await agent.open() as session:
        running = asyncio.create_task(session.run("go"))
        await stalled.wait()
        await until(lambda: sum(isinstance(event, ItemCompleted) for event in events) == 2)
        assert session.interrupt()
        result = await running
        assert result.aborted
        answers = dict(outputs(session))
        assert list(answers) == ["a", "b", "c"]
        assert answers["a"] == answers["c"] == "quick "
        assert answers["b"].startswith("aborted by user after ")
        assert any(isinstance(event, TurnAborted) for event in events)
        assert (await session.run("again")).text == "after"


async def test_cancelling_the_caller_ends_the_turn_and_history_is_whole(tmp_path: Path) -> None:
    stalled = asyncio.Event()

    @tool(read_only=True)
    async def stalls() -> str:
        stalled.set()
        await asyncio.Event().wait()
        return "never"

    model = InProcessModel([calls("stalls")])
    async with await Agent(model, tools=[stalls], cwd=tmp_path).open() as session:
        running = asyncio.create_task(session.run("go"))
        await stalled.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert [call_id for call_id, _ in outputs(session)] == ["call_1"]


async def test_a_broken_stream_is_asked_again_and_no_call_runs_twice(tmp_path: Path) -> None:
    runs: list[str] = []

    @tool
    async def counted(text: str) -> str:
        runs.append(text)
        return f"did {text}"

    call = FunctionCall(call_id="c1", name="counted", arguments='{"text":"once"}')

    async def breaks(request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        yield Created("r")
        yield ItemDone(ResponseItem(make_item(call).raw, call))
        raise ModelError("the stream ended without response.completed", retryable=True, retry_after_ms=0)

    second = FunctionCall(call_id="c2", name="counted", arguments='{"text":"twice"}')
    model = InProcessModel(breaks, [call, second], [says("Done.")])
    provider = ProviderSettings(name="test", base_url="http://127.0.0.1:9/v1", stream_max_retries=3)
    async with await Agent(model, tools=[counted], cwd=tmp_path, provider=provider).open() as session:
        assert (await session.run("go")).text == "Done."
    assert runs == ["once", "twice"]
    assert outputs(session) == [("c1", "did once"), ("c2", "did twice")]
    assert model.requests[1].interrupted_calls == {"c1"}


async def test_a_stream_that_always_breaks_ends_the_turn_with_its_error(tmp_path: Path) -> None:
    broken = ModelError("no answer", retryable=True, retry_after_ms=0)
    model = InProcessModel(broken, broken, broken)
    provider = ProviderSettings(name="test", base_url="http://127.0.0.1:9/v1", stream_max_retries=2)
    events: list[object] = []
    agent = Agent(model, tools=[quick], cwd=tmp_path, provider=provider, on_event=events.append)
    async with await agent.open() as session:
        with pytest.raises(ModelError, match="no answer"):
            await session.run("go")
    assert len(model.requests) == 3
    assert any(isinstance(event, TurnFailed) for event in events)


async def test_max_turns_stops_a_model_that_never_ends(tmp_path: Path) -> None:
    model = InProcessModel(*[[calls("quick", call_id=f"c{n}")] for n in range(5)])
    async with await Agent(model, tools=[quick], cwd=tmp_path, max_turns=2).open() as session:
        with pytest.raises(TurnLimit, match="stopped after 2 requests"):
            await session.run("go")
    assert len(model.requests) == 2
    assert [call for call, _ in outputs(session)] == ["c0", "c1"]


@pytest.mark.parametrize("cancel", ["interrupt", "caller"])
async def test_history_is_whole_however_often_the_user_interrupts(tmp_path: Path, cancel: str) -> None:
    entered, leaving, leave = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def lingers() -> str:
        try:
            entered.set()
            await asyncio.Event().wait()
        finally:
            leaving.set()
            await leave.wait()
        return ""

    batch = [calls("quick", call_id="a"), calls("lingers", call_id="b")]
    async with await Agent(InProcessModel(batch), tools=[quick, lingers], cwd=tmp_path).open() as session:
        running = asyncio.create_task(session.run("go"))

        def again() -> None:
            assert session.interrupt() if cancel == "interrupt" else running.cancel()

        await entered.wait()
        again()
        await leaving.wait()
        for _ in range(3):
            again()
            await asyncio.sleep(0)
        assert not running.done()
        leave.set()
        [ended] = await asyncio.gather(running, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError) if cancel == "caller" else ended.aborted  # type: ignore[union-attr]
        assert [call_id for call_id, _ in outputs(session)] == ["a", "b"]


async def test_closing_ends_everything_even_if_one_part_fails_to_end(tmp_path: Path) -> None:
    class Broken:
        revision = 0

        def register(self, builder: object) -> None:
            pass

        async def settled(self) -> None:
            pass

        async def aclose(self) -> None:
            raise OSError("no space left")

    class Closes(InProcessModel):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    model = Closes([calls("exec_command", '{"cmd": "sleep 60", "yield_time_ms": 250}')], [says("ok")])
    agent = Agent(model, tools=["exec_command"], cwd=tmp_path, sandbox="danger-full-access")
    session = await agent.open()
    session.toolset.add_live_source(Broken())
    await session.run("go")
    assert len(session.toolset.conversation.commands.sessions) == 1
    with pytest.raises(OSError, match="no space left"):
        await session.aclose()
    assert model.closed
    assert len(session.toolset.conversation.commands.sessions) == 0


async def test_one_turn_at_a_time(tmp_path: Path) -> None:
    entered = asyncio.Event()

    @tool(read_only=True)
    async def waits() -> str:
        entered.set()
        await asyncio.Event().wait()
        return ""

    async with await Agent(InProcessModel([calls("waits")]), tools=[waits], cwd=tmp_path).open() as session:
        running = asyncio.create_task(session.run("one"))
        await entered.wait()
        with pytest.raises(UsageError, match="a turn is running already"):
            await session.run("two")
        session.interrupt()
        assert (await running).aborted


async def test_the_history_sent_is_byte_for_byte_what_came(tmp_path: Path) -> None:
    raw = json.dumps({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc", "new_field": [1]})

    async def stream(request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        yield ItemDone(read_item(raw))
        yield ItemDone(ResponseItem(make_item(calls("quick")).raw, calls("quick")))

    model = InProcessModel(stream, [says("ok")])
    async with await Agent(model, tools=[quick], cwd=tmp_path).open() as session:
        await session.run("go")
    thought, call, output = model.requests[1].items[-3:]
    assert thought.raw == raw.encode()
    assert isinstance(call.view, FunctionCall) and isinstance(output.view, FunctionCallOutput)
    assert (output.view.call_id, output.view.output) == (call.view.call_id, "quick ")


async def test_b062_empty_arguments_stand_in_history_as_an_empty_object(tmp_path: Path) -> None:
    raw = b'{"type":"function_call","id":"fc","call_id":"c","name":"quick","arguments":"  ","caller":{"type":"direct"}}'

    async def stream(request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        yield ItemDone(read_item(raw))

    model = InProcessModel(stream, [says("ok")])
    async with await Agent(model, tools=[quick], cwd=tmp_path).open() as session:
        await session.run("go")
        assert outputs(session) == [("c", "quick ")]
    sent = json.loads(model.requests[1].items[-2].raw)
    assert sent == {**json.loads(raw), "arguments": "{}"}


async def test_a_finished_turn_tells_its_usage_and_last_words(tmp_path: Path) -> None:
    events: list[object] = []
    agent = Agent(InProcessModel([says("hello")]), tools=[], cwd=tmp_path, on_event=events.append)
    await agent.run("hi")
    [completed] = [event for event in events if isinstance(event, TurnCompleted)]
    assert completed.last_message == "hello"
    assert msgspec.to_builtins(completed.usage)["output_tokens"] == 5


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - several events may make it true
            await asyncio.sleep(0)


async def test_b154_a_crash_keeps_what_had_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is read as it stands while a sibling stalls, as after a kill."""
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    stalled = asyncio.Event()

    @tool(read_only=True)
    async def stalls() -> str:
        stalled.set()
        await asyncio.Event().wait()
        return "never"

    events: list[object] = []
    batch = [calls("stalls", call_id="a"), calls("quick", call_id="b"), calls("fails", call_id="c")]
    agent = Agent(InProcessModel(batch), tools=[quick, fails, stalls], cwd=tmp_path, on_event=events.append, store=True)
    async with await agent.open() as session:
        running = asyncio.create_task(session.run("go"))
        await stalled.wait()
        await until(lambda: sum(isinstance(event, ItemCompleted) for event in events) == 2)
        left = settled(read_rollout(find_rollout(ferrule_home(), session.id)).responses)
        session.interrupt()
        await running
    found = [(answered_id(item.view), text_of(item.view.output)) for item in left
             if isinstance(item.view, FunctionCallOutput)]  # fmt: skip
    assert found == [("a", "aborted"), ("b", "quick "), ("c", "fails failed: ValueError: boom")]
