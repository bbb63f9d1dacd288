"""A toolset in LangChain's agents and in LangGraph's `ToolNode`, by the real packages over both wires."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langchain_core.tools import tool as theirs
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from pydantic import ValidationError

from ferrule import tool
from ferrule.integrations.langchain import tools
from ferrule.protocol.dynamic_tools import DynamicToolSpec
from ferrule.testing import ScriptedModel, function_call
from tests.integrations.frameworks import (
    BESIDE,
    EVERY_KIND,
    command,
    opened,
    papers,
    run_program,
    with_every_kind,
)
from tests.processes import alive, until

THREAD: Any = {"configurable": {"thread_id": "1"}}
GO: Any = {"messages": [("user", "go")]}
YES, NO = {"type": "approve"}, {"type": "reject", "message": "nöt now"}


@contextmanager
def scripted(*steps: Any, wire: str = "chat") -> Iterator[ChatOpenAI]:
    """A model that plays the steps, and has played them all."""
    with ScriptedModel(list(steps)) as server:
        yield ChatOpenAI(
            model="scripted-model",
            base_url=server.base_url,
            api_key="unused",
            use_responses_api=wire == "responses",
        )
        server.check()


def agent(model: Any, adapted: list[BaseTool], saver: InMemorySaver) -> Any:
    """Each call is a task of its own."""
    return create_agent(model, adapted, checkpointer=saver)


@theirs
def ask_human(question: str) -> str:
    """Ask."""
    return str(interrupt(question))


def one_after_another(known: list[Any]) -> Any:
    """Somebody's own node, which runs the calls of a message in their order."""
    named = {one.name: one for one in known}

    async def run(state: Any) -> Any:
        return {"messages": [await named[call["name"]].ainvoke(call) for call in state["messages"][-1].tool_calls]}

    return run


def graph(model: Any, adapted: list[Any], saver: InMemorySaver, node: Any = None) -> Any:
    """One task runs all calls of a message."""
    bound = model.bind_tools(adapted)
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [bound.invoke(state["messages"])]})
    builder.add_node("tools", node or ToolNode(adapted))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def answers(state: dict[str, Any]) -> dict[str, ToolMessage]:
    """The tool messages by call id."""
    return {message.tool_call_id: message for message in state["messages"] if isinstance(message, ToolMessage)}


def resume(state: dict[str, Any], *decisions: dict[str, Any]) -> Command[Any]:
    """Decide all calls that wait, in the message's order."""
    by_call = {}
    [*waiting] = state["__interrupt__"]
    for one in waiting:
        for action in one.value["action_requests"]:
            by_call[action["tool_call_id"]] = one.id
    told: dict[str, Any] = {one.id: {"decisions": []} for one in waiting}
    for call_id, decision in zip(sorted(by_call), decisions, strict=True):
        told[by_call[call_id]]["decisions"].append(decision)
    return Command(resume=told)


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_every_kind_of_call_comes_back_as_a_tool_message(wire: str, tmp_path: Path) -> None:
    with scripted(BESIDE, EVERY_KIND, "done", wire=wire) as model, with_every_kind(tmp_path) as toolset:
        state = create_agent(model, tools(toolset)).invoke(GO)
    spoken, failed, picture, patched, echoed = answers(state).values()
    assert "ünïcode 字" in str(spoken.content) and spoken.artifact == {"success": True}
    [block] = picture.content_blocks
    assert (block["type"], block["mime_type"]) == ("image", "image/png")
    assert "A nêw.txt" in str(patched.content) and (tmp_path / "nêw.txt").read_text() == "hällo\n"
    assert "Exit code: 3" in str(failed.content) and failed.status == "error"
    assert echoed.content == "ECHO: ö" and echoed.status == "success"
    assert state["messages"][-1].text == "done"


async def test_a_failure_brings_all_its_parts(tmp_path: Path) -> None:
    async with opened(tmp_path, papers) as toolset:
        [adapted] = tools(toolset)
        message = await adapted.ainvoke({"name": "papers", "args": {}, "id": "a", "type": "tool_call"})
    assert message.status == "error"
    text, picture, file, linked, named = message.content
    assert text == {"type": "text", "text": "tŏrn"}
    assert picture == {"type": "image", "url": "https://example.org/a.png"}
    assert file == {"type": "file", "base64": "JVBERi0=", "mime_type": "application/pdf", "filename": "a.pdf"}
    assert linked == {"type": "file", "url": "https://example.org/b.pdf"}
    assert named["type"] == "text" and "file_1" in named["text"]


