"""What the model is offered fits who answers, and what its server knows."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule import Agent, ReviewDecision, ToolAnnotations, Toolset, tool
from ferrule.dispatch.security import RuleBased
from ferrule.protocol.approvals import SecurityRisk
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.permissions import AskForApproval
from ferrule.protocol.settings import ModelSettings, ProviderSettings, Settings
from ferrule.protocol.specs import ApplyPatchTool, ContainerAuto, LocalShell, ShellTool
from ferrule.session.opening import open_session
from ferrule.testing import ScriptedModel
from ferrule.tools.effects import ToolEffect
from ferrule.tools.questions import NoAnswer
from tests.cli.command import Place
from tests.session.models import InProcessModel, calls, says

TOOLS = ["shell_command", "request_user_input"]


def offered(toolset: Toolset) -> tuple[bool, bool]:
    """Whether the model is offered more rights, and whether it may ask the user."""
    specs = {str(spec["name"]): spec for spec in toolset.specs()}
    shell = specs["shell_command"]
    escalates = "sandbox_permissions" in shell["parameters"]["properties"]
    assert ("the user is asked" in shell["description"]) is escalates
    return escalates, "request_user_input" in specs


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"approval_policy": "on-request"}, (False, False)),
        ({"approval_policy": "on-request", "on_event": print}, (False, False)),
        ({"approval_policy": "on-request", "on_approval": lambda question: ReviewDecision.DENIED}, (True, False)),
        ({"on_approval": lambda question: ReviewDecision.DENIED}, (True, False)),
        ({"approval_policy": "never", "on_approval": lambda question: ReviewDecision.DENIED}, (False, False)),
        ({"approval_policy": "on-request", "on_question": lambda question: NoAnswer("no")}, (False, True)),
    ],
)
async def test_f17_only_what_somebody_answers_is_offered(
    tmp_path: Path, more: dict[str, Any], found: tuple[bool, bool]
) -> None:
    with Toolset.for_model("gpt-4.1", cwd=tmp_path, tools=TOOLS, **more) as toolset:
        assert offered(toolset) == found
    async with await Agent(InProcessModel([says("x")]), cwd=tmp_path, tools=TOOLS, **more).open() as session:
        assert offered(session.toolset) == found


def test_f17_exec_offers_neither(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    place = Place(tmp_path / "work", tmp_path / "user" / ".ferrule")
    with ScriptedModel(["done"]) as model:
        flags = ["--base-url", model.base_url, "-m", "m", "-a", "on-request", "-s", "workspace-write"]
        done = place.run("exec", *flags, "-c", 'tools=["shell_command", "request_user_input"]', "go")
    assert done.code == 0, done.err
    assert model.requests[0].tool_names == ["shell_command"]
    assert "sandbox_permissions" not in str(model.requests[0].body["tools"])


async def test_f17_a_door_that_answers_is_offered_both(tmp_path: Path) -> None:
    class Door:
        can_answer = True

        def on_event(self, event: object) -> None:
            pass

    settings = Settings(cwd=str(tmp_path), home=str(tmp_path / "home"), ephemeral=True)
    async with await open_session(settings, Door(), model=InProcessModel([says("x")]), tools=TOOLS) as session:
        assert offered(session.toolset) == (True, True)


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_f21_a_native_shell_falls_back_where_the_server_has_none(wire: str, tmp_path: Path) -> None:
    with ScriptedModel(["done"]) as model:
        provider = ProviderSettings(
            name="server", base_url=model.base_url, wire_api=wire,  # type: ignore[arg-type]  # one of the two
        )  # fmt: skip
        settings = Settings(
            cwd=str(tmp_path), home=str(tmp_path / "home"), ephemeral=True, provider=provider,
            model=ModelSettings(model="codex-mini-latest"), approval_policy=AskForApproval.NEVER,
        )  # fmt: skip
        async with await open_session(settings) as session:
            assert (await session.run("go")).text == "done"
    names = model.requests[0].tool_names
    assert ("shell_command" in names, "local_shell" in names) == (wire == "chat", wire == "responses")


NATIVE: list[tuple[list[object], set[str]]] = [
    ([LocalShell()], {"shell_command"}),
    ([ShellTool(), ApplyPatchTool()], {"shell_command", "apply_patch"}),
    ([LocalShell(), "shell_command"], {"shell_command"}),
    ([ShellTool(environment=ContainerAuto()), "view_image"], {"view_image"}),
]


@pytest.mark.parametrize(("tools", "names"), NATIVE)
def test_f21_a_toolset_for_chat_has_functions_for_native_tools(
    tmp_path: Path, tools: list[object], names: set[str]
) -> None:
    with Toolset.for_model("m", cwd=tmp_path, sandbox="danger-full-access", tools=tools) as toolset:
        chat = toolset.specs("chat")
        found = [spec["function"]["name"] for spec in chat]
        assert set(found) == names and len(found) == len(names)
        if "shell_command" in names:
            output = toolset.call_sync("shell_command", {"command": "echo here"})
            assert (output.success, output.text.endswith("\nhere\n")) == (True, True)
            called = {"name": "shell_command", "arguments": '{"command": "echo there"}'}
            [answer] = toolset.run_sync([{"id": "c", "type": "function", "function": called}])
            assert "there" in str(answer)


def test_f21_the_usual_model_with_a_native_shell_has_one_over_chat(tmp_path: Path) -> None:
    with Toolset.for_model("codex-mini-latest", cwd=tmp_path) as toolset:
        assert "shell_command" in [spec["function"]["name"] for spec in toolset.specs("chat")]


@pytest.mark.parametrize(
    ("hints", "risk"),
    [
        (ToolAnnotations(destructiveHint=True), SecurityRisk.HIGH),
        (ToolAnnotations(destructiveHint=False), SecurityRisk.LOW),
        (ToolAnnotations(readOnlyHint=True, destructiveHint=True), SecurityRisk.LOW),
    ],
)
def test_f23_the_hints_of_every_tool_count(hints: ToolAnnotations, risk: SecurityRisk) -> None:
    effect = ToolEffect(name="t", arguments="", annotations=hints)
    assert RuleBased().assess(effect, SecurityRisk.LOW) is risk


@pytest.mark.parametrize(("destroys", "asked"), [(True, ["tool"]), (False, [])])
async def test_f23_a_session_asks_about_a_tool_that_may_destroy(
    tmp_path: Path, destroys: bool, asked: list[str]
) -> None:
    @tool(annotations=ToolAnnotations(destructiveHint=destroys))
    def wipe() -> str:
        return "wiped"

    shown: list[str] = []

    def answer(question: ExecApproval) -> ReviewDecision:
        shown.append(question.kind)
        return ReviewDecision.APPROVED

    model = InProcessModel([calls("wipe", '{"security_risk": "low"}')], [says("done")])
    agent = Agent(model, cwd=tmp_path, sandbox="danger-full-access", tools=[wipe], on_approval=answer)
    agent.settings = msgspec.structs.replace(agent.settings, confirmation="risky")
    async with await agent.open() as session:
        assert (await session.run("go")).text == "done"
    assert shown == asked


async def test_f25_a_plan_has_one_step_in_progress(tmp_path: Path) -> None:
    async with Toolset.for_model("gpt-4.1", cwd=tmp_path, tools=["update_plan"]) as tools:
        steps = [{"step": "a", "status": "in_progress"}, {"step": "b", "status": "in_progress"}]
        refused = await tools.call("update_plan", {"plan": steps})
        assert refused.success is False and "at most one step can be in_progress" in refused.text
        steps[1]["status"] = "pending"
        assert (await tools.call("update_plan", {"plan": steps})).text == "Plan updated"
