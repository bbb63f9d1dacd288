"""Sessions that outgrow the window of a model, which counts what it is sent and refuses what is too long."""

import asyncio
import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest

from ferrule import tool
from ferrule.history.compaction import SUMMARY_PREFIX, SUMMARY_PROMPT
from ferrule.model.stream import ContextOverflow
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import ContextCompacted, Event, WarningEvent
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess
from ferrule.protocol.settings import CompactedBy, ModelSettings, ProviderSettings, Settings
from ferrule.protocol.specs import Wire
from ferrule.session.budget import BudgetSpent
from ferrule.session.compaction import CompactionFailed
from ferrule.session.hooks import HookInput, HookOutput, PythonHook
from ferrule.session.opening import open_session, resume_settings
from ferrule.session.session import Session
from ferrule.testing import ScriptedModel, Usage, function_call, hang_up, http_error, step
from ferrule.testing.request import Request
from ferrule.tools.events import ToolEvent
from tests.session.conversations import ALL_GIVEN

WIRES: list[Wire] = ["responses", "chat", "messages"]
TOO_LONG = http_error(400, "This model's maximum context length is exceeded.", code="context_length_exceeded")
PLAN = {"plan": [{"step": "measure the boat", "status": "in_progress"}]}


@tool(read_only=True)
async def read(size: int = 1_000) -> str:
    return "0123456789" * (size // 10)


class Boat:
    """A model with a window: it counts a token for four bytes of each request. `acts` are what it does, one for each
    request that is none for a summary; `summary` answers those. `sizes` are the requests that it took."""

    def __init__(self, window: int, *acts: Any, summary: Any = "SUMMED UP", counts: float = 1) -> None:
        self.window = window
        self.counts = counts
        self.sizes: list[int] = []
        self.summaries: list[Request] = []
        self.taken: list[Request] = []
        self.refused = 0
        self.acts = list(acts)
        self.summary = summary

    def __call__(self, request: Request) -> Any:
        size = round(len(request.raw) / 4 * self.counts)
        if size > self.window:
            self.refused += 1
            return TOO_LONG
        usage = Usage(size, 10)
        if request.user_text.endswith(SUMMARY_PROMPT):
            self.summaries.append(request)
            said = self.summary(len(self.summaries)) if callable(self.summary) else self.summary
            return step(said, usage=usage) if isinstance(said, str) else said
        self.sizes.append(size)
        self.taken.append(request)
        act = self.acts.pop(0) if self.acts else "done"
        return step(*(act if isinstance(act, list) else [act]), usage=usage)


class Watch:
    can_answer = False

    def __init__(self) -> None:
        self.events: list[Event | ToolEvent] = []

    def on_event(self, event: Event | ToolEvent) -> None:
        self.events.append(event)

    @property
    def compactions(self) -> list[ContextCompacted]:
        return [event for event in self.events if isinstance(event, ContextCompacted)]

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, WarningEvent)]


class Dock:
    """Opens sessions in a folder with an AGENTS.md."""

    def __init__(self, folder: Path) -> None:
        (folder / "AGENTS.md").write_text("Always speak of the harbour.\n")
        self.folder = folder
        self.watch = Watch()

    async def open(
        self,
        url: str,
        wire: Wire = "responses",
        *,
        window: int | None = None,
        by: CompactedBy | None = None,
        limit: int | None = None,
        hooks: tuple[PythonHook, ...] = (),
        resume: bool = False,
        budget: int | None = None,
    ) -> Session:
        provider = ProviderSettings(
            name="server", base_url=url, wire_api=wire, compaction=by, request_max_retries=0, stream_max_retries=0
        )
        settings = Settings(
            cwd=str(self.folder),
            home=str(self.folder / "home"),
            model=ModelSettings(
                model="m-1", context_window=window, auto_compact_token_limit=limit, max_output_tokens=1_000
            ),
            provider=provider,
            sandbox_policy=DangerFullAccess(),
            approval_policy=AskForApproval.NEVER,
            instructions="Be a sailor.",
            run_token_budget=budget,
        )
        stored = None
        if resume:
            settings, stored = resume_settings(settings, None, ALL_GIVEN)
        return await open_session(settings, self.watch, tools=[read, "update_plan"], stored=stored, hooks=hooks)


