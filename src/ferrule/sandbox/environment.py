"""Set variables that keep programs from failing over what a sandbox refuses."""

import os
from collections.abc import Mapping
from pathlib import Path

from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import ReadOnly, WorkspaceWrite
from ferrule.protocol.settings import Settings

INSIDE_VARIABLE = "FERRULE_SANDBOX"
"""Set for every confined command. It only explains: the kernel itself lets no sandbox be built inside one."""
STATUS = "/proc/self/status"
SEALED = frozenset({("NoNewPrivs:", "1"), ("Seccomp:", "2")})
"""The kernel shows these for every confined command (proc(5)); no process can undo them."""
NESTED = (
    "this is already inside a sandbox of Ferrule, and sandboxes do not nest: run the command as it is, or give it to "
    "the Ferrule that runs this one"
)
_LEAKS = {"LSAN_OPTIONS": "detect_leaks=0"}
"""LeakSanitizer stops its own process with ptrace, and reports a correct program as faulty where it cannot.
AddressSanitizer reads this variable, too."""
_OWNERS = {"TAR_OPTIONS": "--no-same-owner"}
"""For root, as which tar assumes that it can give files away."""


def confined_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a confined command. The user's own values of these variables come last, so they win."""
    ours = _OWNERS if os.getuid() == 0 else {}
    if not any("detect_leaks" in env.get(name, "") for name in ("ASAN_OPTIONS", "LSAN_OPTIONS")):
        ours = ours | _LEAKS
    merged = {name: f"{value} {env[name]}" if env.get(name) else value for name, value in ours.items()}
    return {**env, **merged, INSIDE_VARIABLE: "1"}


def refuse_nesting(settings: Settings, env: Mapping[str, str] = os.environ) -> None:
    """Raise `UsageError` if the settings want a sandbox and we are a confined command ourselves."""
    wants = isinstance(settings.sandbox_policy, ReadOnly | WorkspaceWrite) and not settings.accept_no_sandbox
    if wants and is_inside(env):
        raise UsageError(NESTED)


def is_inside(env: Mapping[str, str] = os.environ) -> bool:
    """Tell whether we are a confined command ourselves, so that no level works.

    The variable alone proves nothing: somebody may have set it. Without it the levels are tried, and fail. Where the
    kernel does not say whether it confines us (macOS), the variable counts.
    """
    if not env.get(INSIDE_VARIABLE):
        return False
    try:
        lines = Path(STATUS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    return {tuple(line.split()) for line in lines} >= SEALED
