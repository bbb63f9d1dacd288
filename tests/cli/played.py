"""A run of `exec` in this process: its views, without a program's start."""

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ferrule.doors.headless.human import Human
from ferrule.doors.headless.jsonl import JsonLines
from ferrule.doors.headless.running import run_turn
from ferrule.doors.headless.terminal import Terminal
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.permissions import AskForApproval, SandboxMode, as_policy
from ferrule.protocol.settings import ModelSettings, ProviderSettings, Settings
from ferrule.testing import ScriptedModel, function_call
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple, StepLike


def execute(cmd: str, wait_ms: int = 250, **more: object) -> dict[str, object]:
    """A call of `exec_command` that waits no longer than this for the end."""
    return dict(function_call("exec_command", {"cmd": cmd, "yield_time_ms": wait_ms, **more}))


def send(chars: str = "", wait_ms: int = 10_000) -> Callable[[Request], Simple]:
    """A call of `write_stdin` for the session that was started last."""

    def step(request: Request) -> Simple:
        number = int(re.findall(r"session ID (\d+)", request.raw.decode())[-1])
        return dict(function_call("write_stdin", {"session_id": number, "chars": chars, "yield_time_ms": wait_ms}))

    return step


@dataclass(frozen=True, slots=True)
class Played:
    """What programs read, or people."""

    text: str
    error: str = ""

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines."""
        return [json.loads(line) for line in self.text.splitlines()]

    def items(self, kind: str, of: str) -> list[dict[str, Any]]:
        """The items of one type in the lines of one type."""
        return [line["item"] for line in self.lines if line["type"] == kind and line["item"]["type"] == of]

    def command(self) -> dict[str, Any]:
        """The only command, which was started once and completed once."""
        [begun] = self.items("item.started", "command_execution")
        [ended] = self.items("item.completed", "command_execution")
        assert (begun["id"], begun["command"]) == (ended["id"], ended["command"])
        assert (begun["status"], begun["aggregated_output"], begun["exit_code"]) == ("in_progress", "", None)
        return ended


async def play(
    folder: Path, script: Sequence[StepLike], *, people: bool = False, out: Terminal | None = None, **changed: Any
) -> Played:
    """Run a script with full access in `folder`, for programs, or for `people`, on the terminal `out` if there is one;
    `changed` are settings."""
    with ScriptedModel(script) as model:
        settings = msgspec.structs.replace(settings_for(folder, model.base_url), **changed)
        raw, words = io.BytesIO(), io.StringIO()
        shows = people or out is not None
        view = Human(out or Terminal(words, colored=False), settings) if shows else JsonLines(raw)
        error = ""
        try:
            await run_turn(settings, view, "go")
            view.finish()
        except FerruleError as failure:
            error = str(failure)
            view.fail(error)
    return Played(words.getvalue() if people else raw.getvalue().decode(), error)


def settings_for(folder: Path, base_url: str) -> Settings:
    """The settings of a run that keeps nothing."""
    return Settings(
        cwd=str(folder),
        home=str(folder / ".home"),
        model=ModelSettings(model="gpt-5.5"),
        provider=ProviderSettings(name="scripted", base_url=base_url, wire_api="responses"),
        approval_policy=AskForApproval.NEVER,
        sandbox_policy=as_policy(SandboxMode.DANGER_FULL_ACCESS),
        ephemeral=True,
    )