@pytest.fixture
def dock(tmp_path: Path) -> Dock:
    return Dock(tmp_path)


def reads(*sizes: int) -> list[list[Any]]:
    return [[function_call("read", {"size": size})] for size in sizes]


def unmarked(request: Request) -> Any:
    """What a request holds, without its marks for the cache."""
    return json.loads(json.dumps(request.items).replace(', "cache_control": {"type": "ephemeral"}', ""))


def once(request: Request, *texts: str) -> None:
    body = request.raw.decode()
    for text in texts:
        assert body.count(text) == 1, (text, body.count(text))


@pytest.mark.parametrize("wire", WIRES)
async def test_a_long_turn_stays_within_the_window(dock: Dock, wire: Wire) -> None:
    boat = Boat(8_000, [function_call("update_plan", PLAN)], *reads(*[6_000] * 20))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire, window=8_000) as session:
            result = await session.run("row the boat")
            assert result.text == "done" and len(result.tool_calls) == 21
            assert boat.refused == 0 and 2 <= len(dock.watch.compactions) <= 6
            assert all(event.tokens_before >= 0.6 * 8_000 > event.tokens_after for event in dock.watch.compactions)
            once(boat.taken[-1], "measure the boat", "Always speak of the harbour", "row the boat", "SUMMED UP")
            assert len(result.items) == 43, "the turn's items are all there, whatever the model still sees"
            assert result.usage.input_tokens > sum(boat.sizes)
            assert not server.failures
        compactions = len(dock.watch.compactions)
        async with await dock.open(server.base_url, wire, window=8_000, resume=True) as session:
            before = boat.taken[-1]
            await session.run("and back")
            assert unmarked(boat.taken[-1])[: len(before.items)] == unmarked(before)
            once(boat.taken[-1], "measure the boat", "Always speak of the harbour", "SUMMED UP")
            assert len(dock.watch.compactions) == compactions, "it goes on from the compacted state"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_refusal_as_too_long_is_answered_with_a_compaction(dock: Dock, wire: Wire) -> None:
    boat = Boat(4_000, *reads(4_000, 4_000, 4_000, 4_000, 4_000))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire) as session:
            result = await session.run("row the boat")
    assert result.text == "done" and boat.refused >= 1 and len(result.tool_calls) == 5
    once(boat.taken[-1], "row the boat", "SUMMED UP")


async def test_after_a_refusal_the_window_is_known(dock: Dock) -> None:
    boat = Boat(4_000, *reads(*[4_000] * 12))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url) as session:
            await session.run("row the boat")
    assert len(dock.watch.compactions) >= 3 and boat.refused == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_b145_a_request_for_a_summary_is_cut_until_it_fits(dock: Dock, wire: Wire) -> None:
    boat = Boat(4_000, *reads(2_000, 12_000))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire, window=4_000) as session:
            assert (await session.run("row the boat")).text == "done"
    assert boat.refused == 0 and len(boat.summaries) == 1
    assert "tokens truncated" in boat.summaries[0].raw.decode()
    once(boat.taken[-1], "row the boat", "Always speak of the harbour")


@pytest.mark.parametrize(
    ("summary", "words"),
    [
        (TOO_LONG, "maximum context length"),
        ("", "answered nothing"),
        (http_error(500, "broken"), "broken"),
        (hang_up(), "could not be compacted"),
    ],
)
async def test_b145_a_compaction_that_fails_leaves_history_as_it_was(dock: Dock, summary: Any, words: str) -> None:
    boat = Boat(4_000, *reads(4_000, 4_000, 4_000), summary=lambda count: summary)
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=4_000) as session:
            with pytest.raises(CompactionFailed, match=words):
                await session.run("row the boat")
            assert 1 <= len(boat.summaries) <= 3
            assert not dock.watch.compactions
            assert sum(item.view.__class__.__name__ == "FunctionCallOutput" for item in session.history.items) == 3
            boat.summary = "BETTER"
            assert (await session.run("go on")).text == "done"
            once(boat.taken[-1], "BETTER", "row the boat", "go on")


