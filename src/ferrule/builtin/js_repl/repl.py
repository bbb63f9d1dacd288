"""The session's one kernel: started with the first cell, and again after it was lost."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from ferrule.builtin.js_repl.kernel import CallTool, CellResult, Kernel, KernelDied
from ferrule.builtin.js_repl.source import Cell
from ferrule.protocol.errors import RespondToModel

TIMED_OUT = "js_repl execution timed out; kernel reset, rerun your request"
RESTARTED = "The next call starts a new kernel; earlier bindings are gone."
FRESH = "A new kernel was started, because the last one {}; earlier bindings are gone."

StartKernel = Callable[[], Awaitable[Kernel]]


class Repl:
    """The state that `js_repl` and `js_repl_reset` share. Runs one cell at a time."""

    def __init__(self) -> None:
        self._kernel: Kernel | None = None
        self._lock = asyncio.Lock()
        self._lost: str | None = None

    async def run(self, cell: Cell, sandboxed: bool, start: StartKernel, call_tool: CallTool) -> CellResult:
        """Evaluate a cell, in a new kernel if there is none. Raises `RespondToModel` where the kernel is lost."""
        async with self._lock:
            kernel, note = await self._living(sandboxed, start)
            try:
                result = await kernel.run(cell.code, cell.timeout_ms, call_tool)
            except TimeoutError as error:
                self._kernel = None
                raise RespondToModel(f"{TIMED_OUT} (limit {cell.timeout_ms} ms). {RESTARTED}") from error
            except KernelDied as error:
                if self._kernel is not kernel:
                    raise RespondToModel(f"js_repl kernel was reset while this cell ran. {RESTARTED}") from error
                self._kernel = None
                raise RespondToModel(f"{error}\n{RESTARTED}") from error
            except asyncio.CancelledError:
                self._kernel, self._lost = None, "was interrupted"
                raise
        return result if note is None else msgspec.structs.replace(result, inherited=f"{note}\n{result.inherited}")

    async def _living(self, sandboxed: bool, start: StartKernel) -> tuple[Kernel, str | None]:
        """Return a kernel, with a note for the model if it is not the previous one."""
        lost, self._lost = self._lost, None
        if self._kernel is not None and self._kernel.death is not None:
            self._kernel, lost = None, "had ended by itself"
        if self._kernel is not None and self._kernel.sandboxed != sandboxed:
            await self.reset()
            lost = "had other rights"
        if self._kernel is None:
            self._kernel = await start()
        return self._kernel, None if lost is None else FRESH.format(lost)

    async def reset(self) -> None:
        """End the kernel now, whatever runs on it."""
        kernel, self._kernel, self._lost = self._kernel, None, None
        if kernel is not None:
            await kernel.kill()

    async def close(self) -> None:
        """End the kernel with the session."""
        await self.reset()
