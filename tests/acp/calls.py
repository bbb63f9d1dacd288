"""Calls of a scripted model, for tests of the door."""

from pathlib import Path
from typing import Any

from ferrule.testing import function_call

ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "it must"}


def shell(script: str, call_id: str = "c1", **more: Any) -> Any:
    return function_call("shell_command", {"command": script, **more}, call_id=call_id)


def edit(path: Path, old: str, new: str) -> str:
    return f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch"