async def test_a_summary_that_is_empty_once_is_asked_for_again(dock: Dock) -> None:
    boat = Boat(4_000, *reads(4_000, 4_000, 4_000), summary=lambda count: "" if count == 1 else "SUMMED UP")
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=4_000) as session:
            assert (await session.run("row the boat")).text == "done"
    assert len(boat.summaries) == 2


@pytest.mark.parametrize("window", [8_000, None])
async def test_a_session_goes_on_with_a_far_smaller_window(dock: Dock, window: int | None) -> None:
    boat = Boat(100_000, *reads(*[20_000] * 9))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url) as session:
            await session.run("row the boat")
        boat.window = 8_000
        async with await dock.open(server.base_url, window=window, resume=True) as session:
            assert (await session.run("and back")).text == "done"
    once(boat.taken[-1], "row the boat", "SUMMED UP", "and back")


async def test_a_refusal_below_the_window_is_believed(dock: Dock) -> None:
    boat = Boat(4_000, *reads(*[4_000] * 12))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=100_000) as session:
            assert (await session.run("row the boat")).text == "done"
    assert len(dock.watch.compactions) >= 3 and boat.refused == 1


def picture(size: int, shade: int = 0) -> str:
    """A picture of `size` bytes that no server reads."""
    return f"data:image/png;base64,{base64.b64encode(bytes([shade]) * size).decode()}"


@pytest.mark.parametrize("wire", WIRES)
async def test_b146_images_beyond_the_limit_are_not_in_the_request_for_a_summary(dock: Dock, wire: Wire) -> None:
    boat = Boat(10**9)
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire) as session:
            await session.run("look", images=[picture(5_000_000, shade) for shade in range(4)])
            await session.run("and on")
            assert await session.compact() is not None
    assert len(boat.summaries[0].raw) < 21 * 1024 * 1024


@pytest.mark.parametrize("wire", WIRES)
async def test_b146_a_refused_image_does_not_stand_in_a_summarys_way(dock: Dock, wire: Wire) -> None:
    refused = http_error(400, "Invalid image.", code="invalid_image")
    boat: Boat = Boat(10**6, summary=lambda count: refused if b"base64" in boat.summaries[-1].raw else "SUMMED UP")
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire) as session:
            await session.run("look", images=[picture(3_000)])
            assert await session.compact() is not None
    assert len(boat.summaries) == 2


@pytest.mark.parametrize("wire", WIRES)
async def test_a_server_that_wants_tools_beside_calls_gets_them(dock: Dock, wire: Wire) -> None:
    refused = http_error(400, "The `tools` param must be passed, since the conversation has tool calls.")
    boat: Boat = Boat(
        10**6, *reads(10), summary=lambda count: "SUMMED UP" if boat.summaries[-1].body.get("tools") else refused
    )
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire) as session:
            await session.run("row the boat")
            assert await session.compact() is not None
    none = {"type": "none"} if wire == "messages" else "none"
    assert len(boat.summaries) == 2 and boat.summaries[1].body["tool_choice"] == none


async def test_what_cannot_be_made_smaller_is_refused_once(dock: Dock) -> None:
    with ScriptedModel(boat := Boat(2_000)) as server:
        async with await dock.open(server.base_url, window=2_000) as session:
            with pytest.raises(CompactionFailed, match="model_context_window"):
                await session.run("row " * 3_000)
    assert not boat.taken and not boat.summaries and not boat.refused


async def test_a_refusal_that_nothing_helps_ends_the_turn(dock: Dock) -> None:
    with ScriptedModel(boat := Boat(500)) as server:
        async with await dock.open(server.base_url) as session:
            with pytest.raises(ContextOverflow, match="send less at once"):
                await session.run("row " * 3_000)
    assert boat.refused == 1


async def test_a_server_that_never_takes_the_history_is_asked_three_times_more(dock: Dock) -> None:
    boat = Boat(100_000, *reads(8_000, 8_000), summary=lambda count: "shorter and shorter " * 10 * (5 - count))
    refusals = 0

    def server_of(request: Request) -> Any:
        nonlocal refusals
        if len(boat.taken) == 2 and not request.user_text.endswith(SUMMARY_PROMPT):
            refusals += 1
            return TOO_LONG
        return boat(request)

    with ScriptedModel(server_of) as server:
        async with await dock.open(server.base_url) as session:
            with pytest.raises(ContextOverflow):
                await session.run("row the boat")
    assert refusals == 4 and len(boat.summaries) <= 4


