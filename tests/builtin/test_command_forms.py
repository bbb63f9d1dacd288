"""Every form in which models say a command or a patch: run alike, shown alike, and seen alike by hooks."""

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, Toolset
from ferrule.builtin.command_forms import as_argv, as_script, patch_text
from ferrule.protocol.items import read_item
from ferrule.protocol.settings import ProviderSettings
from ferrule.protocol.specs import ShellTool, Wire
from ferrule.rendering.calls import CommandCall, PatchCall, PatchedFile, call_line, read_call
from ferrule.session.hooks import HookInput, HookOutput, PythonHook
from ferrule.testing import ScriptedModel
from ferrule.testing.steps import StepLike
from tests.cli.places import forker
from tests.cli.warm import Warm, WarmPlace
from tests.session.conversations import Place, call, chunks, items, said

__all__ = ["forker"]

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
SCRIPT = f"apply_patch <<'EOF'\n{PATCH}EOF\n"
FORMS: list[dict[str, Any]] = [
    {"input": PATCH},
    {"patch": PATCH},
    {"command": ["apply_patch", PATCH]},
    {"cmd": ["apply_patch", PATCH]},
    {"command": PATCH},
    {"command": SCRIPT},
    {"command": ["bash", "-lc", SCRIPT]},
    {"input": SCRIPT},
    {"input": json.dumps({"patch": PATCH})},
    {"diff": PATCH},
    {"patch_text": "\n" + PATCH},
]


def function(name: str, arguments: object) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": json.dumps(arguments)}


