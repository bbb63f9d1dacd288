"""Headless agents as programs: `ferrule exec`, and `codex exec` beside it where that is on the PATH."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ferrule.testing import ScriptedModel, custom_tool_call, function_call

WITHOUT_TMP = "sandbox_workspace_write.exclude_slash_tmp=true"
"""What lies in /tmp differs from machine to machine, and every repository there is one more thing to protect."""


STUB = Path(__file__).parents[1] / "tests" / "mcp" / "stub.py"
ECHO = f'mcp_servers.echo={{command={json.dumps(sys.executable)},args=["-S","-E",{json.dumps(str(STUB))}]}}'
"""An MCP server that starts quickly."""


@dataclass(frozen=True, slots=True)
class Headless:
    """A program, its arguments before and after the address of the model server, and its empty home."""

    name: str
    program: tuple[str, ...]
    home: Path

    def start(self, model: ScriptedModel, cwd: Path, settings: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start one task against this server. `settings`: what both programs read alike, `key=value`."""
        given = (word for setting in (WITHOUT_TMP, *settings) for word in ("-c", setting))
        flags = ("-m", "gpt-5.5", "-s", "workspace-write", "-C", str(cwd), *given)
        return subprocess.Popen(
            [*self.program, *self._provider(model.base_url), *flags, "go"],
            env=environment(self.home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _provider(self, base_url: str) -> Sequence[str]:
        if self.name == "ferrule":
            return ("--base-url", base_url, "--wire", "responses")
        provider = f'{{name="scripted",base_url="{base_url}",wire_api="responses",env_key="BENCH_KEY"}}'
        settings = ('model_provider="scripted"', f"model_providers.scripted={provider}")
        flags = (word for setting in settings for word in ("-c", setting))
        return ("--skip-git-repo-check", *flags, "-c", "tools.update_plan={enabled=true}")


@contextmanager
def contestants(bin_folder: Path = Path(sys.executable).parent) -> Iterator[tuple[list[Headless], Path]]:
    """The programs there are, ours first (from `bin_folder`), and a scratch workspace.

    Not under /tmp: Codex's own sandbox hides its home there."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="ferrule-bench-") as base:
        folder = Path(base)
        found = [Headless("ferrule", (str(bin_folder / "ferrule"), "exec"), folder / "ferrule")]
        if codex := shutil.which("codex"):
            found.append(Headless("codex", (codex, "exec"), folder / "codex"))
        for contestant in found:
            contestant.home.mkdir()
        (folder / "workspace").mkdir()
        yield found, folder / "workspace"


def environment(home: Path) -> dict[str, str]:
    """An empty home and the PATH; Python may use its byte code."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home), "BENCH_KEY": "unused"}


def no_op() -> dict[str, object]:
    """A call that does nothing outside the agent."""
    return dict(function_call("update_plan", {"plan": [{"step": "a", "status": "pending"}]}))


def run_true() -> dict[str, object]:
    """A call of `exec_command`."""
    return dict(function_call("exec_command", {"cmd": "true"}))


def mcp_echo() -> dict[str, object]:
    """A call of the MCP server `echo`."""
    return dict(function_call("echo", {"text": "hi"}, namespace="mcp__echo"))


def one_line_patch(number: int) -> dict[str, object]:
    """The patch that turns `line N` of `small.txt` into the next one."""
    change = f"-line {number}\n+line {number + 1}"
    text = f"*** Begin Patch\n*** Update File: small.txt\n@@\n{change}\n*** End Patch\n"
    return dict(custom_tool_call("apply_patch", text))
