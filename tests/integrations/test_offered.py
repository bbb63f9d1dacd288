"""What all adapters share: tools as functions, decisions for what was shown, results in parts."""

import asyncio
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule import ToolAnnotations, Toolset, tool
from ferrule.integrations.offered import Calls, image_data, offered, parts_of
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.errors import UsageError
from ferrule.protocol.payload import ToolOutput
from tests.processes import until

TOUCH = {"command": "touch made"}


def opened(tmp_path: Path, *tools: object, policy: str = "untrusted", model: str = "gpt-4.1") -> Toolset:
    """A toolset without a sandbox."""
    return Toolset.for_model(
        model, cwd=tmp_path, sandbox="danger-full-access", approval_policy=policy, tools=tools or ("shell_command",)
    )


def test_tools_are_functions_with_what_they_declare(tmp_path: Path) -> None:
    @tool(name="näh and näh", annotations=ToolAnnotations(readOnlyHint=True))
    def look(name: str) -> str:
        """Look at it."""
        return name

    with opened(tmp_path, "apply_patch", "local_shell", look, model="gpt-5.5") as tools:
        patch, shell, looking = offered(tools)
        assert (patch.name, patch.parameters["required"]) == ("apply_patch", ["input"])
        assert patch.annotations.destructiveHint
        assert (shell.name, shell.called) == ("shell_command", "shell_command")
        assert (looking.name, looking.description) == ("n_h_and_n_h", "Look at it.")
        assert looking.annotations.readOnlyHint
        assert tools.call_sync(looking.called, {"name": "ö"}).text == "ö"


def test_tools_with_one_name_for_the_server_are_refused(tmp_path: Path) -> None:
    @tool(name="a b")
    def first() -> str:
        """One."""
        return ""

    @tool(name="a_b")
    def second() -> str:
        """Two."""
        return ""

    with opened(tmp_path, first, second) as tools, pytest.raises(UsageError, match="two tools are called 'a_b'"):
        offered(tools)


async def test_the_last_question_before_the_answer_is_the_one_that_was_answered(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\nold\n")
    patch = {"input": "*** Begin Patch\n*** Update File: a.txt\n@@\n-old\n+new\n*** End Patch"}
    async with opened(tmp_path, "apply_patch") as tools:
        calls = Calls(tools)
        refused = await calls.question("apply_patch", patch, "c")
        (tmp_path / "a.txt").write_text("two\nold\n")
        shown = await calls.question("apply_patch", patch, "c")
        assert shown is not None and shown != refused
        (tmp_path / "a.txt").write_text("three\nold\n")
        assert await calls.question("apply_patch", patch, "c", decided=True) == shown
        assert "what was approved is not" in (await calls.run("apply_patch", patch, "c", True)).text
        assert (await calls.run("apply_patch", patch, "c", True)).success


async def test_after_a_restart_the_decision_is_for_these_arguments(tmp_path: Path) -> None:
    async with opened(tmp_path) as tools:
        assert await Calls(tools).question("shell_command", TOUCH, "c") is not None
        assert (await Calls(tools).run("shell_command", TOUCH, "c", True)).success
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "arguments",
    ["[" * 100_000, '{"command": ' * 100_000, "{", "", "1" * 10_000],
    ids=["lists", "objects", "cut", "nothing", "number"],
)
async def test_arguments_that_are_none_are_told_to_the_model(tmp_path: Path, arguments: str) -> None:
    async with opened(tmp_path) as tools:
        calls = Calls(tools)
        assert await calls.question("shell_command", arguments, "c") is None
        assert (await calls.run("shell_command", arguments, "c", True)).success is False


def test_calls_come_from_any_loop_to_a_toolset_that_plain_code_has_opened(tmp_path: Path) -> None:
    with opened(tmp_path) as tools:
        calls = Calls(tools)
        assert asyncio.run(calls.question("shell_command", TOUCH, "c")) is not None
        assert asyncio.run(calls.run("shell_command", TOUCH, "c", True)).success
    assert (tmp_path / "made").exists()


async def test_calls_of_a_tool_that_runs_alone_wait_for_each_other(tmp_path: Path) -> None:
    async with opened(tmp_path, "bash", policy="never") as tools:
        calls = Calls(tools)
        commands = [{"command": f"x={number}; sleep 0.02; echo $x"} for number in range(3)]
        outputs = await asyncio.gather(*(calls.run("bash", one, str(number)) for number, one in enumerate(commands)))
    assert [output.text for output in outputs] == ["0", "1", "2"]


async def test_a_tool_that_runs_alone_may_call_another(tmp_path: Path) -> None:
    made: list[Calls] = []

    @tool
    async def outer(name: str) -> str:
        """Call the other one."""
        return (await made[0].run("inner", {"name": name}, "inner")).text

    @tool
    async def inner(name: str) -> str:
        """Be called."""
        return name

    async with opened(tmp_path, outer, inner, policy="never") as tools:
        made.append(Calls(tools))
        assert (await made[0].run("outer", {"name": "ö"}, "outer")).text == "ö"


async def test_a_call_that_is_cut_off_by_the_closing_says_so(tmp_path: Path) -> None:
    tools = opened(tmp_path, policy="never")
    command = {"command": "touch began; sleep 50", "timeout_ms": 60_000}
    call = asyncio.create_task(Calls(tools).run("shell_command", command, "c"))
    await until((tmp_path / "began").exists)
    await tools.aclose()
    output = await call
    assert output.success is False and "closed" in output.text


def test_an_output_has_parts() -> None:
    image = InputImage(image_url="data:image/png;base64,aGk=")
    assert parts_of(ToolOutput("hi")) == (InputText("hi"),)
    assert parts_of(ToolOutput(" ")) == (InputText("(no output)"),)
    assert parts_of(ToolOutput((InputText(""), image))) == (image,)
    assert image_data(image) == ("image/png", b"hi")
    for other in ("https://example.org/a.png", "data:image/png;base64,*", None):
        assert image_data(InputImage(image_url=other)) is None


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("openai_agents", "agents", "openai-agents"), ("anthropic", "anthropic.lib.tools", "anthropic")],
)
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, module: str, package: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"ferrule.integrations.{module}", raising=False)
    with pytest.raises(UsageError, match=rf"needs the extra `{extra}`: pip install 'ferrule\[{extra}\]'"):
        importlib.import_module(f"ferrule.integrations.{module}")


def test_the_room_is_light() -> None:
    script = "import sys, ferrule.integrations; print(len([m for m in sys.modules if m.startswith('ferrule')]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 5
