"""`python` calls tools, under the rules that hold for `js_repl`: each is approved, counted and cancelled as its own."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from ferrule import Agent, tool
from ferrule.protocol.content import InputImage, text_of
from ferrule.protocol.events import ExecApproval, ExecCommandBegin, ExecCommandEnd
from ferrule.protocol.items import FunctionCallOutput, ItemView
from ferrule.protocol.profiles import ModelProfile
from ferrule.session.session import Session
from ferrule.session.sources import ToolLike
from tests.builtin.conftest import Benches
from tests.builtin.js import JS, needs_node
from tests.builtin.test_python import chosen
from tests.builtin.workbench import Bench
from tests.process.cells import PNG, URL
from tests.processes import alive, until
from tests.session.models import InProcessModel, calls, says


@pytest.fixture
def bench(benches: Benches) -> Bench:
    others = ("shell_command", "apply_patch", "update_plan", "view_image")
    seeing = msgspec.structs.replace(chosen(benches.cwd), profile=ModelProfile(name="seeing", image_input=True))
    return benches("python", *JS, *others, state=seeing)


async def run(bench: Bench, code: str) -> str:
    return await bench.call("python", code=code)


async def test_tools_are_called_from_inside(bench: Bench, tmp_path: Path) -> None:
    assert (await run(bench, "call_tool('shell_command', {'command': 'echo hi'})")).endswith("Output:\\nhi\\n'")
    assert await run(bench, "call_tool('update_plan', {'plan': []})") == "'Plan updated'"
    patch = "*** Begin Patch\n*** Add File: new.txt\n+text\n*** End Patch"
    assert "A new.txt" in await run(bench, f"call_tool('apply_patch', {{'input': {patch!r}}})")
    assert (tmp_path / "new.txt").read_text() == "text\n"
    failed = await bench.output("python", code="call_tool('update_plan', {})")
    assert failed.success is False and "\nToolError: " in failed.text and "plan" in failed.text
    assert "\nToolError: unsupported call: nope" in await run(bench, "call_tool('nope')")
    for name in ("python", "python_reset"):
        assert "\nToolError: python cannot invoke itself" in await run(bench, f"call_tool('{name}')")
    (tmp_path / "a.png").write_bytes(PNG)
    seen = await bench.output("python", code="display(*call_tool('view_image', {'path': 'a.png'}))")
    assert isinstance(seen.body, tuple) and InputImage(image_url=URL) in seen.body


async def test_freeform_text_reaches_a_freeform_tool(benches: Benches, tmp_path: Path) -> None:
    state = msgspec.structs.replace(chosen(tmp_path), profile=ModelProfile(name="test", apply_patch="freeform"))
    bench = benches("python", "apply_patch", state=state)
    patch = "*** Begin Patch\n*** Add File: new.txt\n+text\n*** End Patch"
    assert "A new.txt" in await run(bench, f"call_tool('apply_patch', {patch!r})")


async def test_each_call_has_an_id_of_its_own(bench: Bench) -> None:
    cell = "from threading import Thread as T\nt = [T(target=call_tool, args=('shell_command', {'command': 'true'}))"
    await run(bench, f"{cell} for _ in range(2)]\nfor each in t: each.start()\nfor each in t: each.join()")
    begun, ended = bench.host.told(ExecCommandBegin), bench.host.told(ExecCommandEnd)
    assert {event.call_id for event in begun} == {event.call_id for event in ended} == {"call_1_1", "call_1_2"}


@needs_node
async def test_kernels_call_each_other_but_never_in_a_circle(bench: Bench) -> None:
    inner = json.dumps({"code": "call_tool('js_repl', {'code': '1'})"})
    assert "js_repl cannot invoke itself" in await bench.call("js_repl", code=f"await ferrule.tool('python', {inner})")
    inner = json.dumps({"code": "await ferrule.tool('python', {code: '1'})"})
    assert "python cannot invoke itself" in await run(bench, f"print(call_tool('js_repl', {inner}))")
    inner = json.dumps({"code": "await ferrule.tool('shell_command', {command: 'echo deep'})"})
    assert "Output:\ndeep" in await run(bench, f"print(call_tool('js_repl', {inner}))")
    assert "call_3_1_1" in {event.call_id for event in bench.host.told(ExecCommandBegin)}


def cell(code: str) -> ItemView:
    return calls("python", json.dumps({"code": code}))


def agent(cwd: Path, code: str, *tools: ToolLike, **more: object) -> Agent:
    """An agent whose model evaluates one cell."""
    chosen = ["python", "shell_command", *tools]
    model = InProcessModel([cell(code)], [says("Done.")])
    return Agent(model, cwd=cwd, sandbox="danger-full-access", tools=chosen, **more)  # type: ignore[arg-type]


def answer(session: Session) -> str:
    (said,) = (text_of(item.view.output) for item in session.history.items if isinstance(item.view, FunctionCallOutput))
    return said


@pytest.mark.usefixtures("own_home")
async def test_each_call_is_approved_by_itself(tmp_path: Path) -> None:
    asked: list[ExecApproval] = []

    def decide(question: ExecApproval) -> bool:
        asked.append(question)
        return question.text != "touch no"

    code = """
for command in "echo yes", "touch no":
    try: print(call_tool("shell_command", {"command": command}))
    except ToolError as error: print(error)
"""
    async with await agent(tmp_path, code, approval_policy="untrusted", on_approval=decide).open() as session:
        await session.run("go")
        assert "Output:\nyes" in answer(session) and answer(session).endswith("\nexec command rejected by user")
    assert [question.text for question in asked][1:] == ["touch no"] and asked[1].call_id == "call_1_2"
    assert "call_tool" in asked[0].text and not (tmp_path / "no").exists()


@pytest.mark.usefixtures("own_home")
async def test_calls_of_cells_count(tmp_path: Path) -> None:
    ran: list[int] = []

    @tool
    def count(number: int) -> str:
        """Count."""
        ran.append(number)
        return "counted"

    code = "for n in range(5): print(call_tool('count', {'number': n}))"
    async with await agent(tmp_path, code, count, max_tool_calls=3).open() as session:
        assert (await session.run("go")).text == "Done."
        assert answer(session).endswith(
            "ToolError: not run: the limit of 3 tool calls of a turn is reached (max_tool_calls)"
        )
    assert ran == [0, 1]


@pytest.mark.usefixtures("own_home")
async def test_interrupting_the_turn_ends_the_call_of_a_cell(tmp_path: Path) -> None:
    code = "kept = 1\ncall_tool('shell_command', {'command': 'echo $$ > new; mv new pid; exec sleep 60'})"
    async with await agent(tmp_path, code).open() as session:
        turn = asyncio.create_task(session.run("go"))
        await until((tmp_path / "pid").exists)
        assert session.interrupt()
        assert (await turn).aborted
        assert not alive(int((tmp_path / "pid").read_text()))
        assert (await session.toolset.call("python", {"code": "kept"})).text == "1"
