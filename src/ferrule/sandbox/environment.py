"""Variables that tell programs what a sandbox refuses, so that they need not fail over it."""

import os
from collections.abc import Mapping
from pathlib import Path

from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import ReadOnly, SandboxPolicy, WorkspaceWrite

INSIDE_VARIABLE = "FERRULE_SANDBOX"
"""Set for every confined command. It only explains: that no sandbox can be built inside of one is the kernel's word."""
STATUS = "/proc/self/status"
SEALED = frozenset({("NoNewPrivs:", "1"), ("Seccomp:", "2")})
"""What the kernel says of every confined command (proc(5)); no process can take it back."""
NESTED = (
    "this is already inside a sandbox of Ferrule, and there is no sandbox in a sandbox: run the command as it is, or "
    "give it to the Ferrule that runs this one"
)
_LEAKS = {"LSAN_OPTIONS": "detect_leaks=0"}
"""LeakSanitizer stops its own process by ptrace, and calls a correct program faulty where it cannot. The address
sanitizer reads this variable, too."""
_OWNERS = {"TAR_OPTIONS": "--no-same-owner"}
"""For root, whom tar takes to be able to give files away."""


def confined_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a confined command: what the user set of the same variables comes last, and so it counts."""
    ours = _OWNERS if os.getuid() == 0 else {}
    if not any("detect_leaks" in env.get(name, "") for name in ("ASAN_OPTIONS", "LSAN_OPTIONS")):
        ours = ours | _LEAKS
    merged = {name: f"{value} {env[name]}" if env.get(name) else value for name, value in ours.items()}
    return {**env, **merged, INSIDE_VARIABLE: "1"}


def refuse_nesting(policy: SandboxPolicy, env: Mapping[str, str] = os.environ) -> None:
    """Raises `UsageError` where the policy wants a sandbox and we are a confined command ourselves."""
    if isinstance(policy, ReadOnly | WorkspaceWrite) and is_inside(env):
        raise UsageError(NESTED)


def is_inside(env: Mapping[str, str] = os.environ) -> bool:
    """Whether we are a confined command ourselves, so that no level works.

    The variable alone says nothing: somebody may have set it. Without it the levels are tried, and fail. Where the
    kernel does not tell whether it confines us (macOS), the variable counts.
    """
    if not env.get(INSIDE_VARIABLE):
        return False
    try:
        lines = Path(STATUS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    return {tuple(line.split()) for line in lines} >= SEALED