async def test_compaction_that_cannot_shrink_much_does_not_loop(dock: Dock) -> None:
    """The user's own words fill the window to nine tenths, and nothing else is there to leave out."""
    boat = Boat(4_000, "ok", "ok", *reads(10, 10, 10))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=4_000) as session:
            await session.run("hello")
            left = 4_000 - boat.sizes[0]
            await session.run("x" * round(left * 4 * 0.85))
            assert (await session.run("now read")).text == "done"
    assert boat.refused == 0 and len(boat.summaries) <= 2 and len(boat.taken) == 6


@pytest.mark.parametrize("counts", [0.6, 1.6])
async def test_the_server_is_believed_about_its_tokens(dock: Dock, counts: float) -> None:
    boat = Boat(8_000, *reads(*[6_000] * 12), [function_call("read", {"size": 60_000})], counts=counts)
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=8_000) as session:
            await session.run("row the boat")
    assert boat.refused == 0 and dock.watch.compactions
    assert all(event.tokens_after > 300 for event in dock.watch.compactions)


@pytest.mark.parametrize("wire", WIRES)
async def test_compaction_on_demand(dock: Dock, wire: Wire) -> None:
    boat = Boat(100_000, [function_call("update_plan", PLAN)], *reads(100), "first", "second")
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire) as session:
            with pytest.raises(UsageError, match="nothing to compact"):
                await session.compact()
            await session.run("row the boat")
            done = await session.compact()
            assert done is not None and session.usage.input_tokens > 0
            with pytest.raises(UsageError, match="already"):
                await _both(session)
            assert (await session.run("go on")).text == "second"
            last = boat.taken[-1]
            once(last, "measure the boat", "Always speak of the harbour", "SUMMED UP", "row the boat", "go on")
            texts = [json.dumps(item) for item in last.items]
            order = [next(at for at, text in enumerate(texts) if word in text) for word in
                     ("harbour", "row the boat", "SUMMED UP", "measure the boat", "go on")]  # fmt: skip
            assert order == sorted(order)
            assert "0123456789" not in last.raw.decode()


async def _both(session: Session) -> None:
    first = asyncio.ensure_future(session.compact())
    await asyncio.sleep(0)
    try:
        await session.run("meanwhile")
    finally:
        await first


async def test_running_commands_and_their_numbers_are_told(dock: Dock) -> None:
    boat = Boat(100_000, [function_call("exec_command", {"cmd": "echo up; sleep 600", "yield_time_ms": 250})])
    with ScriptedModel(boat) as server:
        session = await dock.open(server.base_url)
        await session.aclose()
        settings = session.settings
        async with await open_session(settings, dock.watch, tools=["exec_command", "write_stdin"]) as session:
            await session.run("row the boat")
            await session.compact()
            await session.run("go on")
    [number] = re.findall(r"session ID (\d+)", boat.taken[1].raw.decode())
    assert f"session {number}: echo up; sleep 600" in boat.taken[-1].raw.decode()


async def test_a_hook_that_blocks_does_not_end_a_turn_that_still_fits(dock: Dock) -> None:
    hook = PythonHook("PreCompact", lambda told: HookOutput(decision="block", reason="not now"))
    boat = Boat(10_000, *reads(10_000, 10_000, 10_000))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=10_000, hooks=(hook,)) as session:
            await session.run("row the boat")
            boat.acts += reads(20_000)
            with pytest.raises(CompactionFailed, match="model_context_window"):
                await session.run("on and on")
    assert not boat.summaries


async def test_hooks_see_and_block_compactions(dock: Dock) -> None:
    seen: list[HookInput] = []
    answers: list[HookOutput | None] = [HookOutput(decision="block", reason="not now"), None]

    def before(told: HookInput) -> HookOutput | None:
        seen.append(told)
        return answers.pop(0)

    hooks = (
        PythonHook("PreCompact", before, matcher="manual"),
        PythonHook("PreCompact", before, matcher="auto"),
        PythonHook("PostCompact", seen.append),
    )
    with ScriptedModel(Boat(100_000, *reads(100))) as server:
        async with await dock.open(server.base_url, hooks=hooks) as session:
            await session.run("row the boat")
            with pytest.raises(CompactionFailed, match="PreCompact hook blocked it: not now"):
                await session.compact()
            await session.compact()
    assert [(told.hook_event_name, told.trigger, told.compact_summary) for told in seen] == [
        ("PreCompact", "manual", None), ("PreCompact", "manual", None), ("PostCompact", "manual", "SUMMED UP"),
    ]  # fmt: skip


