"""Programs that we start ourselves, where commands have put others of the same names into the front of PATH."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from ferrule import Toolset
from ferrule.builtin.js_repl.node import find_node, needed_node
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.permissions import DangerFullAccess, ReviewDecision, SandboxMode, WorkspaceWrite
from ferrule.protocol.settings import HookCommand
from ferrule.sandbox.policy import command_places
from ferrule.session.hooks import SessionHooks, hook_base

SYSTEM = "/usr/local/bin:/usr/bin:/bin"
NAMES = ("bash", "sh", "rg", "node", "git", "tool")
MODES = pytest.mark.parametrize("mode", list(SandboxMode))


class Planted:
    """A project whose active `.venv/bin` holds programs that say that they ran."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project, self.home = top / "project", top / "home"
        self.bin, self.ran = self.project / ".venv/bin", self.project / "ran"
        self.bin.mkdir(parents=True)
        self.ran.mkdir()
        for name in NAMES:
            self.plant(name)
        (self.project / "needle").write_text("needle\n")
        monkeypatch.setenv("FERRULE_HOME", str(self.home))
        monkeypatch.setenv("HOME", str(top))  # the start-up files of whoever runs this are not tested
        monkeypatch.setenv("PATH", f"{self.bin}:{SYSTEM}")
        monkeypatch.setenv("SHELL", "/bin/sh")

    def plant(self, name: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\necho planted\n/usr/bin/touch {self.ran}/{name}\n")
        (self.bin / name).chmod(0o755)

    def allow(self, *words: str) -> None:
        (self.home / "rules").mkdir(parents=True)
        (self.home / "rules/a.rules").write_text(f"prefix_rule(pattern={json.dumps(words)})\n")

    async def call(
        self,
        mode: SandboxMode,
        name: str,
        arguments: Mapping[str, object],
        policy: str = "never",
        asked: list[str] | None = None,
    ) -> str:
        """The answer of one call, where every question is answered by yes."""

        def approve(question: ExecApproval) -> ReviewDecision:
            (asked if asked is not None else []).append(question.text)
            return ReviewDecision.APPROVED

        toolset = Toolset.for_model(
            "gpt-5.5", cwd=self.project, tools=[name], sandbox=mode, approval_policy=policy, on_approval=approve
        )
        call = {"type": "function_call", "call_id": "1", "name": name, "arguments": json.dumps(arguments)}
        try:
            (output,) = await toolset.run([call])
        finally:
            await toolset.aclose()
        return str(output["output"])

    def nothing_ran(self) -> bool:
        return not os.listdir(self.ran)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planted:
    return Planted(tmp_path, monkeypatch)


@MODES
@pytest.mark.parametrize("name", ["grep_files", "grep", "glob"])
async def test_s09_searching(planted: Planted, mode: SandboxMode, name: str) -> None:
    found = await planted.call(mode, name, {"pattern": "needle"})
    assert "project/needle" in found and planted.nothing_ran()


@MODES
async def test_s09_searching_with_what_pip_installed_into_the_project(
    planted: Planted, mode: SandboxMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", SYSTEM)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(planted.bin))
    assert "project/needle" in await planted.call(mode, "grep_files", {"pattern": "needle"}) and planted.nothing_ran()


@MODES
@pytest.mark.skipif(find_node({"PATH": SYSTEM}).path is None, reason="Node is not installed")
async def test_s09_js_repl(planted: Planted, mode: SandboxMode) -> None:
    assert "planted" not in await planted.call(mode, "js_repl", {"code": "console.log(1)"}) and planted.nothing_ran()


def test_s09_js_repl_says_why_there_is_no_node(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    places = command_places(DangerFullAccess(), str(planted.project), str(planted.home))
    with pytest.raises(RespondToModel, match=f"{planted.bin}/node is not used: commands can write there"):
        needed_node({"PATH": str(planted.bin)}, places)


async def test_s09_python_of_a_project_is_confined_or_passed_over(planted: Planted) -> None:
    for name in ("python", "python3"):
        planted.plant(name)
    said = await planted.call(SandboxMode.DANGER_FULL_ACCESS, "python", {"code": "print('fine')"})
    assert "fine" in said and planted.nothing_ran()
    said = await planted.call(SandboxMode.READ_ONLY, "python", {"code": "print('fine')"})
    assert "does not start as a kernel" in said and planted.nothing_ran()


SHELLS: list[tuple[str, dict[str, object]]] = [
    ("shell", {"command": ["bash", "-lc", "echo fine"]}),
    ("shell", {"command": ["sh", "-c", "echo fine"]}),
    ("exec_command", {"cmd": "echo fine", "shell": "bash"}),
    ("exec_command", {"cmd": "echo fine"}),
    ("shell_command", {"command": "echo fine"}),
    ("execute_bash", {"command": "echo fine"}),
    ("bash", {"command": "echo fine"}),
]


@MODES
@pytest.mark.parametrize(("name", "arguments"), SHELLS, ids=[f"{n}{i}" for i, (n, _) in enumerate(SHELLS)])
async def test_s09_the_shell_of_a_command(
    planted: Planted, mode: SandboxMode, name: str, arguments: dict[str, object]
) -> None:
    said = await planted.call(mode, name, arguments)
    assert "fine" in said and "planted" not in said and planted.nothing_ran()


async def test_s09_the_shell_of_a_command_that_the_user_lets_out(planted: Planted) -> None:
    """People are shown the script alone, so the shell must be one."""
    asked: list[str] = []
    arguments = {"command": ["bash", "-c", "echo fine"], "sandbox_permissions": "require_escalated"}
    said = await planted.call(SandboxMode.READ_ONLY, "shell", arguments, "on-request", asked)
    assert asked == ["echo fine"] and "fine" in said and planted.nothing_ran()


@pytest.mark.parametrize("mode", [SandboxMode.READ_ONLY, SandboxMode.WORKSPACE_WRITE])
@pytest.mark.parametrize("name", ["shell_command", "bash"])
async def test_s09_what_a_freed_command_starts_in_turn(planted: Planted, mode: SandboxMode, name: str) -> None:
    planted.allow("awk")
    command = f"awk 'BEGIN {{ system(\"touch {planted.home}/free; tool\") }}'"
    said = await planted.call(mode, name, {"command": command})
    assert (planted.home / "free").exists(), said
    assert "planted" not in said and planted.nothing_ran()


async def test_s09_hooks(planted: Planted, tmp_path: Path) -> None:
    base = hook_base("s", str(tmp_path), "m", "never", None)
    places = command_places(WorkspaceWrite(), str(planted.project), str(planted.home))
    warnings: list[str] = []

    async def run(command: str) -> None:
        hook = HookCommand(event="SessionStart", command=command)
        hooks = SessionHooks([hook], PlainLauncher(), base, dict(os.environ), places=places, report=warnings.append)
        await hooks.ask("SessionStart", source="startup")

    await run("tool")
    (warning,) = warnings
    assert f"commands can write in {planted.bin}, so it is not looked for there" in warning and planted.nothing_ran()
    await run(f"{planted.bin}/tool")
    assert os.listdir(planted.ran) == ["tool"], "what the user named by its path runs"
