"""The session's Node kernel."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ferrule.builtin.kept_kernel import KeptKernel
from ferrule.process.kernel import CellTimedOut, Kernel, KernelDied
from ferrule.process.launcher import Launcher

KERNEL = Path(__file__).with_name("kernel.js")
OPTIONS = ("--expose-internals", "--disable-warning=ExperimentalWarning")
"""The kernel asks Node's own parser for imports, and its loader of modules is called experimental."""


class Repl(KeptKernel):
    """The state that `js_repl` and `js_repl_reset` share."""

    tool = "js_repl"
    kept = "bindings"

    def timed_out(self, error: CellTimedOut, timeout_ms: int) -> str:
        """See `KeptKernel`."""
        return f"js_repl execution timed out; kernel reset, rerun your request (limit {timeout_ms} ms)."

    def died(self, error: KernelDied) -> str:
        """See `KeptKernel`."""
        if error.status is None:
            return f"js_repl kernel exited unexpectedly: {error}"
        facts = {"kernel_status": str(error), "kernel_stderr_tail": " | ".join(error.said.split("\n")).strip(" |")}
        return f"js_repl kernel exited unexpectedly\n\njs_repl diagnostics: {msgspec.json.encode(facts).decode()}"


async def start_node(
    launcher: Launcher, node: str, env: Mapping[str, str], cwd: str, *, contained: bool = False
) -> Kernel:
    """Start a kernel; where `contained`, its file is not there. Raises `LaunchError`."""
    program = ("--eval", KERNEL.read_text(encoding="utf-8")) if contained else (str(KERNEL),)
    return await Kernel.start(launcher, (node, *OPTIONS, *program), env, cwd)
