"""Items of a provider that wait for somebody: run here, asked of the user, or answered that nobody does it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule import Agent, ToolContext, ToolHandler, ToolInvocation, ToolKind, ToolOutput, Toolset
from ferrule.config.keys import ConfigTable
from ferrule.config.resolve import settings_of
from ferrule.history.pairs import answered_id, called_id
from ferrule.protocol.content import InputImage
from ferrule.protocol.errors import Fatal, UsageError
from ferrule.protocol.events import Event, ExecApproval, ItemCompleted, ItemStarted, WarningEvent
from ferrule.protocol.hosted import hosted_tool
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, read_item
from ferrule.protocol.permissions import ReviewDecision
from ferrule.protocol.settings import ProviderSettings
from ferrule.protocol.specs import (
    AutoContainer,
    ComputerUsePreview,
    ContainerAuto,
    RawTool,
    RemoteMcp,
    ShellTool,
    ToolSpec,
    WebSearch,
    Wire,
    spec_name,
)
from ferrule.session.opening import open_session
from ferrule.session.sources import ToolLike
from ferrule.testing import ScriptedModel
from ferrule.testing.plain import as_objects, as_text
from ferrule.tools.events import ToolEvent
from ferrule.tools.registry import NATIVE, ToolRegistryBuilder
from tests.session.conversations import Place, function_call, items, kinds, said, sent, thought
from tests.session.models import InProcessModel, calls, says

Fields = dict[str, Any]

SHELL: Fields = {
    "type": "shell_call", "id": "sh_1", "call_id": "call_sh", "status": "completed",
    "action": {"commands": ["touch ran-here"]},
}  # fmt: skip
OUTPUT: Fields = {
    "type": "shell_call_output", "id": "sho_1", "call_id": "call_sh",
    "output": [{"stdout": "there", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
}  # fmt: skip
REFERENCE = {"environment": {"type": "container_reference", "container_id": "c1"}}
CLICK: Fields = {
    "type": "computer_call", "id": "cu_1", "call_id": "call_cu", "status": "completed",
    "action": {"type": "click", "x": 1, "y": 2},
    "pending_safety_checks": [{"id": "sc_1", "code": "malicious", "message": "look out"}],
}  # fmt: skip
APPROVAL: Fields = {
    "type": "mcp_approval_request", "id": "mcpr_1", "server_label": "docs", "name": "search", "arguments": '{"q":"x"}',
}  # fmt: skip
REMOTE = RemoteMcp(server_url="https://mcp.example.com", server_label="docs")


def agent(server: ScriptedModel, wire: Wire, folder: Path, tools: Sequence[ToolLike], **more: Any) -> Agent:
    provider = ProviderSettings(
        name="server", base_url=server.base_url, wire_api=wire, request_max_retries=0, stream_max_retries=0
    )
    return Agent("gpt-5", provider=provider, cwd=folder, sandbox="danger-full-access", tools=tools, **more)


def answers(server: ScriptedModel, number: int = -1) -> dict[str | None, Fields]:
    """The outputs in a request, by the ids of their calls."""
    found = sent(server, number)
    return {answered_id(read_item(json.dumps(item)).view): item for item in found if "_call_output" in item["type"]}


def open_ids(server: ScriptedModel, number: int = -1) -> set[str]:
    """What waits for an answer in a request, and has none."""
    views = [read_item(json.dumps(item)).view for item in sent(server, number)]
    called = {called_id(view) for view in views} - {None}
    return {str(one) for one in called - {answered_id(view) for view in views}}


# --- F11


@pytest.mark.parametrize("extra", [REFERENCE, {"environment": {"type": "container_auto"}}, {}, {"environment": None}])
async def test_f11_what_the_provider_ran_is_not_run_here(tmp_path: Path, extra: Fields) -> None:
    place = Place(tmp_path)
    with ScriptedModel([items(SHELL | extra, OUTPUT, said("done")), items(said("more"))]) as server:
        await place.talk(server, "responses", "go", "and?", model="gpt-5", tools=[ShellTool()])
    assert not (tmp_path / "ran-here").exists()
    assert len(server.requests) == 2
    there = [item for item in sent(server) if item.get("call_id") == "call_sh"]
    assert kinds(there) == ["shell_call", "shell_call_output"] and there[1]["output"][0]["stdout"] == "there"


async def test_f11_nor_after_resume(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with ScriptedModel([items(SHELL, OUTPUT, said("done")), items(said("more"))]) as server:
        await place.talk(server, "responses", "go", model="gpt-5", tools=[ShellTool()])
        await place.talk(server, "responses", "and?", model="gpt-5", tools=[ShellTool()], resume=True)
    there = [item for item in sent(server) if item.get("call_id") == "call_sh"]
    assert kinds(there) == ["shell_call", "shell_call_output"] and there[1]["output"][0]["stdout"] == "there"


async def test_f11_a_local_call_without_a_word_on_where_is_run_here(tmp_path: Path) -> None:
    with ScriptedModel([items(SHELL), items(said("done"))]) as server:
        await Place(tmp_path).talk(server, "responses", "go", model="gpt-5", tools=[ShellTool()])
    assert (tmp_path / "ran-here").exists()
    assert answers(server)["call_sh"]["output"][0]["outcome"] == {"type": "exit", "exit_code": 0}


async def test_f11_a_function_that_the_provider_answered_is_left_to_it(tmp_path: Path) -> None:
    """Gateways run tools of their own and send call and answer."""
    called = function_call("call_g", "gateway_search")
    answer = {"type": "function_call_output", "id": "fco", "call_id": "call_g", "output": "found there"}
    with ScriptedModel([items(called, answer, said("done"))]) as server:
        await Place(tmp_path).talk(server, "responses", "go")
        assert len(server.requests) == 1
    looked = function_call("call_l")
    theirs = {"type": "function_call_output", "id": "fco", "call_id": "call_l", "output": "found there"}
    with ScriptedModel([items(looked, theirs, said("done")), items(said("more"))]) as server:
        await Place(tmp_path).talk(server, "responses", "go", "and?")
    assert [item["output"] for item in sent(server) if item["type"] == "function_call_output"] == ["found there"]


def test_f11_a_toolset_runs_nothing_that_ran_there(tmp_path: Path) -> None:
    with Toolset.for_model("gpt-5", cwd=tmp_path, sandbox="danger-full-access", tools=[ShellTool()]) as tools:
        assert tools.run_sync([SHELL | REFERENCE]) == []
        assert tools.run_sync([SHELL | REFERENCE, OUTPUT]) == []
        assert tools.run_sync([SHELL, OUTPUT]) == []
        assert not (tmp_path / "ran-here").exists()
        [answer] = tools.run_sync([SHELL])
    assert answer["type"] == "shell_call_output" and (tmp_path / "ran-here").exists()


# --- F12

PATCH: Fields = {"type": "apply_patch_call", "id": "ap", "call_id": "call_ap"}
LOCAL: Fields = {"type": "local_shell_call", "id": "ls_1", "action": {"type": "exec", "command": ["ls"], "env": {}}}
UNKNOWN: Fields = {"type": "teleport_call", "id": "tp_1", "call_id": "call_tp", "status": "completed", "to": "mars"}


@pytest.mark.parametrize(
    ("item", "call_id"),
    [
        (CLICK, "call_cu"),
        (APPROVAL, "mcpr_1"),
        (SHELL, "call_sh"),
        (PATCH | {"operation": {"type": "delete_file", "path": "x"}}, "call_ap"),
        (PATCH | {"operation": {"type": "move_file"}}, "call_ap"),
        (LOCAL | {"call_id": "call_ls"}, "call_ls"),
        (LOCAL | {"action": {"type": "dance"}}, "ls_1"),
        ({"type": "custom_tool_call", "id": "ct", "call_id": "call_ct", "name": "nobody", "input": "x"}, "call_ct"),
        (function_call("call_f", "nobody"), "call_f"),
        (UNKNOWN, "call_tp"),
    ],
)  # fmt: skip
async def test_f12_whatever_waits_is_answered_once_and_the_turn_goes_on(
    tmp_path: Path, item: Fields, call_id: str
) -> None:
    with ScriptedModel([items(thought(), item), items(said("done"))]) as server:
        await Place(tmp_path).talk(server, "responses", "go", model="gpt-5")
    assert len(server.requests) == 2
    views = [answered_id(read_item(json.dumps(one)).view) for one in sent(server)]
    assert views.count(call_id) == 1 and not open_ids(server)


async def test_f12_a_session_that_was_stored_without_an_answer_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with ScriptedModel([items(CLICK), items(said("done")), items(said("more"))]) as server:
        await place.talk(server, "responses", "go", model="gpt-5")
        [file] = (tmp_path / "home").rglob("*.jsonl")
        lines = [line for line in file.read_text().splitlines() if "computer_call_output" not in line]
        file.write_text("\n".join(lines) + "\n")
        await place.talk(server, "responses", "and?", model="gpt-5", resume=True)
    assert not open_ids(server) and "call_cu" in answers(server)


async def test_f12_a_click_is_answered_with_a_picture_and_in_words(tmp_path: Path) -> None:
    with ScriptedModel([items(CLICK), items(said("done"))]) as server:
        await Place(tmp_path).talk(server, "responses", "go", model="gpt-5")
    answer = answers(server)["call_cu"]
    assert answer["output"]["type"] == "computer_screenshot"
    assert answer["output"]["image_url"].startswith("data:image/png;base64,")
    assert "acknowledged_safety_checks" not in answer  # nobody was asked
    words = sent(server)[-1]
    assert words["role"] == "developer" and "nobody answers a computer_call here" in words["content"][0]["text"]


async def test_f12_somebody_can_bring_the_screen(tmp_path: Path) -> None:
    class Screen(ToolHandler):
        async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
            action = json.loads(getattr(invocation.payload, "arguments"))["action"]  # noqa: B009 - a native payload
            return ToolOutput((InputImage(image_url=f"data:image/png;base64,{action['x']}"),))

    class Screens:
        revision = 0

        def register(self, builder: ToolRegistryBuilder) -> None:
            builder.register_handler("computer", Screen(), namespace=NATIVE)

    screen = ComputerUsePreview(display_width=800, display_height=600, environment="browser")
    with ScriptedModel([items(CLICK), items(said("done"))]) as server:
        async with await agent(server, "responses", tmp_path, [screen]).open() as session:
            session.toolset.add_source(Screens())
            assert (await session.run("go")).text == "done"
    assert answers(server)["call_cu"]["output"]["image_url"] == "data:image/png;base64,1"
    assert sent(server)[-1]["type"] == "computer_call_output"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "image_generation_call", "id": "ig_1", "status": "in_progress", "result": None},
        {"type": "web_search_call", "id": "ws_1", "status": "in_progress", "action": {"type": "search", "query": "x"}},
        {"type": "code_interpreter_call", "id": "ci_1", "status": "interpreting", "code": "1", "container_id": "c"},
    ],
)
async def test_f12_a_hosted_call_that_nobody_ended_is_told_and_not_sent_back(tmp_path: Path, item: Fields) -> None:
    with ScriptedModel([items(thought(), item), items(said("done"))]) as server:
        await Place(tmp_path).talk(server, "responses", "go", model="gpt-5")
    assert len(server.requests) == 2
    assert item["type"] not in kinds(sent(server)) and "reasoning" not in kinds(sent(server))
    assert f"Nobody runs the {item['type']}" in sent(server)[-1]["content"][0]["text"]


async def test_f12_a_picture_that_came_ends_the_turn(tmp_path: Path) -> None:
    """OpenAI's own picture ends as `generating`."""
    item = {"type": "image_generation_call", "id": "ig_1", "status": "generating", "result": "aGk="}
    with ScriptedModel([items(item), items(said("more"))]) as server:
        await Place(tmp_path).talk(server, "responses", "go", "and?", model="gpt-5")
    assert len(server.requests) == 2 and "image_generation_call" in kinds(sent(server))