async def test_an_interrupt_during_a_compaction_leaves_history_as_it_was(dock: Dock) -> None:
    boat = Boat(100_000, *reads(100), summary=lambda count: step("late", delay=60))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url) as session:
            await session.run("row the boat")
            before = session.history.items
            running = asyncio.ensure_future(session.compact())
            await asyncio.to_thread(server.wait_for_requests, 3)
            assert session.interrupt()
            assert await running is None
            assert session.history.items == before


async def test_an_interrupt_after_a_compaction_loses_none_of_its_account(dock: Dock) -> None:
    told = asyncio.Event()

    async def hang(seen: HookInput) -> None:
        told.set()
        await asyncio.Event().wait()

    boat = Boat(4_000, *reads(4_000, 4_000, 4_000))
    with ScriptedModel(boat) as server:
        hooks = (PythonHook("PostCompact", hang),)
        async with await dock.open(server.base_url, window=4_000, hooks=hooks) as session:
            running = asyncio.ensure_future(session.run("row the boat"))
            await told.wait()
            assert session.interrupt()
            result = await running
    assert result.aborted and len(result.items) == 6
    assert result.usage.input_tokens > sum(boat.sizes), "the summary's tokens count"


async def test_a_budget_that_the_summary_uses_up_ends_the_turn_before_the_next_request(dock: Dock) -> None:
    boat = Boat(4_000, *reads(4_000, 4_000, 4_000))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=4_000, budget=5_000) as session:
            with pytest.raises(BudgetSpent):
                await session.run("row the boat")
    assert len(boat.taken) == 3 and len(boat.summaries) == 1 and len(dock.watch.compactions) == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_a_response_of_many_calls_is_summarised_in_part(dock: Dock, wire: Wire) -> None:
    boat = Boat(16_000, [call for [call] in reads(*[300] * 256)])
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, wire, window=16_000) as session:
            assert (await session.run("row the boat")).text == "done"
    assert boat.refused == 0 and len(boat.summaries[0].raw) > 16_000 and not server.failures


@pytest.mark.parametrize("limit", [1, 10**9])
async def test_the_users_limit_is_kept_within_reason(dock: Dock, limit: int) -> None:
    boat = Boat(10_000, *reads(*[2_000] * 25))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=10_000, limit=limit) as session:
            await session.run("row the boat")
    assert boat.refused == 0 and dock.watch.compactions
    assert all(event.tokens_before >= 6_000 for event in dock.watch.compactions)


