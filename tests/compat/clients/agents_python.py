"""openai-agents, whose model is a gateway."""

import asyncio
import base64
import importlib
import io
import json
import sys
import zipfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

from tests.compat.clients.points import show

SDK: Any = importlib.import_module("agents")
RESPONSES: Any = importlib.import_module("agents.models.openai_responses")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Weather(BaseModel):
    """A typed answer."""

    city: str
    degrees: int


class Screen(SDK.Computer):  # type: ignore[misc]  # the package is not installed where this is checked
    """A computer that writes down what is done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def screenshot(self) -> str:
        self.done.append("screenshot")
        return PNG

    def click(self, x: int, y: int, button: str) -> None:
        self.done.append(f"click {x} {y} {button}")

    def double_click(self, x: int, y: int) -> None: ...
    def scroll(self, x: int, y: int, scroll_x: int, scroll_y: int) -> None: ...
    def type(self, text: str) -> None: ...
    def wait(self) -> None: ...
    def move(self, x: int, y: int) -> None: ...
    def keypress(self, keys: list[str]) -> None: ...
    def drag(self, path: list[tuple[int, int]]) -> None: ...


def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


class Way:
    """How the gateway is asked: a model class, streamed or not."""

    def __init__(self, model: Any, *, stream: bool) -> None:
        self._model = model
        self._stream = stream

    async def run(self, prompt: Any, tools: list[Any], *, runs: Any = None, **fields: Any) -> Any:
        """Run an agent to its end."""
        agent = SDK.Agent(name="a", model=self._model, tools=tools, **fields)
        if not self._stream:
            return await SDK.Runner.run(agent, prompt, **(runs or {}))
        running = SDK.Runner.run_streamed(agent, prompt, **(runs or {}))
        async for _ in running.stream_events():
            pass
        return running


async def function_tool(way: Way) -> None:
    result = await way.run("use get_weather", [SDK.function_tool(get_weather)])
    assert result.final_output == "Done: sunny in Rome", result.final_output


async def typed_output(way: Way) -> None:
    result = await way.run("use get_weather", [SDK.function_tool(get_weather)], output_type=Weather)
    assert result.final_output == Weather(city="Rome", degrees=21)


async def handoff(way: Way) -> None:
    other = SDK.Agent(name="other", model=way._model, tools=[SDK.function_tool(get_weather)])
    result = await way.run("say hi", [], handoffs=[other])
    assert result.final_output == "You said: hi", result.final_output


async def local_shell_of_shell_tool(way: Way) -> None:
    seen: list[str] = []

    def run(request: Any) -> Any:
        seen.extend(request.data.action.commands)
        outcome = SDK.ShellCallOutcome(type="exit", exit_code=0)
        return SDK.ShellResult(output=[SDK.ShellCommandOutput(stdout=f"{c}!", outcome=outcome) for c in seen])

    result = await way.run("use shell", [SDK.ShellTool(executor=run)])
    assert seen == ["echo one", "echo two"]
    assert "echo two!" in result.final_output, result.final_output


async def apply_patch_with_an_editor(way: Way) -> None:
    seen: list[str] = []

    def edit(operation: Any) -> Any:
        seen.append(f"{operation.type} {operation.path} {operation.diff}")
        return SDK.ApplyPatchResult(status="completed", output="patched")

    editor = SimpleNamespace(create_file=edit, update_file=edit, delete_file=edit)
    result = await way.run("use apply_patch", [SDK.ApplyPatchTool(editor=editor)])
    assert seen == ["update_file a.txt @@\n-one\n+two\n"], seen
    assert "patched" in result.final_output, result.final_output


async def local_shell_tool(way: Way) -> None:
    seen: list[str] = []

    def run(request: Any) -> str:
        seen.extend(request.data.action.command)
        return "hi there"

    result = await way.run("use local_shell", [SDK.LocalShellTool(executor=run)])
    assert seen == ["echo", "hi"] and "hi there" in result.final_output, (seen, result.final_output)


async def computer(way: Way) -> None:
    screen = Screen()
    result = await way.run("use computer", [SDK.ComputerTool(computer=screen)])
    assert "click 3 4 left" in screen.done and "screenshot" in screen.done, screen.done
    assert result.final_output.startswith("Done: "), result.final_output


async def custom_tool(way: Way) -> None:
    async def shout(_: object, text: str) -> str:
        return f"upper: {text.upper()}"

    grammar = {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"}
    for form in (None, grammar):
        tool = SDK.CustomTool(name="shout", description="Shout.", on_invoke_tool=shout, format=form)
        result = await way.run("use shout", [tool])
        assert result.final_output == "Done: upper: HELLO", result.final_output


async def several_tools_in_turn(way: Way) -> None:
    tools = [SDK.function_tool(get_weather), SDK.ShellTool(executor=lambda request: "two lines")]
    result = await way.run("use get_weather, shell, get_weather", tools)
    assert result.final_output == "Done: sunny in Rome", result.final_output


async def previous_response_id(way: Way) -> None:
    tools = [SDK.function_tool(get_weather)]
    first = await way.run("use get_weather", tools, runs={"auto_previous_response_id": True})
    assert first.final_output == "Done: sunny in Rome", first.final_output
    second = await way.run("say more", tools, runs={"previous_response_id": first.last_response_id})
    assert second.final_output == "You said: more", second.final_output


async def sessions(way: Way) -> None:
    session = SDK.SQLiteSession("one")
    await way.run("use get_weather", [SDK.function_tool(get_weather)], runs={"session": session})
    result = await way.run("say more", [], runs={"session": session})
    assert result.final_output == "You said: more", result.final_output


async def conversation_session(way: Way) -> None:
    session = SDK.OpenAIConversationsSession(openai_client=way._model._client)
    await way.run("use get_weather", [SDK.function_tool(get_weather)], runs={"session": session})
    result = await way.run("say more", [], runs={"session": session})
    assert result.final_output == "You said: more", result.final_output
    kinds = [item.get("type", item.get("role")) for item in await session.get_items()]
    assert "function_call" in kinds and "function_call_output" in kinds, kinds


async def conversation_id(way: Way) -> None:
    talk = await way._model._client.conversations.create()
    await way.run("use get_weather", [SDK.function_tool(get_weather)], runs={"conversation_id": talk.id})
    result = await way.run("say more", [], runs={"conversation_id": talk.id})
    assert result.final_output == "You said: more", result.final_output
    listed = [item.type async for item in way._model._client.conversations.items.list(talk.id)]
    assert listed.count("function_call") == listed.count("function_call_output") == 1, listed


async def compacted_session(way: Way) -> None:
    session = SDK.OpenAIResponsesCompactionSession(
        "two", SDK.SQLiteSession("two"), client=way._model._client, model="gpt-5.5",
        should_trigger_compaction=lambda context: len(context["compaction_candidate_items"]) > 1,
    )  # fmt: skip
    for prompt in ("say one", "say two"):
        await way.run(prompt, [], runs={"session": session})
    assert any(item.get("type") == "compaction" for item in await session.get_items()), await session.get_items()
    result = await way.run("say three", [], runs={"session": session})
    assert result.final_output == "You said: three", result.final_output


async def tools_of_unknown_hosts(way: Way) -> None:
    """Tools that nobody runs are not an error."""
    tools = [SDK.WebSearchTool(), SDK.CodeInterpreterTool(tool_config=json.loads(CODE)), SDK.function_tool(get_weather)]
    result = await way.run("use get_weather", tools)
    assert result.final_output == "Done: sunny in Rome", result.final_output


async def code_interpreter(way: Way) -> None:
    result = await way.run("use python, python", [SDK.CodeInterpreterTool(tool_config=json.loads(CODE))])
    assert "42" in result.final_output, result.final_output
    calls = [item.raw_item for item in result.new_items if item.type == "tool_call_item"]
    assert [call.type for call in calls] == ["code_interpreter_call"] * 2, calls
    assert len({call.container_id for call in calls}) == 1, calls


async def hosted_shell(way: Way) -> None:
    shell = SDK.ShellTool(environment={"type": "container_auto"})
    result = await way.run("use shell", [shell])
    assert "two" in result.final_output, result.final_output
    kinds = [item.type for item in result.new_items]
    assert "tool_call_item" in kinds and "tool_call_output_item" in kinds, kinds


async def hosted_shell_by_reference(way: Way) -> None:
    made = await way._model._client.containers.create(name="agents")
    shell = SDK.ShellTool(environment={"type": "container_reference", "container_id": made.id})
    await way.run("use make_file", [shell])
    result = await way.run("use read_file", [shell])
    assert result.final_output.startswith("Done: 7"), result.final_output
    files = [file.path async for file in way._model._client.containers.files.list(made.id)]
    assert files == ["/mnt/data/made.txt"], files


async def hosted_shell_with_skills(way: Way) -> None:
    manifest = b"---\nname: words\ndescription: Tells words.\n---\nRead words.txt.\n"
    files = {"words/SKILL.md": manifest, "words/words.txt": b"plum"}
    kept = await way._model._client.skills.create(files=list(files.items()))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name, content in files.items():
            target.writestr(name, content)
    source = {"type": "base64", "media_type": "application/zip"}
    source["data"] = base64.b64encode(packed.getvalue()).decode()
    for skill in (
        {"type": "skill_reference", "skill_id": kept.id, "version": "latest"},
        {"type": "inline", "name": "words", "description": "Tells words.", "source": source},
    ):
        shell = SDK.ShellTool(environment={"type": "container_auto", "skills": [skill]})
        result = await way.run("use read_skill", [shell])
        assert result.final_output.startswith("Done: plum"), result.final_output


async def hosted_tools_in_a_session(way: Way) -> None:
    session = SDK.SQLiteSession("three")
    tools = [
        SDK.ShellTool(environment={"type": "container_auto"}),
        SDK.CodeInterpreterTool(tool_config=json.loads(CODE)),
    ]
    await way.run("use make_file, python", tools, runs={"session": session})
    result = await way.run("use read_file", tools, runs={"session": session})
    assert result.final_output.startswith("Done: 7"), result.final_output


async def file_search(way: Way) -> None:
    client = way._model._client
    store = await client.vector_stores.create(name="fruit")
    words = ("plums.txt", b"Plums ripen in August.")
    file = await client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=words)
    tool = SDK.FileSearchTool(vector_store_ids=[store.id], max_num_results=3, include_search_results=True)
    result = await way.run("use file_search", [tool])
    items = [item.raw_item for item in result.new_items]
    call, said = next(item for item in items if item.type == "file_search_call"), items[-1]
    assert call.results[0].file_id == file.id and call.results[0].text == "Plums ripen in August.", call
    part = said.content[-1]
    assert "【" not in part.text and "Plums ripen in August." in part.text, part
    assert [(one.type, one.filename) for one in part.annotations] == [("file_citation", "plums.txt")], part
    await client.vector_stores.delete(store.id)


def _mcp(**fields: Any) -> Any:
    return {"type": "mcp", "server_label": "docs", "server_url": "http://mcp.example.com/mcp", **fields}


async def hosted_mcp(way: Way) -> None:
    tool = SDK.HostedMCPTool(tool_config=_mcp(require_approval="never", authorization="secret-token"))
    result = await way.run("use mcp__docs__echo, mcp__docs__echo", [tool])
    assert result.final_output == "Done: ECHO plum", result.final_output
    kinds = [getattr(item.raw_item, "type", None) for item in result.new_items]
    assert kinds.count("mcp_list_tools") == 1 and kinds.count("mcp_call") == 2, kinds


async def hosted_mcp_with_approval(way: Way) -> None:
    for approve, said in ((True, "Done: ECHO plum"), (False, "not run: the user denied it: no")):
        answer = {"approve": approve, "reason": "no"}
        tool = SDK.HostedMCPTool(tool_config=_mcp(), on_approval_request=lambda request, answer=answer: answer)
        result = await way.run("use mcp__docs__echo", [tool])
        assert said in result.final_output, result.final_output
        session = SDK.SQLiteSession(f"mcp-{approve}")
        await way.run("use mcp__docs__echo", [tool], runs={"session": session})
        result = await way.run("use mcp__docs__echo", [tool], runs={"session": session})
        assert said in result.final_output, result.final_output


CODE = '{"type": "code_interpreter", "container": {"type": "auto"}}'

POINTS: tuple[Callable[[Way], Any], ...] = (
    function_tool, typed_output, handoff, local_shell_of_shell_tool, apply_patch_with_an_editor, local_shell_tool,
    computer, custom_tool, several_tools_in_turn, previous_response_id, sessions, conversation_session,
    conversation_id, compacted_session, tools_of_unknown_hosts, code_interpreter,
    hosted_shell, hosted_shell_by_reference, hosted_shell_with_skills, hosted_tools_in_a_session,
    hosted_mcp, hosted_mcp_with_approval, file_search,
)  # fmt: skip


async def main(url: str) -> None:
    """Show each point over HTTP, whole and streamed, and over WebSocket."""
    SDK.set_tracing_disabled(True)
    async with importlib.import_module("openai").AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as client:
        over_http = SDK.OpenAIResponsesModel(model="m", openai_client=client)
        sockets = RESPONSES.OpenAIResponsesWSModel(model="m", openai_client=client)
        ways = {
            "whole": Way(over_http, stream=False),
            "streamed": Way(over_http, stream=True),
            "WebSocket": Way(sockets, stream=False),
            "WebSocket, streamed": Way(sockets, stream=True),
        }
        for name, way in ways.items():
            await show([_named(point, name) for point in POINTS], way)
        await sockets.close()


def _named(point: Any, way: str) -> Any:
    async def shown(given: Way) -> None:
        await point(given)

    shown.__name__ = f"{point.__name__}, {way}"
    return shown


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