# --- F13


@pytest.mark.parametrize(("decision", "approve"), [(ReviewDecision.APPROVED, True), (ReviewDecision.DENIED, False)])
async def test_f13_the_user_is_asked_and_the_provider_answered(
    tmp_path: Path, decision: ReviewDecision, approve: bool
) -> None:
    asked: list[ExecApproval] = []

    def decide(question: ExecApproval) -> ReviewDecision:
        asked.append(question)
        return decision

    with ScriptedModel([items(APPROVAL), items(said("done"))]) as server:
        made = agent(server, "responses", tmp_path, [REMOTE], approval_policy="on-request", on_approval=decide)
        assert (await made.run("go")).text == "done"
    [question] = asked
    assert (question.kind, question.text) == ("mcp", 'docs/search {"q":"x"}')
    answer = sent(server)[-1]
    assert answer["type"] == "mcp_approval_response"
    assert (answer["approval_request_id"], answer["approve"]) == ("mcpr_1", approve)
    assert approve or "user rejected" in answer["reason"]


@pytest.mark.parametrize("policy", ["never", "on-request"])
async def test_f13_without_anybody_to_ask_it_is_refused_with_the_reason(tmp_path: Path, policy: str) -> None:
    with ScriptedModel([items(APPROVAL), items(said("done"))]) as server:
        await agent(server, "responses", tmp_path, [REMOTE], approval_policy=policy).run("go")
    answer = sent(server)[-1]
    assert answer["type"] == "mcp_approval_response" and answer["approve"] is False and answer["reason"]
    if policy == "never":
        assert 'require_approval = "never"' in answer["reason"]