@contextmanager
def with_compact(server: ScriptedModel, answer: Callable[[dict[str, Any]], Any]) -> Iterator[tuple[str, list[Any]]]:
    """A server that compacts by itself and passes everything else on."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path.endswith("/responses/compact"):
                asked.append(json.loads(body))
                status, kind, data = 200, "application/json", json.dumps(answer(asked[-1])).encode()
            else:
                request = HttpRequest(f"http://127.0.0.1:{server.port}{self.path}", body, dict(self.headers))
                with urlopen(request) as passed:
                    status, kind, data = passed.status, passed.headers["content-type"], passed.read()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}/v1", asked
        finally:
            proxy.shutdown()
            thread.join()


def blob(request: dict[str, Any]) -> dict[str, Any]:
    users = [item for item in request["input"] if item.get("role") == "user"]
    made = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAblob"}
    return {"id": "resp_9", "object": "response.compaction", "output": [*users, made],
            "usage": {"input_tokens": 70, "output_tokens": 7, "total_tokens": 77}}  # fmt: skip


async def test_the_server_compacts_where_the_provider_says_so(dock: Dock) -> None:
    boat = Boat(8_000, [function_call("update_plan", PLAN)], *reads(*[7_000] * 5))
    with ScriptedModel(boat) as server, with_compact(server, blob) as (url, asked):
        async with await dock.open(url, window=8_000, by="endpoint") as session:
            result = await session.run("row the boat")
            assert len(asked) == len(dock.watch.compactions) >= 1 and not boat.summaries
            assert set(asked[0]) == {"model", "instructions", "input"} and asked[0]["model"] == "m-1"
            once(boat.taken[-1], "gAAAblob", "measure the boat", "Always speak of the harbour", "row the boat")
            assert result.usage.input_tokens >= sum(boat.sizes)
        async with await dock.open(url, window=8_000, by="endpoint", resume=True) as session:
            await session.run("go on")
            once(boat.taken[-1], "gAAAblob", "row the boat")


@pytest.mark.parametrize("answer", [{"output": []}, [], {"output": "x"}])
async def test_a_server_that_does_not_compact_is_replaced_by_a_summary(dock: Dock, answer: Any) -> None:
    boat = Boat(8_000, *reads(*[7_000] * 5))
    with ScriptedModel(boat) as server, with_compact(server, lambda request: answer) as (url, asked):
        async with await dock.open(url, window=8_000, by="endpoint") as session:
            assert (await session.run("row the boat")).text == "done"
    assert len(asked) == len(boat.summaries) >= 1
    assert any("summarised here instead" in text for text in dock.watch.warnings)


async def test_the_server_is_asked_to_compact_in_the_middle_of_an_answer(dock: Dock) -> None:
    made = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAblob"}
    boat = Boat(
        20_000, [function_call("update_plan", PLAN)], *reads(3_000), [made, function_call("read", {"size": 50})], "done"
    )
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=20_000, by="context_management") as session:
            result = await session.run("row the boat")
            assert result.text == "done" and len(result.tool_calls) == 3 and not boat.summaries
        body = boat.taken[0].body
        assert body["context_management"] == [{"type": "compaction", "compact_threshold": 17_000}]
        last = boat.taken[-1].raw.decode()
        once(boat.taken[-1], "gAAAblob", "measure the boat", "Always speak of the harbour")
        assert "0123456789" * 100 not in last and "0123456789" in last
        async with await dock.open(server.base_url, window=20_000, by="context_management", resume=True) as session:
            await session.run("go on")
            once(boat.taken[-1], "gAAAblob", "measure the boat", "Always speak of the harbour")


def test_what_the_summary_says_of_itself() -> None:
    assert "summary" in SUMMARY_PREFIX and "Do not call tools" in SUMMARY_PROMPT


async def test_the_tokens_of_summaries_that_came_to_nothing_count(dock: Dock) -> None:
    boat = Boat(100_000, *reads(4_000), summary=lambda count: step("", usage=Usage(70_000, 10)))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, budget=1_000_000) as session:
            await session.run("row the boat")
            before = session.usage.input_tokens
            with pytest.raises(CompactionFailed):
                await session.compact()
            assert session.usage.input_tokens == before + 3 * 70_000
            assert session._dialogue.budget.usage.input_tokens == session.usage.input_tokens
    boat = Boat(4_000, *reads(4_000, 4_000, 4_000), summary=lambda count: step("", usage=Usage(70_000, 10)))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, window=4_000) as session:
            with pytest.raises(CompactionFailed):
                await session.run("row the boat")
            assert session.usage.input_tokens == sum(boat.sizes) + 3 * 70_000


async def test_a_budget_ends_the_tries_for_a_summary(dock: Dock) -> None:
    boat = Boat(100_000, *reads(4_000), summary=lambda count: step("", usage=Usage(70_000, 10)))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, budget=100_000) as session:
            await session.run("row the boat")
            before = session.history.items
            with pytest.raises(BudgetSpent):
                await session.compact()
            assert session.history.items == before
    assert len(boat.summaries) == 2


async def test_a_summary_whose_server_counts_nothing_is_estimated(dock: Dock) -> None:
    boat = Boat(100_000, *reads(4_000), summary=lambda count: step("short", usage=Usage(0, 0)))
    with ScriptedModel(boat) as server:
        async with await dock.open(server.base_url, budget=100_000) as session:
            await session.run("row the boat")
            before = session.usage.input_tokens
            await session.compact()
            assert session.usage.input_tokens > before + 1_000
