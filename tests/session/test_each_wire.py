"""What a session does is the same over each wire: a patch, an approval, an image, an interrupt, a resume."""

import asyncio
from pathlib import Path

import pytest

from ferrule import Agent, tool
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.specs import Wire
from ferrule.testing import Request, ScriptedModel, custom_tool_call, function_call, reasoning, step

WIRES: tuple[Wire, ...] = ("responses", "chat", "messages")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR4nGNgAAIAAAUAAXpeqz8AAAAASUVORK5CYII="
PATCH = '*** Begin Patch\n*** Add File: ü.txt\n+"quoted" \\ 🔧\n*** End Patch\n'


@tool(read_only=True)
async def picture() -> tuple[InputText | InputImage, ...]:
    return (InputText("a picture"), InputImage(image_url=f"data:image/png;base64,{PIXEL}"))


def agent(folder: Path, server: ScriptedModel, wire: Wire, **more: object) -> Agent:
    fields: dict[str, object] = {"sandbox": "danger-full-access", "approval_policy": "never"} | more
    return Agent("gpt-5.5", cwd=folder, base_url=server.base_url, wire=wire, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_patch_is_applied_and_one_that_does_not_fit_is_told(tmp_path: Path, wire: Wire) -> None:
    lost = custom_tool_call("apply_patch", "*** Begin Patch\n*** Delete File: none.txt\n*** End Patch\n")
    script = [
        step(custom_tool_call("apply_patch", PATCH)),
        step(lost, expect="ü.txt"),
        step("Done.", expect="none.txt"),
    ]
    with ScriptedModel(script) as server:
        result = await agent(tmp_path, server, wire, tools=["apply_patch"]).run("go")
        server.check()
    assert (tmp_path / "ü.txt").read_text() == '"quoted" \\ 🔧\n'
    assert [call.success for call in result.tool_calls] == [True, False]
    failed = server.requests[2].raw.count(b'"is_error":true')
    assert failed == (1 if wire == "messages" else 0) and b'"failed"' not in server.requests[2].raw


@pytest.mark.parametrize("wire", WIRES)
async def test_what_is_asked_for_is_run_and_what_is_refused_is_told(tmp_path: Path, wire: Wire) -> None:
    asked: list[str] = []

    def decide(question: ExecApproval) -> bool:
        asked.append(question.text)
        return "made" in question.text

    both = [function_call("shell_command", {"command": f"touch {name}"}) for name in ("made", "other")]
    with ScriptedModel([both, step("Done.", expect="rejected by user")]) as server:
        more: dict[str, object] = {"approval_policy": "untrusted", "on_approval": decide, "tools": ["shell_command"]}
        await agent(tmp_path, server, wire, **more).run("go")
        server.check()
    assert sorted(asked) == ["touch made", "touch other"]
    assert (tmp_path / "made").exists() and not (tmp_path / "other").exists()


@pytest.mark.parametrize("wire", WIRES)
async def test_an_image_of_a_tool_and_one_of_the_user_are_sent(tmp_path: Path, wire: Wire) -> None:
    with ScriptedModel([[function_call("picture")], step("I see.", expect="a picture")]) as server:
        (tmp_path / "mine.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 40)
        run = agent(tmp_path, server, wire, tools=[picture])
        assert (await run.run("look", images=[tmp_path / "mine.png"])).text == "I see."
        server.check()
    assert server.requests[1].raw.count(PIXEL.encode()) == 1
    assert server.requests[1].raw.count(b"image/png") == 2


@pytest.mark.parametrize("wire", WIRES)
async def test_an_interrupt_leaves_a_history_that_the_server_takes(tmp_path: Path, wire: Wire) -> None:
    began = asyncio.Event()

    @tool(read_only=True)
    async def stalls() -> str:
        began.set()
        await asyncio.Event().wait()
        return "never"

    calls = step(reasoning(text="Hm"), "I look.", function_call("picture"), function_call("stalls"))
    with ScriptedModel([calls, step("Here.", expect="aborted by user")]) as server:
        async with await agent(tmp_path, server, wire, tools=[picture, stalls]).open() as session:
            running = asyncio.create_task(session.run("go"))
            await began.wait()
            assert session.interrupt()
            assert (await running).aborted
            assert (await session.run("are you there?")).text == "Here."
        server.check()


@pytest.mark.parametrize("wire", WIRES)
async def test_a_resumed_session_sends_what_it_had_sent(
    tmp_path: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    thought = reasoning(text="Hm", encrypted_content="c2ln")
    script = [step(thought, function_call(name)) for name in ("picture", "nope")] + [step("Done."), step("More.")]
    with ScriptedModel(script) as server:
        made = agent(tmp_path / "work", server, wire, tools=[picture], store=True)
        first = await made.run("go")
        async with await made.resume(first.session_id) as session:
            assert (await session.run("and now?")).text == "More."
        server.check()
    before, now = server.requests[2:]
    assert unmarked(now).startswith(unmarked(before)[:-1])


def unmarked(request: Request) -> str:
    """The items of a request without marks for the cache."""
    return str(request.items).replace(", 'cache_control': {'type': 'ephemeral'}", "")