async def test_f13_other_doors_find_the_question_in_the_pending_table(tmp_path: Path) -> None:
    class Door:
        can_answer = True

        def on_event(self, event: Event | ToolEvent) -> None:
            if isinstance(event, ExecApproval):
                from ferrule.tools.questions import Decision

                assert [one.request_id for one in session.pending_approvals()] == [event.request_id]
                session.decide(event.request_id, Decision(ReviewDecision.APPROVED))

    with ScriptedModel([items(APPROVAL), items(said("done"))]) as server:
        provider = ProviderSettings(name="server", base_url=server.base_url, wire_api="responses")
        settings = settings_of(ConfigTable(), cwd=str(tmp_path), home=str(tmp_path / "home"))
        settings = msgspec.structs.replace(settings, provider=provider, ephemeral=True)
        async with await open_session(settings, Door(), tools=[REMOTE]) as session:
            await session.run("go")
    assert sent(server)[-1]["approve"] is True


def test_f13_a_toolset_asks_too(tmp_path: Path) -> None:
    with Toolset.for_model(
        "gpt-5", cwd=tmp_path, sandbox="danger-full-access", tools=[REMOTE], approval_policy="on-request",
        on_approval=lambda question: ReviewDecision.APPROVED,
    ) as tools:  # fmt: skip
        assert [spec["type"] for spec in tools.specs()] == ["mcp"]
        [answer] = tools.run_sync([APPROVAL])
    assert answer == {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}


