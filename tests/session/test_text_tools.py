"""`tool_calls = "text"` from end to end: `Agent`; the model is a script that writes its calls."""

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import ProviderSettings
from ferrule.testing import ScriptedModel

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch"
PATCH_CALL = f"<tool_call>\n<function=apply_patch>\n<parameter=input>\n{PATCH}\n</parameter>\n</function>\n</tool_call>"


def called(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def agent(model: ScriptedModel, cwd: Path, **more: Any) -> Agent:
    provider = ProviderSettings(name="box", base_url=model.base_url, tool_calls="text")
    return Agent(
        "scripted-model", provider=provider, cwd=cwd, sandbox="danger-full-access", approval_policy="never", **more
    )


async def test_parallel_calls_run_and_their_outputs_come_back_as_text(tmp_path: Path) -> None:
    steps = ["I do it.\n" + called("shell_command", command="echo one; echo two") + "\n" + PATCH_CALL, "Done."]
    with ScriptedModel(steps) as model:
        result = await agent(model, tmp_path).run("go")
        first, second = (json.loads(request.raw) for request in model.requests)
    assert result.text == "Done." and (tmp_path / "new.txt").read_text() == "hello\n"
    assert [call.name for call in result.tool_calls] == ["shell_command", "apply_patch"]
    assert all(call.success for call in result.tool_calls)
    assert "tools" not in first and "tools" not in second
    outputs = second["messages"][-1]
    assert outputs["role"] == "user" and "one\ntwo" in outputs["content"]
    assert outputs["content"].count("<tool_response>") == 2


async def test_a_broken_call_is_told_how_to_be_written_and_not_run(tmp_path: Path) -> None:
    broken = '<tool_call>{"name": "shell_command", "arguments": {"command": "touch made" oops}}</tool_call>'
    with ScriptedModel([broken, called("shell_command", command="touch right"), "Done."]) as model:
        result = await agent(model, tmp_path).run("go")
        told = json.loads(model.requests[1].raw)["messages"][-1]["content"]
    assert result.text == "Done." and sorted(path.name for path in tmp_path.iterdir()) == ["right"]
    assert "could not be read" in told and '{"name": "NAME", "arguments"' in told and "oops" in told


async def test_an_example_ends_the_turn_and_does_not_run(tmp_path: Path) -> None:
    example = f"To make a file I would write:\n```\n{called('shell_command', command='touch made')}\n```\nShall I?"
    with ScriptedModel([example]) as model:
        result = await agent(model, tmp_path).run("how?")
    assert result.text == example and not list(tmp_path.iterdir())


async def test_the_responses_wire_has_no_calls_as_text(tmp_path: Path) -> None:
    provider = ProviderSettings(name="box", base_url="http://127.0.0.1:9/v1", tool_calls="text", wire_api="responses")
    with pytest.raises(UsageError, match="wire_api"):
        await Agent("m", provider=provider, cwd=tmp_path).run("go")
