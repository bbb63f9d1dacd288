"""A toolset for the Messages API: the real SDK against a server that plays the wire (`messages_server`).

The SDK takes seconds to import, so only the worker that runs these tests does.
"""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from ferrule import Toolset, tool
from ferrule.mcp import create_mcp_tools
from ferrule.protocol.content import InputFile, InputImage, InputText
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.payload import NO_SCREENSHOT, ToolOutput
from tests.integrations.frameworks import program
from tests.integrations.messages_server import Json, MessagesServer, says, uses
from tests.mcp.stub import server
from tests.processes import until

PIXEL = NO_SCREENSHOT.partition(",")[2]
GO = [{"role": "user", "content": "go"}]


def opened(tmp_path: Path, *tools: Any, policy: str | None = "never", **more: Any) -> Toolset:
    """A toolset without a sandbox; with those of Claude unless `tools` are given."""
    more |= {"tools": tools or None, "approval_policy": policy}
    return Toolset.for_model("claude-opus-5", cwd=tmp_path, sandbox="danger-full-access", **more)


async def converse(toolset: Toolset, played: MessagesServer) -> Any:
    """A loop as a user writes it: the last message."""
    from anthropic import AsyncAnthropic

    from ferrule.integrations.anthropic import run, tools

    async with AsyncAnthropic(base_url=played.base_url, api_key="unused", max_retries=0) as client:
        messages: list[Any] = [*GO]
        while True:
            made = tools(toolset)
            message = await client.messages.create(model="claude", max_tokens=99, tools=made, messages=messages)
            results = await run(toolset, message)
            if not results:
                return message
            messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


async def test_the_tools_that_claude_knows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("eins\n")
    edit = {"command": "str_replace", "path": f"{tmp_path}/a.txt", "old_str": "eins", "new_str": "größer 👋"}
    calls = [
        ("bash", {"command": "echo hü; exit 3"}),
        ("str_replace_based_edit_tool", edit),
        ("bash", {"restart": True}),
    ]
    with MessagesServer(uses(*calls), says("done")) as played:
        async with opened(tmp_path) as toolset:
            message = await converse(toolset, played)
        known, editor, *others = played.requests[0]["tools"]
        assert known == {"type": "bash_20250124", "name": "bash"}
        assert editor == {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}
        assert {"glob", "grep", "view_image"} < {other["name"] for other in others}
        assert message.content[0].text == "done"
        failed, edited, restarted = played.results
    assert (failed["tool_use_id"], failed["is_error"]) == ("toolu_1", True)
    assert failed["content"].startswith("hü\n")
    assert "größer 👋" in edited["content"]
    assert "is_error" not in edited
    assert restarted["content"] == "tool has been restarted."
    assert (tmp_path / "a.txt").read_text() == "größer 👋\n"


async def test_a_tool_of_the_users_with_the_same_name_is_described(tmp_path: Path) -> None:
    @tool
    def bash(script: str) -> str:
        """Another bash."""
        return script

    with MessagesServer(uses(("bash", {"script": "ä"}), ("nothing", {})), says("done")) as played:
        async with opened(tmp_path, bash) as toolset:
            await converse(toolset, played)
        [offered] = played.requests[0]["tools"]
        assert offered["input_schema"]["required"] == ["script"]
        answer, unknown = played.results
    assert answer == {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ä"}
    assert (unknown["is_error"], unknown["content"]) == (True, "unsupported call: nothing")


async def test_images_and_files_are_blocks(tmp_path: Path) -> None:
    pdf = "data:application/pdf;base64,JVBERg=="
    parts = (
        InputText("seen"),
        InputImage(image_url="https://example.org/a.png"),
        InputImage(image_url="data:image/tiff;base64,aGk="),
        InputFile(file_data=pdf),
        InputFile(file_url="https://example.org/a.pdf"),
    )

    @tool
    def show() -> ToolOutput:
        """Show."""
        return ToolOutput(parts)

    (tmp_path / "a.png").write_bytes(base64.b64decode(PIXEL))
    with MessagesServer(uses(("view_image", {"path": "a.png"}), ("show", {})), says("done")) as played:
        async with opened(tmp_path, "view_image", show) as toolset:
            await converse(toolset, played)
        viewed, shown = played.results
    pixel = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    assert viewed["content"] == [pixel]
    assert [block["type"] for block in shown["content"]] == ["text", "image", "text", "document", "document"]
    assert shown["content"][2]["text"] == "[a file of a kind that cannot be shown, left out]"


@pytest.mark.parametrize("answer", [True, False, None])
async def test_approvals_are_asked_by_the_toolset(tmp_path: Path, answer: bool | None) -> None:
    asked: list[tuple[str, str]] = []

    def decide(question: ExecApproval) -> bool:
        asked.append((question.call_id, question.text))
        return bool(answer)

    with MessagesServer(uses(("bash", {"command": "touch made"})), says("done")) as played:
        async with opened(tmp_path, policy="untrusted", on_approval=None if answer is None else decide) as toolset:
            await converse(toolset, played)
        [result] = played.results
    assert (tmp_path / "made").exists() is bool(answer)
    assert asked == ([] if answer is None else [("toolu_1", "touch made")])
    assert result.get("is_error", False) is not bool(answer)
    assert answer or "exec command rejected by user" in result["content"]


async def test_an_mcp_tool_and_a_freeform_tool(tmp_path: Path) -> None:
    patch = {"input": "*** Begin Patch\n*** Add File: new.txt\n+grüße\n*** End Patch"}
    made = await asyncio.to_thread(create_mcp_tools, {"mcpServers": {"stub": server(approval="allow")}})
    echo = next(one for one in made if one.mcp_tool.name == "echo")
    with MessagesServer(uses(("mcp__stub__echo", {"text": "ä"}), ("apply_patch", patch)), says("done")) as played:
        async with opened(tmp_path, echo, "apply_patch") as toolset:
            await converse(toolset, played)
        assert played.results[0]["content"] == "ECHO: ä"
    assert (tmp_path / "new.txt").read_text() == "grüße\n"


async def test_calls_run_beside_each_other_where_they_may(tmp_path: Path) -> None:
    met: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]

    @tool
    async def meet(number: int) -> str:
        """Meet the other one."""
        met[number].set()
        await met[1 - number].wait()
        return "met"

    meet.parallel = True
    kept = [("bash", {"command": f"x={number}; sleep 0.02; echo $x"}) for number in range(3)]
    calls: list[tuple[str, Any]] = [("meet", {"number": 0}), ("meet", {"number": 1}), *kept]
    with MessagesServer(uses(*calls), says("done")) as played:
        async with opened(tmp_path, "bash", meet) as toolset:
            await converse(toolset, played)
        assert [result["content"] for result in played.results] == ["met", "met", "0", "1", "2"]


