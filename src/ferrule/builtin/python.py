"""`python`: Python in a kernel that lives as long as the session."""

import os
from collections.abc import Mapping, Sequence

from pydantic import Field

from ferrule.builtin.cells import CellExecutor, CellObservation
from ferrule.builtin.execution import limit_ms
from ferrule.builtin.hints import RUNS
from ferrule.builtin.kept_kernel import KeptKernel
from ferrule.builtin.output_text import output_text, with_notes
from ferrule.lookup import NOWHERE, Places, locate
from ferrule.process.kernel import CellResult, CellTimedOut, Kernel, KernelDied
from ferrule.process.launcher import Launcher
from ferrule.process.python_kernel import INTERRUPT_GRACE, LOST_DESCRIPTOR, start_python
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.permissions import DangerFullAccess, InContainer, InContainerReadOnly
from ferrule.protocol.truncation import truncate_text
from ferrule.tools.action import Action
from ferrule.tools.commands import Commands
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition

DEFAULT_TIMEOUT_MS = 30_000
"""As in `js_repl`."""
ENVIRONMENTS = (".venv", "venv")
"""Folders of a project's own environment, as tools make them."""
DESCRIPTION = """\
Runs Python in a persistent kernel with top-level await. Variables, functions and imports are kept between calls. What \
the code prints comes back, then the value of a last expression, as at a prompt. Open matplotlib figures, \
`plt.show()`, and `display(x)` or a last expression with `_repr_png_` give images. `input()` is not answered. \
`call_tool(name, args)` calls another tool: `args` is a dict, or the text of a freeform tool; it returns the tool's \
text (a list of texts and images, where there are images), or raises `ToolError`. It is not awaited; several at a time \
run in threads."""


class PythonAction(Action):
    """Python to evaluate."""

    code: str = Field(description="Python source text")
    timeout_ms: float | None = Field(
        default=None,
        description="After this many milliseconds the code is interrupted and variables are kept; 30000 by default",
    )


class PythonObservation(CellObservation):
    """Return what the cell wrote, its value or its error, and its images as data URLs."""


class PythonRepl(KeptKernel):
    """The session's Python kernel."""

    tool = "python"
    kept = "variables"

    def timed_out(self, error: CellTimedOut, timeout_ms: int) -> str:
        """See `KeptKernel`."""
        why = f"the cell went on for {INTERRUPT_GRACE:g} s after it was interrupted at the limit of {timeout_ms} ms"
        return with_notes(output_text(error.written).text, [f"The kernel was ended, because {why}."])

    def died(self, error: KernelDied) -> str:
        """See `KeptKernel`."""
        lost = error.status is not None and error.status.code == LOST_DESCRIPTOR
        how = "a cell closed or replaced descriptor 3 or 4, which are the kernel's" if lost else f"it {error}"
        how = str(error) if error.status is None else how
        return with_notes(output_text(error.written).text, [f"The python kernel ended with this cell: {how}."])


class PythonExecutor(CellExecutor[PythonAction, PythonObservation]):
    """Evaluates cells in Python."""

    def __init__(self, state: ConversationState, repl: PythonRepl) -> None:
        self._state = state
        self._repl = repl

    async def __call__(self, action: PythonAction, ctx: ToolContext) -> PythonObservation:
        """Evaluate the cell."""
        limit = limit_ms(action.timeout_ms) or DEFAULT_TIMEOUT_MS
        env = await self._state.commands.environment(login=True)
        python = needed_python(self._state, env)

        async def start(launcher: Launcher) -> Kernel:
            return await start_python(launcher, python, env, ctx.cwd)

        argv = (python, "-c", action.code)
        return _observation(await self._evaluate(self._repl, ctx, argv, action.code, limit, start), limit, ctx)


def needed_python(state: ConversationState, env: Mapping[str, str]) -> str:
    """Choose the interpreter: that of the configuration, else that of the project, else the first in PATH.

    The project's own (`.venv`, `venv` in the session's directory) comes from where commands write, so it is taken only
    where a sandbox confines it; for the same reason one in PATH may be passed over. Raises `RespondToModel` if there is
    none.
    """
    if state.commands.contained:
        return _inside(state)
    if state.python is not None:
        return _configured(os.path.expanduser(state.python), env, state.commands)
    if not isinstance(state.permissions.sandbox_policy, DangerFullAccess):
        for name in ENVIRONMENTS:
            path = os.path.join(state.cwd, name, "bin", "python")
            if os.access(path, os.X_OK):
                return path
    return find_python(env, state.commands.places)


def _inside(state: ConversationState) -> str:
    """Choose the interpreter in a container, which finds it by itself. The project's own is taken if it leads to one
    that is there, too."""
    policy = state.permissions.sandbox_policy
    shared = "" if isinstance(policy, InContainer | InContainerReadOnly) and policy.image else "/usr/"
    for name in () if state.python else ENVIRONMENTS:
        path = os.path.join(state.cwd, name, "bin", "python")
        real = os.path.realpath(path)
        if os.access(path, os.X_OK) and (real.startswith(f"{state.cwd}/") or (shared and real.startswith(shared))):
            return path
    return state.python or "python3"


def find_python(env: Mapping[str, str], places: Places = NOWHERE) -> str:
    """Locate python3 in `PATH`, never in `places`, where commands can write. Raises `RespondToModel`."""
    found = [locate(name, env.get("PATH"), places) for name in ("python3", "python")]
    path = next((each.path for each in found if each.path), None)
    if path is None:
        raise RespondToModel(
            f"python needs an interpreter of Python 3.8 or newer, but {found[0].problem}. "
            'The user can install one, or name one in config.toml: python = "/path/to/python3"'
        )
    return path


def _configured(name: str, env: Mapping[str, str], commands: Commands) -> str:
    found = name if os.path.isabs(name) else locate(name, env.get("PATH"), commands.places).path
    if found is None or not os.access(found, os.X_OK):
        raise RespondToModel(f"python cannot run: config.toml says python = {name!r}, and no such program is there")
    return found


def _observation(result: CellResult, limit: int, ctx: ToolContext) -> PythonObservation:
    reached = f"The limit of {limit} ms was reached: the cell was interrupted, and variables are kept."
    notes = filter(None, (result.output, result.error, reached if result.interrupted else None))
    text = with_notes(output_text(result.inherited).text, notes).removesuffix("\n")
    return PythonObservation(
        ok=result.ok and not result.interrupted,
        output=truncate_text(text, ctx.output_budget),
        images=result.images,
    )


class PythonTool(ToolDefinition[PythonAction, PythonObservation]):
    """Evaluates cells in the session's kernel, which starts with the first one."""

    starts_processes = True

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[PythonTool]":
        """Create one for the conversation."""
        executor = PythonExecutor(conv_state, conv_state.shared.get(PythonRepl))
        return [cls(description=DESCRIPTION, executor=executor, annotations=RUNS, parallel=False)]


TOOL = PythonTool