@pytest.mark.parametrize("made", [agent, graph])
def test_each_call_gets_its_own_decision(made: Callable[..., Any], tmp_path: Path) -> None:
    """Those that ask nothing do not run twice either, and those that wait do not run before."""
    args = {"command": "echo E >> log", "login": False}
    edit = {"type": "edit", "edited_action": {"name": "shell_command", "args": args}}
    calls = [command("pwd"), *(command(f"echo {letter} >> log") for letter in "abcd")]
    with scripted(calls, "done") as model, opened(tmp_path, "shell_command", policy="untrusted") as toolset:
        running = made(model, tools(toolset), InMemorySaver())
        state = running.invoke(GO, THREAD)
        assert not (tmp_path / "log").exists()
        [first, *_] = state["__interrupt__"]
        assert str(tmp_path) in first.value["action_requests"][0]["description"]
        assert first.value["review_configs"][0]["action_name"] == "shell_command"
        said = {"type": "respond", "message": "it is thére"}
        state = running.invoke(resume(state, YES, NO, edit, said), THREAD)
    _, written, refused, changed, responded = answers(state).values()
    assert written.status == "success"
    assert "nöt now" in str(refused.content) and refused.status == "error"
    assert 'The user changed this call before it ran. It ran with the arguments {"command": "echo E' in changed.content
    assert responded.content == "it is thére" and responded.status == "success"
    assert sorted((tmp_path / "log").read_text().split()) == ["E", "a"]


