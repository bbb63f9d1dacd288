"""What a model family was trained on: its tools, its shell and patch forms, its limits."""

from typing import Literal

import msgspec

from ferrule.protocol.settings import ReasoningEffort, ReasoningSummary, Verbosity
from ferrule.protocol.truncation import DEFAULT_OUTPUT_TOKENS, OutputBudget

ShellForm = Literal["shell_command", "unified_exec", "shell", "local_shell", "disabled"]
"""The shell tool for a model: one script, a PTY with sessions, an argv, the native item, or none."""

PatchForm = Literal["freeform", "function", "native", "none"]
"""The patch format of a model: grammar text, one JSON string, the native item, or none."""


ComputerForm = Literal["computer", "computer_use_preview", "function"]
"""The screen of a model: the native item or its older form, where the server has them, or a function."""


Thinking = Literal["none", "budget", "adaptive"]
"""How a model of the Messages API thinks: never, with a budget of tokens where that is asked for, or as it sees fit."""


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One model family. `tools` names the set of tools (`codex`, `openhands`, `claude`, `generic`, `all`, or a
    user's).

    `context_window` and `max_output` (of one answer) are in tokens, None if unknown. `security_risk`: calls of tools
    that change things carry the model's own estimate of the risk.
    """

    name: str
    tools: str = "generic"
    shell: ShellForm = "shell_command"
    apply_patch: PatchForm = "function"
    computer: ComputerForm = "computer"
    parallel_tool_calls: bool = True
    reasoning: bool = False
    reasoning_effort: ReasoningEffort | None = None
    reasoning_summary: ReasoningSummary | None = None
    verbosity: Verbosity | None = None
    output_budget: OutputBudget = OutputBudget(DEFAULT_OUTPUT_TOKENS)
    thinking: Thinking | None = None
    context_window: int | None = None
    max_output: int | None = None
    image_input: bool = False
    security_risk: bool = False


class ToolProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A set of tools by name or glob. `security_risk` as in `ModelProfile`, for users who pick the set themselves."""

    name: str
    include: tuple[str, ...]
    security_risk: bool = False