async def test_calls_of_a_message_that_was_cut_off_do_not_run(tmp_path: Path) -> None:
    from ferrule.integrations.anthropic import run

    async with opened(tmp_path) as toolset:
        cut: Json = uses(("bash", {"command": "touch made"}), stop_reason="max_tokens")
        [result] = await run(toolset, cut)
        assert result["is_error"]
        assert "max_tokens" in result["content"]
        assert await run(toolset, says("done")) == []
        assert await run(toolset, [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]) == []
        assert (await run(toolset, cut["content"]))[0].get("is_error") is None
    assert (tmp_path / "made").exists()


async def test_calls_of_a_server_that_gives_another_reason_run(tmp_path: Path) -> None:
    from ferrule.integrations.anthropic import run

    async with opened(tmp_path) as toolset:
        [result] = await run(toolset, uses(("bash", {"command": "echo whole"}), stop_reason="end_turn"))
    assert result["content"] == "whole"


async def test_a_cancelled_run_ends_the_process(tmp_path: Path) -> None:
    from ferrule.integrations.anthropic import run

    script = f"trap 'touch {tmp_path}/ended; exit' TERM INT; touch {tmp_path}/began; while :; do sleep 0.01; done"
    async with opened(tmp_path, "shell_command") as toolset:
        running = asyncio.create_task(run(toolset, uses(("shell_command", {"command": script}))))
        await until((tmp_path / "began").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (tmp_path / "ended").exists()


CALLS = [("bash", {"command": "echo hü"}), ("bash", {"command": "(exit 4)"}), ("view_image", {"path": "a.png"})]


def check_runner(played: MessagesServer, last: Any) -> None:
    said, failed, image = played.results
    assert last.content[0].text == "done"
    assert said["content"].startswith("hü")
    assert (failed["is_error"], failed["content"]) == (True, "[exit code 4]")
    assert image["content"][0]["source"]["data"] == PIXEL


async def test_the_tool_runner_of_the_async_client(tmp_path: Path) -> None:
    from anthropic import AsyncAnthropic

    from ferrule.integrations.anthropic import tools

    (tmp_path / "a.png").write_bytes(base64.b64decode(PIXEL))
    with MessagesServer(uses(*CALLS), says("done")) as played:
        async with opened(tmp_path) as toolset, AsyncAnthropic(base_url=played.base_url, api_key="unused") as client:
            runner = client.beta.messages.tool_runner(
                model="claude",
                max_tokens=99,
                tools=tools(toolset),
                messages=GO,
            )
            check_runner(played, await runner.until_done())


async def test_the_tool_runner_of_the_plain_client_where_a_loop_runs(tmp_path: Path) -> None:
    from anthropic import Anthropic

    from ferrule.integrations.anthropic import tools

    with (
        MessagesServer(uses(*CALLS[:2]), says("done")) as played,
        opened(tmp_path) as toolset,
        Anthropic(base_url=played.base_url, api_key="unused") as client,
    ):
        made = tools(toolset)
        runner = client.beta.messages.tool_runner(model="claude", max_tokens=99, tools=made, messages=GO)
        assert runner.until_done().content[0].text == "done"
        said, failed = played.results
    assert said["content"][0]["text"].startswith("hü")
    assert (failed["is_error"], failed["content"]) == (True, "[exit code 4]")


def test_the_tool_runner_of_the_plain_client(tmp_path: Path) -> None:
    from anthropic import Anthropic

    from ferrule.integrations.anthropic import run_sync, tools

    (tmp_path / "a.png").write_bytes(base64.b64decode(PIXEL))
    with (
        MessagesServer(uses(*CALLS), says("done")) as played,
        opened(tmp_path) as toolset,
        Anthropic(base_url=played.base_url, api_key="unused") as client,
    ):
        runner = client.beta.messages.tool_runner(
            model="claude",
            max_tokens=99,
            tools=tools(toolset),
            messages=GO,
        )
        check_runner(played, runner.until_done())
        assert run_sync(toolset, uses(("bash", {"command": "echo hi"})))[0]["content"] == "hi"


def test_the_program_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.input", lambda question: "y")
    with MessagesServer(uses(("bash", {"command": "touch made"})), says("They pass.")) as played:
        exec(program("Anthropic SDK").replace("http://localhost:8080", played.base_url), {"__name__": "program"})
    assert capsys.readouterr().out == "They pass.\n"
    assert (tmp_path / "made").exists()