# --- F14


async def test_f14_a_bare_handler_knows_its_session(tmp_path: Path) -> None:
    seen: list[ToolInvocation] = []

    class Bare(ToolHandler):
        async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
            seen.append(invocation)
            return ToolOutput("ok")

    class Source:
        revision = 0

        def register(self, builder: ToolRegistryBuilder) -> None:
            builder.register_handler("bare", Bare())

    model = InProcessModel([calls("bare")], [says("done")])
    async with await Agent(model, cwd=tmp_path, tools=[]).open() as session:
        session.toolset.add_source(Source())
        result = await session.run("go")
    assert [(one.session_id, one.turn_id) for one in seen] == [(session.id, result.turn_id)]


# --- F15

GIVEN: list[ToolSpec] = [
    ShellTool(environment=ContainerAuto()),
    RawTool(definition={"type": "teleport", "to": "mars"}),
    ComputerUsePreview(display_width=1920, display_height=1080, environment="browser"),
    WebSearch(),
    REMOTE,
]


async def test_f15_an_agent_takes_every_spec(tmp_path: Path) -> None:
    with ScriptedModel([items(said("done"))]) as server:
        await agent(server, "responses", tmp_path, ["think", *GIVEN]).run("go")
    types = [tool["type"] for tool in as_objects(server.requests[0].body["tools"])]
    assert sorted(map(as_text, types)) == sorted(["function", *map(spec_name, GIVEN)])


def test_f15_so_does_a_toolset(tmp_path: Path) -> None:
    with Toolset.for_model("gpt-5", cwd=tmp_path, tools=["think", *GIVEN]) as tools:
        assert sorted(str(spec["type"]) for spec in tools.specs()) == sorted(["function", *map(spec_name, GIVEN)])
        assert [spec["type"] for spec in tools.specs("chat")] == ["function"]


