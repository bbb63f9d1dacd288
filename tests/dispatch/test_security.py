"""The model's estimate of a call's risk, and when risk is reason enough to ask."""

from pathlib import Path

import pytest

from ferrule import RespondToModel, ToolAnnotations, ToolInvocation
from ferrule.dispatch.orchestrator import Orchestrator
from ferrule.dispatch.security import (
    AlwaysConfirm,
    ConfirmRisky,
    NeverConfirm,
    RuleBased,
    Security,
    pop_risk,
)
from ferrule.protocol.approvals import SecurityRisk
from ferrule.protocol.events import FileChange
from ferrule.protocol.items import FunctionCall
from ferrule.protocol.payload import CustomPayload, FunctionPayload, McpPayload
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess, ReviewDecision
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.settings import Confirmation, ModelSettings, Settings
from ferrule.session.offline import open_offline
from ferrule.session.runtime import build_runtime
from ferrule.session.sources import DefinitionSource
from ferrule.session.toolset import Toolset
from ferrule.tools.decorator import tool
from ferrule.tools.effects import CommandEffect, Effect, McpEffect, PatchEffect, ToolEffect
from ferrule.tools.questions import Decision
from tests.dispatch.test_orchestrator import AskingHost, World

LOW, MEDIUM, HIGH, UNKNOWN = SecurityRisk
HARMLESS = ToolAnnotations(destructiveHint=False)


def test_the_policies() -> None:
    assert [AlwaysConfirm().should_confirm(risk) for risk in SecurityRisk] == [True] * 4
    assert [NeverConfirm().should_confirm(risk) for risk in SecurityRisk] == [False] * 4
    assert [ConfirmRisky().should_confirm(risk) for risk in SecurityRisk] == [False, False, True, True]
    lenient = ConfirmRisky(threshold=MEDIUM, confirm_unknown=False)
    assert [lenient.should_confirm(risk) for risk in SecurityRisk] == [False, True, True, False]


def command(*argv: str) -> Effect:
    return CommandEffect(argv=argv, cwd="/")


@pytest.mark.parametrize(
    ("effect", "stated", "risk"),
    [
        (command("ls"), UNKNOWN, LOW),
        (command("ls"), HIGH, HIGH),
        (command("rm", "-rf", "/"), LOW, HIGH),
        (PatchEffect(cwd="/", changes=(FileChange("delete", "a"),), paths=("/a",)), LOW, MEDIUM),
        (PatchEffect(cwd="/", changes=(FileChange("add", "a"),), paths=("/a",)), UNKNOWN, LOW),
        (McpEffect(server="s", tool="t", arguments="", annotations=ToolAnnotations()), LOW, HIGH),
        (McpEffect(server="s", tool="t", arguments="", annotations=ToolAnnotations(readOnlyHint=True)), UNKNOWN, LOW),
        (McpEffect(server="s", tool="t", arguments="", annotations=HARMLESS), UNKNOWN, LOW),
        (ToolEffect(name="t", arguments="", annotations=HARMLESS), UNKNOWN, LOW),
        (ToolEffect(name="t", arguments="", annotations=ToolAnnotations(destructiveHint=True)), LOW, HIGH),
        (ToolEffect(name="t", arguments="", annotations=ToolAnnotations()), UNKNOWN, UNKNOWN),
        (ToolEffect(name="t", arguments="", annotations=ToolAnnotations()), MEDIUM, MEDIUM),
    ],
)
def test_facts_and_the_models_word(effect: Effect, stated: SecurityRisk, risk: SecurityRisk) -> None:
    assert RuleBased().assess(effect, stated) is risk


def test_the_estimate_is_taken_out_of_the_arguments() -> None:
    popped = pop_risk(ToolInvocation("c", "t", FunctionPayload('{"a":1,"security_risk":"high"}')))
    assert (popped.decoded, popped.risk) == ({"a": 1}, HIGH)
    loud = pop_risk(ToolInvocation("c", "t", FunctionPayload('{"a":1,"security_risk":"LOW"}')))
    assert (loud.decoded, loud.risk) == ({"a": 1}, LOW)
    mcp = pop_risk(ToolInvocation("c", "t", McpPayload("s", "t", '{"security_risk":"rather low"}')))
    assert (mcp.decoded, mcp.risk) == ({}, UNKNOWN)
    for payload in (FunctionPayload('{"a":1}'), FunctionPayload('{"security_risk'), CustomPayload("security_risk")):
        untouched = ToolInvocation("c", "t", payload)
        assert pop_risk(untouched) is untouched


async def test_a_model_that_is_asked_for_it_is_shown_the_field_and_its_call_runs(tmp_path: Path) -> None:
    @tool
    async def write(text: str) -> str:
        return f"wrote {text}"

    @tool(read_only=True)
    async def read() -> str:
        return "read"

    settings = Settings(cwd=str(tmp_path), home=str(tmp_path / "home"), sandbox_policy=DangerFullAccess())
    runtime = build_runtime(settings, ModelProfile(name="m", security_risk=True))
    toolset = Toolset(runtime, [DefinitionSource([write, read])])
    shown = {spec["name"]: spec["parameters"] for spec in toolset.specs()}
    assert "security_risk" in shown["write"]["required"]
    assert shown["write"]["properties"]["security_risk"]["enum"] == ["low", "medium", "high", "unknown"]
    assert "security_risk" not in shown["read"]["properties"]
    call = FunctionCall(call_id="c", name="write", arguments='{"text":"x","security_risk":"low"}')
    response = await toolset.dispatcher().respond(call)
    assert response is not None
    assert b"wrote x" in response.raw
    await toolset.aclose()


@pytest.mark.parametrize(
    ("model", "profile", "confirmation", "asked"),
    [
        ("gpt-5.5", None, "never", False),
        ("gpt-5.5", None, "risky", True),
        ("gpt-5.5", "openhands", "never", True),
        ("qwen3", None, "never", True),
        ("qwen3", "codex", "never", False),
    ],
)
async def test_who_is_asked_for_it(
    tmp_path: Path, model: str, profile: str | None, confirmation: Confirmation, asked: bool
) -> None:
    settings = Settings(
        cwd=str(tmp_path),
        home=str(tmp_path / "home"),
        model=ModelSettings(model=model),
        profile=profile,
        confirmation=confirmation,
        tools=("file_editor", "glob"),
    )
    session, _ = await open_offline(settings)
    shown = {spec["name"]: spec["parameters"]["properties"] for spec in session.toolset.specs()}
    assert [name for name, fields in shown.items() if "security_risk" in fields] == (["file_editor"] if asked else [])
    await session.aclose()


async def test_risk_is_a_reason_to_ask_where_the_user_wants_that(tmp_path: Path) -> None:
    world = World(tmp_path, DangerFullAccess(), AskForApproval.ON_REQUEST)
    security = Security(policy=ConfirmRisky())
    world.orchestrator = Orchestrator(world.orchestrator._plain, world.workspace, world.policies, security=security)
    effect = ToolEffect(name="t", arguments="{}", annotations=ToolAnnotations())
    host = AskingHost(Decision(ReviewDecision.APPROVED))
    await world.run(effect, host)
    assert len(host.questions) == 1
    await world.run(command("ls"), host)
    assert len(host.questions) == 1
    never = World(tmp_path, DangerFullAccess(), AskForApproval.NEVER)
    never.orchestrator = world.orchestrator
    with pytest.raises(RespondToModel, match="its risk is unknown, and the approval policy is never"):
        await never.run(effect, AskingHost())