def custom(text: str) -> dict[str, Any]:
    return {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": text}


def shown(item: dict[str, Any]) -> str:
    made = read_call(read_item(json.dumps(item)).view)
    assert made is not None
    return call_line(made)


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-4.1"])
@pytest.mark.parametrize("form", FORMS)
def test_f20_a_patch_is_read_in_every_form(model: str, form: dict[str, Any], tmp_path: Path) -> None:
    with Toolset.for_model(model, cwd=tmp_path, sandbox="danger-full-access", tools=["apply_patch"]) as tools:
        texts = [json.dumps(form), *(value for value in form.values() if isinstance(value, str))]
        for item in (function("apply_patch", form), *map(custom, texts)):
            [answer] = tools.run_sync([item])
            assert (tmp_path / "new.txt").read_text() == "hello\n", (item, answer)
            assert shown(item) == "Edit new.txt"
            (tmp_path / "new.txt").unlink()


@pytest.mark.parametrize("wire", ["responses", "chat"])
@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-4.1"])
@pytest.mark.parametrize("form", FORMS[:4])
async def test_f20_over_both_wires(wire: Wire, model: str, form: dict[str, Any], tmp_path: Path) -> None:
    steps: list[StepLike]
    if wire == "chat":
        steps = [chunks(call(name="apply_patch", arguments=json.dumps(form)), finish="tool_calls"), "done"]
    else:
        steps = [items(function("apply_patch", form)), items(said("done"))]
    with ScriptedModel(steps) as server:
        await Place(tmp_path).talk(server, wire, "go", model=model, tools=["apply_patch"])
    assert (tmp_path / "new.txt").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("tools", "name", "arguments"),
    [
        (["shell"], "shell", {"command": ["apply_patch", PATCH]}),
        (["shell"], "shell", {"cmd": ["bash", "-lc", SCRIPT]}),
        (["shell"], "shell", {"command": SCRIPT}),
        (["shell_command"], "shell_command", {"command": SCRIPT}),
        (["shell_command"], "shell_command", {"command": ["apply_patch", PATCH]}),
        (["exec_command"], "exec_command", {"cmd": SCRIPT}),
        (["exec_command"], "exec_command", {"command": ["apply_patch", PATCH]}),
    ],
)
def test_f19_a_patch_in_a_command_needs_no_offered_patch_tool(
    tools: list[str], name: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    with Toolset.for_model("gpt-4.1", cwd=tmp_path, sandbox="workspace-write", tools=tools) as made:
        assert [spec["name"] for spec in made.specs()] == tools
        assert [key for key in made.current()[1] if key == (None, "apply_patch")] == []
        [answer] = made.run_sync([function(name, arguments)])
        assert (tmp_path / "new.txt").read_text() == "hello\n", answer
        assert "A new.txt" in answer["output"]
    assert shown(function(name, arguments)) == "Edit new.txt"


def test_f19_nor_do_native_commands(tmp_path: Path) -> None:
    local = {"type": "local_shell_call", "call_id": "a", "action": {"type": "exec", "command": ["apply_patch", PATCH]}}
    native = {"type": "shell_call", "call_id": "b", "action": {"commands": [SCRIPT]}, "environment": {"type": "local"}}
    with Toolset.for_model(
        "gpt-4.1", cwd=tmp_path, sandbox="danger-full-access", tools=["local_shell", ShellTool()]
    ) as made:
        for item in (local, native):
            made.run_sync([item])
            assert (tmp_path / "new.txt").read_text() == "hello\n"
            assert shown(item) == "Edit new.txt"
            (tmp_path / "new.txt").unlink()


def test_f19_a_patch_stays_confined(tmp_path: Path) -> None:
    with Toolset.for_model("gpt-4.1", cwd=tmp_path, sandbox="read-only", tools=["shell"]) as made:
        [answer] = made.run_sync([function("shell", {"command": ["apply_patch", PATCH]})])
    assert "read-only" in answer["output"] and not (tmp_path / "new.txt").exists()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("shell", {"cmd": ["bash", "-lc", "echo two words"]}),
        ("shell", {"command": ["bash", "-lc", "echo two words"]}),
        ("shell", {"command": "echo two words"}),
        ("shell", {"cmd": "echo two words"}),
        ("shell_command", {"cmd": "echo two words"}),
        ("shell_command", {"command": ["bash", "-lc", "echo two words"]}),
        ("exec_command", {"command": "echo two words"}),
        ("exec_command", {"cmd": ["bash", "-lc", "echo two words"]}),
    ],
)
def test_f18_a_command_in_any_form_runs_and_is_shown(name: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    item = function(name, arguments)
    assert shown(item) == "$ echo two words"
    with Toolset.for_model("gpt-4.1", cwd=tmp_path, sandbox="danger-full-access", tools=[name]) as made:
        [answer] = made.run_sync([item])
    output = answer["output"]
    assert (json.loads(output)["output"] if name == "shell" else output).endswith("two words\n")
    assert "two words" not in output.replace("two words\n", "").replace("two words\\n", "")


def test_f18_a_patch_in_a_command_is_shown_as_one() -> None:
    made = read_call(read_item(json.dumps(function("shell", {"command": ["bash", "-lc", f"cd sub && {SCRIPT}"]}))).view)
    assert made == PatchCall((PatchedFile("add", "sub/new.txt"),))
    bare = read_call(read_item(json.dumps(function("shell", {"command": [PATCH]}))).view)
    assert isinstance(bare, CommandCall)


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_f18_json_and_text_show_what_it_is(wire: Wire, tmp_path: Path, forker: Warm) -> None:
    place = WarmPlace(tmp_path, tmp_path / "user" / ".ferrule", forker)
    for arguments, kind in (
        ({"command": ["apply_patch", PATCH]}, "file_change"),
        ({"cmd": ["bash", "-lc", "echo two words"]}, "command_execution"),
    ):
        with ScriptedModel([[function("shell", arguments)], "done"]) as server:
            flags = ["--base-url", server.base_url, "--wire", wire, "-m", "m", "-s", "danger-full-access"]
            ran = place.run("exec", "--json", "-c", 'tools=["shell"]', *flags, "go")
        [done] = [item for item in ran.items() if item["type"] == kind]
        assert done["status"] == "completed", ran.out
        if kind == "file_change":
            assert done["changes"] == [{"path": str(tmp_path / "new.txt"), "kind": "add"}]
        else:
            assert (done["command"], done["exit_code"]) == ("bash -lc 'echo two words'", 0)


async def test_f18_hooks_see_the_command_in_any_form(tmp_path: Path) -> None:
    seen: list[HookInput] = []

    async def look(given: HookInput) -> HookOutput:
        seen.append(given)
        return HookOutput()

    steps: list[StepLike] = [
        items(function("shell", {"cmd": ["echo", "x"]})), items(function("apply_patch", {"patch": PATCH})), "done",
    ]  # fmt: skip
    with ScriptedModel(steps) as server:
        provider = ProviderSettings(name="server", base_url=server.base_url, wire_api="responses")
        await Agent(
            "gpt-4.1", provider=provider, cwd=tmp_path, sandbox="danger-full-access", tools=["shell", "apply_patch"],
            hooks=[PythonHook("PreToolUse", look)],
        ).run("go")  # fmt: skip
    assert [(one.tool_name, one.tool_input) for one in seen] == [
        ("Bash", {"command": "echo x"}), ("apply_patch", {"command": PATCH}),
    ]  # fmt: skip


def test_forms_that_are_none_stay_as_they_are() -> None:
    assert as_script(3) == 3 and as_script(["a", 1]) == ["a", 1]
    assert as_script(["ls", "a b"]) == "ls 'a b'"
    assert as_argv(None) is None
    assert patch_text({}) is None and patch_text([]) is None and patch_text({"input": 3}) is None
    assert patch_text("{not json") == "{not json"