@pytest.mark.parametrize("made", [agent, graph])
async def test_a_decision_is_for_what_was_shown_in_another_process_too(
    made: Callable[..., Any], tmp_path: Path
) -> None:
    """Another process has the checkpoints and nothing else; where the toolset works elsewhere the user is asked
    again."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    saver = InMemorySaver()
    with scripted([command("echo x >> log"), command("echo y >> log")], "done") as model:
        async with opened(here, "shell_command", policy="untrusted") as toolset:
            state = await made(model, tools(toolset), saver).ainvoke(GO, THREAD)
        async with opened(there, "shell_command", policy="untrusted") as toolset:
            running = made(model, tools(toolset), saver)
            state = await running.ainvoke(resume(state, YES, YES), THREAD)
            assert not (there / "log").exists()
            assert str(there) in state["__interrupt__"][0].value["action_requests"][0]["description"]
        async with opened(there, "shell_command", policy="untrusted") as toolset:
            state = await made(model, tools(toolset), saver).ainvoke(resume(state, YES, NO), THREAD)
    assert [message.status for message in answers(state).values()] == ["success", "error"]
    assert (there / "log").read_text() == "x\n"


@pytest.mark.parametrize("made", [agent, graph])
async def test_a_refused_call_does_not_run_where_nothing_is_asked(made: Callable[..., Any], tmp_path: Path) -> None:
    """Another process goes on, whose toolset asks nothing: what the user has said of the calls still counts."""
    args = {"command": "echo E >> log", "login": False}
    edit = {"type": "edit", "edited_action": {"name": "shell_command", "args": args}}
    saver = InMemorySaver()
    calls = [command("pwd"), *(command(f"echo {letter} >> log") for letter in "abc")]
    with scripted(calls, "done") as model:
        async with opened(tmp_path, "shell_command", policy="untrusted") as toolset:
            state = await made(model, tools(toolset), saver).ainvoke(GO, THREAD)
        async with opened(tmp_path, "shell_command", policy="never") as toolset:
            state = await made(model, tools(toolset), saver).ainvoke(resume(state, YES, NO, edit), THREAD)
    assert [message.status for message in answers(state).values()] == ["success", "success", "error", "success"]
    assert sorted((tmp_path / "log").read_text().split()) == ["E", "a"]


def test_a_patch_of_files_that_changed_meanwhile_is_asked_again(tmp_path: Path) -> None:
    text = "*** Begin Patch\n*** Update File: a.txt\n@@\n-old\n+new\n*** End Patch"
    (tmp_path / "a.txt").write_text("old\n")
    patch = function_call("apply_patch", {"input": text})
    with scripted(patch, "done") as model, opened(tmp_path, "apply_patch", policy="untrusted") as toolset:
        running = agent(model, tools(toolset), InMemorySaver())
        running.invoke(GO, THREAD)
        (tmp_path / "a.txt").write_text("theirs\nold\n")
        state = running.invoke(Command(resume={"decisions": [YES]}), THREAD)
        assert "__interrupt__" in state
        assert (tmp_path / "a.txt").read_text() == "theirs\nold\n"
        running.invoke(resume(state, YES), THREAD)
    assert (tmp_path / "a.txt").read_text() == "theirs\nnew\n"


def test_an_answer_that_does_not_fit_can_be_given_again(tmp_path: Path) -> None:
    other = {"type": "edit", "edited_action": {"name": "other", "args": {}}}
    with scripted(command("touch made"), "done") as model, opened(tmp_path, "shell_command", policy="untrusted") as own:
        running = agent(model, tools(own), InMemorySaver())
        running.invoke(GO, THREAD)
        wrong: list[Any] = ["yes", {"decisions": []}, {"decisions": [other]}, {"decisions": [{"type": "perhaps"}]}]
        for answer in wrong:
            with pytest.raises(ValidationError):
                running.invoke(Command(resume=answer), THREAD)
        assert not (tmp_path / "made").exists()
        running.invoke(Command(resume={"decisions": [YES]}), THREAD)
        assert (tmp_path / "made").exists()


@pytest.mark.parametrize("way", ["beside", "one after another"])
async def test_a_call_that_ran_beside_an_interrupted_one_is_not_run_again(way: str, tmp_path: Path) -> None:
    calls = [command("echo ran >> log"), function_call("ask_human", {"question": "?"}), command("echo last >> log")]
    with scripted(calls, "done") as model:
        async with opened(tmp_path, "shell_command") as toolset:
            known = [*tools(toolset), ask_human]
            running = graph(model, known, InMemorySaver(), None if way == "beside" else one_after_another(known))
            await running.ainvoke(GO, THREAD)
            state = await running.ainvoke(Command(resume="yes"), THREAD)
    assert [message.content for message in answers(state).values()][1] == "yes"
    assert sorted((tmp_path / "log").read_text().split()) == ["last", "ran"]


async def test_answers_to_interrupts_of_other_tools_stay_theirs(tmp_path: Path) -> None:
    """When the human is asked, the patch has been approved and made: it would ask something else now."""
    (tmp_path / "a.txt").write_text("old\n")
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n old\n+new\n*** End Patch"
    calls = [function_call("apply_patch", {"input": patch}), function_call("ask_human", {"question": "?"})]
    with scripted(calls, "done") as model:
        async with opened(tmp_path, "apply_patch", policy="untrusted") as toolset:
            known = [*tools(toolset), ask_human]
            running = graph(model, known, InMemorySaver(), one_after_another(known))
            await running.ainvoke(GO, THREAD)
            state = await running.ainvoke(Command(resume={"decisions": [YES]}), THREAD)
            assert state["__interrupt__"][0].value == "?"
            state = await running.ainvoke(Command(resume="42"), THREAD)
    patched, human = answers(state).values()
    assert patched.status == "success" and human.content == "42"
    assert (tmp_path / "a.txt").read_text() == "old\nnew\n"


async def test_a_call_that_a_middleware_runs_twice_is_asked_about_twice(tmp_path: Path) -> None:
    @wrap_tool_call
    async def again_after_an_error(request: Any, handler: Any) -> Any:
        first = await handler(request)
        return await handler(request) if first.status == "error" else first

    with scripted(command("echo ran >> log; test $(wc -l < log) = 2"), "done") as model:
        async with opened(tmp_path, "shell_command", policy="untrusted") as toolset:
            running = create_agent(
                model, tools(toolset), middleware=[again_after_an_error], checkpointer=InMemorySaver()
            )
            await running.ainvoke(GO, THREAD)
            state = await running.ainvoke(Command(resume={"decisions": [YES]}), THREAD)
            assert (tmp_path / "log").read_text() == "ran\n"
            state = await running.ainvoke(resume(state, YES), THREAD)
    assert answers(state)["call_1"].status == "success"
    assert (tmp_path / "log").read_text() == "ran\nran\n"


async def test_cancelling_the_agent_ends_the_process(tmp_path: Path) -> None:
    with ScriptedModel([command("echo $$ > pid; exec sleep 100", call_id="a")]) as server:
        model = ChatOpenAI(model="m", base_url=server.base_url, api_key="unused")
        async with opened(tmp_path, "shell_command") as toolset:
            running = asyncio.create_task(create_agent(model, tools(toolset)).ainvoke(GO))
            pid = tmp_path / "pid"
            await until(lambda: pid.exists() and pid.read_text() != "")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert not alive(int(pid.read_text()))


async def test_events_of_a_stream_hold_the_call_and_nothing_of_the_run(tmp_path: Path) -> None:
    with scripted(command("echo strëam"), "done") as model:
        async with opened(tmp_path, "shell_command") as toolset:
            running = create_agent(model, tools(toolset))
            events = [event async for event in running.astream_events(GO, version="v2")]
    [started] = [event for event in events if event["event"] == "on_tool_start"]
    [ended] = [event for event in events if event["event"] == "on_tool_end"]
    assert started["data"]["input"] == {"command": "echo strëam", "login": False}
    assert "strëam" in ended["data"]["output"].content


def test_any_name_of_an_argument_reaches_the_tool(tmp_path: Path) -> None:
    @tool
    def names(self_: str, config: str, runtime: str, run_manager: str, callbacks: str, tool_call_id: str) -> str:
        """Say them all."""
        return " ".join((self_, config, runtime, run_manager, callbacks, tool_call_id))

    arguments = dict(
        zip(("self_", "config", "runtime", "run_manager", "callbacks", "tool_call_id"), "abcdef", strict=True)
    )
    with scripted(function_call("names", arguments), "done") as model, opened(tmp_path, names) as toolset:
        state = create_agent(model, tools(toolset)).invoke(GO)
        assert answers(state)["call_1"].content == "a b c d e f"


async def test_a_tool_without_a_call_id_returns_or_raises(tmp_path: Path) -> None:
    """Outside of a graph `on_approval` answers, and without it nobody."""
    async with opened(tmp_path, "shell_command", policy="untrusted", on_approval=lambda question: True) as toolset:
        [shell] = tools(toolset)
        assert "Exit code: 0" in await shell.ainvoke({"command": "touch made", "login": False})
        with pytest.raises(ToolException, match="Exit code: 1"):
            await shell.ainvoke({"command": "false", "login": False})
        with pytest.raises(ToolException, match="takes an object"):
            await shell.ainvoke("false")
    async with opened(tmp_path, "shell_command", policy="untrusted") as toolset:
        [shell] = tools(toolset)
        call = {"name": "shell_command", "args": {"command": "rm made", "login": False}, "id": "a", "type": "tool_call"}
        refused = await shell.ainvoke(call)
        assert refused.status == "error" and "nobody can answer" in refused.content
        wrong = await shell.ainvoke({**call, "args": {"command": "\ud800"}})
        assert wrong.status == "error" and "failed to parse function arguments" in wrong.content
    assert (tmp_path / "made").exists()


def test_a_tool_that_is_gone_and_arguments_that_are_wrong_are_told(tmp_path: Path) -> None:
    calls = [function_call("shell_command", {"comand": 1}), function_call("late", {}), command("pwd")]
    with scripted(calls, "done") as model, opened(tmp_path, "shell_command") as toolset:
        toolset.add_dynamic_tools([DynamicToolSpec("late", "Late", {"type": "object"})])
        adapted = tools(toolset)
        toolset.remove_dynamic_tools(["late"])
        wrong, gone, right = answers(create_agent(model, adapted).invoke(GO)).values()
    assert wrong.status == "error" and "command" in wrong.content
    assert gone.status == "error" and "unsupported call: late" in gone.content
    assert str(tmp_path) in right.content


def test_the_program_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = function_call("exec_command", {"cmd": "echo all > todo.txt", "login": False})
    with ScriptedModel([call, "done"]) as model:
        names = run_program("LangChain and LangGraph", monkeypatch, tmp_path, model)
        model.check()
    [question] = names["questions"]
    assert "echo all > todo.txt" in question
    assert (tmp_path / "todo.txt").read_text() == "all\n"
