"""What the tests of the adapters share: a toolset without a sandbox, a message with calls of every kind."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ferrule import Observation, Toolset, tool
from ferrule.mcp import create_mcp_tools
from ferrule.protocol.content import ContentPart, InputFile, InputImage, InputText
from ferrule.testing import ScriptedModel, function_call
from tests.mcp.stub import server

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
PATCH = "*** Begin Patch\n*** Add File: nêw.txt\n+hällo\n*** End Patch"


def opened(cwd: Path, *tools: object, policy: str | None = None, **more: Any) -> Toolset:
    """A toolset of a model that knows freeform tools."""
    return Toolset.for_model(
        "gpt-5.5", cwd=cwd, sandbox="danger-full-access", approval_policy=policy, tools=tools, **more
    )


def command(script: str, **more: Any) -> dict[str, Any]:
    """A call of `shell_command`."""
    return function_call("shell_command", {"command": script, "login": False}, **more)


def with_every_kind(cwd: Path) -> Toolset:
    """The tools of `EVERY_KIND`."""
    (cwd / "dot.png").write_bytes(PNG)
    stub = create_mcp_tools({"mcpServers": {"stub": server()}}, cwd=str(cwd))
    return opened(cwd, "shell_command", "view_image", "apply_patch", *stub)


def program(heading: str) -> str:
    """The program of a section of docs/integrations.md."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2]
    return section.partition("```python\n")[2].partition("```")[0]


def run_program(heading: str, monkeypatch: pytest.MonkeyPatch, cwd: Path, model: ScriptedModel) -> dict[str, Any]:
    """Run it as it stands, and say yes to all that it asks. Return its names; `questions` are what it asked."""
    questions: list[str] = []

    def say_yes(question: str) -> str:
        questions.append(question)
        return "y"

    monkeypatch.chdir(cwd)
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    monkeypatch.setattr("builtins.input", say_yes)
    names: dict[str, Any] = {"__name__": "program", "questions": questions}
    exec(program(heading), names)
    return names


class Papers(Observation):
    """A failure with a picture and a file."""

    @property
    def to_llm_content(self) -> Sequence[ContentPart]:
        return (
            InputText("tŏrn"),
            InputImage(image_url="https://example.org/a.png"),
            InputFile(file_data="data:application/pdf;base64,JVBERi0=", filename="a.pdf"),
            InputFile(file_url="https://example.org/b.pdf"),
            InputFile(file_id="file_1"),
        )

    @property
    def success(self) -> bool:
        return False


@tool
def papers() -> Papers:
    """Show the papers."""
    return Papers()


BESIDE = [
    command("until test -e beside; do sleep 0.01; done; echo 'ünïcode 字'"),
    command("touch beside; echo broken >&2; exit 3"),
]
"""Calls that end only if they run beside each other."""
EVERY_KIND = [
    function_call("view_image", {"path": "dot.png"}),
    function_call("apply_patch", {"input": PATCH}),
    function_call("mcp__stub__echo", {"text": "ö"}),
]