async def test_f15_so_does_the_configuration(tmp_path: Path) -> None:
    tables = [spec.to_responses() for spec in GIVEN]
    table = msgspec.convert({"hosted_tools": tables}, ConfigTable)
    settings = settings_of(table, cwd=str(tmp_path), home=str(tmp_path / "home"))
    assert [spec.to_responses() for spec in settings.hosted_tools] == tables
    settings = msgspec.structs.replace(settings, ephemeral=True)
    async with await open_session(settings, model=InProcessModel([says("x")]), tools=["think"]) as session:
        shown = [spec_name(entry.spec) for entry in session.toolset.current()[0]]
    assert set(shown) >= {"shell", "teleport", "computer_use_preview", "web_search"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"type": "web_serch", "query": 1}, "did you mean web_search"),
        ({"type": "shell", "environment": {"type": "local"}}, "runs here"),
        ({"type": "apply_patch"}, "runs here"),
        ("teleport", "no tool 'teleport'"),
        ({"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "3g"}}, "memory_limit"),
    ],
)
def test_f15_what_is_rather_a_slip_is_refused(given: str | Fields, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        hosted_tool(given)


# --- F26


async def test_f26_a_handler_of_the_kind_mcp_is_called_with_server_and_tool(tmp_path: Path) -> None:
    seen: list[object] = []

    class Remote(ToolHandler):
        kind = ToolKind.MCP

        async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
            seen.append(invocation.payload)
            return ToolOutput("ok")

    class Source:
        revision = 0

        def register(self, builder: ToolRegistryBuilder) -> None:
            builder.register_handler("mcp__crm__find", Remote())
            builder.register_handler("list", Remote(), namespace="mcp__crm")
            builder.register_handler("plain", Remote())

    toolset = Toolset.for_model("gpt-5", cwd=tmp_path, sandbox="danger-full-access", tools=[])
    async with toolset:
        toolset.add_source(Source())
        made = [
            function_call("a", "mcp__crm__find"), function_call("b", "list", namespace="mcp__crm"),
            function_call("c", "plain"),
        ]  # fmt: skip
        assert [one["output"] for one in await toolset.run(made)] == ["ok", "ok", "ok"]
    assert [(getattr(one, "server"), getattr(one, "tool")) for one in seen] == [  # noqa: B009 - whatever payload it is
        ("crm", "find"), ("crm", "list"), ("", "plain"),
    ]  # fmt: skip


def test_f26_unsupported_calls_are_named_as_people_know_them(tmp_path: Path) -> None:
    with Toolset.for_model("gpt-5", cwd=tmp_path, tools=["think"]) as tools:
        shell, spaced = tools.run_sync([SHELL, function_call("b", "lookup", namespace="crm")])
    assert "nobody answers a shell_call here" in shell["output"][0]["stderr"]
    assert "crm.lookup" in spaced["output"]


async def test_f26_after_a_fault_of_the_runtime_the_cause_is_told(tmp_path: Path) -> None:
    class Broken(ToolHandler):
        async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
            raise Fatal("the registry is gone")

    class Source:
        revision = 0

        def register(self, builder: ToolRegistryBuilder) -> None:
            builder.register_handler("broken", Broken())

    model = InProcessModel([calls("broken")], [says("done")])
    async with await Agent(model, cwd=tmp_path, tools=[]).open() as session:
        session.toolset.add_source(Source())
        with pytest.raises(Fatal):
            await session.run("go")
        answer = session.history.items[-1].view
    assert isinstance(answer, FunctionCallOutput)
    assert answer.output == "the runtime failed: the registry is gone"


async def test_f26_a_hosted_tool_that_is_left_out_is_told_once(tmp_path: Path) -> None:
    events: list[Event | ToolEvent] = []
    with ScriptedModel(["one", "two"]) as server:
        async with await agent(server, "chat", tmp_path, [WebSearch()], on_event=events.append).open() as session:
            await session.run("go")
            await session.run("and?")
    told = [event.message for event in events if isinstance(event, WarningEvent)]
    assert len([text for text in told if "web_search" in text and "left out" in text]) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: AutoContainer(memory_limit="3g"),  # type: ignore[arg-type]  # what is refused
        lambda: ContainerAuto(memory_limit="3g"),  # type: ignore[arg-type]
        lambda: ComputerUsePreview(display_width=1, display_height=1, environment="phone"),  # type: ignore[arg-type]
        lambda: WebSearch(search_context_size="huge"),  # type: ignore[arg-type]
        lambda: RemoteMcp(server_url="https://x", require_approval="sometimes"),  # type: ignore[arg-type]
    ],
)
def test_f26_words_that_the_api_does_not_know_are_refused(make: Any) -> None:
    with pytest.raises(UsageError, match="is one of"):
        make()


def test_a_call_with_its_result_in_it_waits_for_nothing() -> None:
    for extra in ({"output": "x"}, {"result": None}, {"execution": "server"}, {"environment": {"type": "cloud"}}):
        assert called_id(read_item(json.dumps(UNKNOWN | extra)).view) is None
    assert called_id(FunctionCall(call_id="a", name="b", arguments="{}")) == "a"


async def test_what_people_see_of_answers_to_the_provider(tmp_path: Path) -> None:
    events: list[Event | ToolEvent] = []
    with ScriptedModel([items(SHELL, OUTPUT, CLICK), items(said("done"))]) as server:
        made = agent(server, "responses", tmp_path, [ShellTool()], on_event=events.append)
        await made.run("go")
    begun = [event.item for event in events if isinstance(event, ItemStarted)]
    ended = [event.item for event in events if isinstance(event, ItemCompleted) and event.output is not None]
    assert [called_id(item.view) for item in begun] == ["call_sh", "call_cu"]
    assert {called_id(item.view) for item in ended} == {"call_sh", "call_cu"}
