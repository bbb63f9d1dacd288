"""A session's one kernel of a language: started with the first cell, and again after it was lost; the tools that its
cells call."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

import msgspec

from ferrule.process.capture import Captured
from ferrule.process.kernel import CallTool, CellResult, CellTimedOut, Kernel, KernelDied
from ferrule.protocol.errors import Fatal, RespondToModel
from ferrule.protocol.json_text import JsonValue, decode
from ferrule.protocol.payload import CustomPayload, FunctionPayload, ToolPayload
from ferrule.tools.context import ToolContext, ToolInvocation

StartKernel = Callable[[], Awaitable[Kernel]]


class KeptKernel:
    """The state that the calls of one session share. Runs one cell at a time."""

    tool: ClassVar[str]
    kept: ClassVar[str]
    """The language's word for what a kernel keeps."""

    def __init__(self) -> None:
        self._kernel: Kernel | None = None
        self._sandboxed = False
        self._lock = asyncio.Lock()
        self._lost: str | None = None

    @property
    def restarted(self) -> str:
        """Return what follows the news that the kernel is gone."""
        return f"The next call starts a new kernel; earlier {self.kept} are gone."

    def timed_out(self, error: CellTimedOut, timeout_ms: int) -> str:
        """Tell the model that a cell had to be killed."""
        raise NotImplementedError

    def died(self, error: KernelDied) -> str:
        """Tell the model that the kernel has ended while its cell ran."""
        raise NotImplementedError

    async def run(
        self, code: str, timeout_ms: int, sandboxed: bool, start: StartKernel, call_tool: CallTool | None = None
    ) -> CellResult:
        """Evaluate a cell, in a new kernel if there is none. Raises `RespondToModel` where the kernel is lost."""
        async with self._lock:
            kernel, note = await self._living(sandboxed, start)
            try:
                result = await kernel.run(code, timeout_ms, call_tool)
            except CellTimedOut as error:
                self._kernel = None
                raise RespondToModel(f"{self.timed_out(error, timeout_ms)} {self.restarted}") from error
            except KernelDied as error:
                if self._kernel is not kernel:
                    raise RespondToModel(
                        f"{self.tool} kernel was reset while this cell ran. {self.restarted}"
                    ) from error
                self._kernel = None
                raise RespondToModel(f"{self.died(error)}\n{self.restarted}") from error
            except (asyncio.CancelledError, Fatal):
                if kernel.lost:
                    self._kernel, self._lost = None, "was interrupted"
                raise
        return result if note is None else _headed(result, note)

    async def _living(self, sandboxed: bool, start: StartKernel) -> tuple[Kernel, str | None]:
        """Return a kernel, with a note for the model if it is not the previous one."""
        lost, self._lost = self._lost, None
        if self._kernel is not None and self._kernel.death is not None:
            self._kernel, lost = None, "had ended by itself"
        if self._kernel is not None and self._sandboxed != sandboxed:
            await self.reset()
            lost = "had other rights"
        if self._kernel is None:
            self._kernel, self._sandboxed = await start(), sandboxed
        note = f"A new kernel was started, because the last one {lost}; earlier {self.kept} are gone."
        return self._kernel, None if lost is None else note

    async def reset(self) -> None:
        """End the kernel now, whatever runs on it."""
        kernel, self._kernel, self._lost = self._kernel, None, None
        if kernel is not None:
            await kernel.kill()

    async def close(self) -> None:
        """End the kernel with the session."""
        await self.reset()


class NestedCalls:
    """Calls tools for one cell of the kernel behind the tool `kernel`, each as a call of its own.

    No tool that waits for it can be called again: it would wait for itself.
    """

    def __init__(self, kernel: str, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._within = ctx.within | {kernel}
        self._numbers = itertools.count(1)

    async def call(self, name: str, arguments: str, raw: bool) -> JsonValue:
        """Call a tool and return its text or its content parts. Raises `RespondToModel`."""
        kernel = name.removesuffix("_reset")
        if kernel in self._within:
            raise RespondToModel(f"{kernel} cannot invoke itself")
        if (refusal := self._ctx.caller.refusal()) is not None:
            raise RespondToModel(refusal)
        call_id = f"{self._ctx.call_id}_{next(self._numbers)}"
        ctx = msgspec.structs.replace(self._ctx, call_id=call_id, within=self._within)
        output = await ctx.call(ToolInvocation(call_id, name, _payload(arguments, raw)))
        return output.body if isinstance(output.body, str) else msgspec.to_builtins(output.body)


def _payload(arguments: str, raw: bool) -> ToolPayload:
    """Text from a cell is what a freeform tool takes, unless it is an object's JSON."""
    if raw:
        try:
            raw = not isinstance(decode(arguments), dict)
        except RespondToModel:
            return CustomPayload(arguments)
    return CustomPayload(arguments) if raw else FunctionPayload(arguments)


def remarked(result: CellResult, remarks: Sequence[str]) -> CellResult:
    """Add what the sandbox refused to what the cell wrote."""
    if not remarks:
        return result
    written = result.inherited
    tail = written.tail + "".join(f"[{remark}]\n" for remark in remarks).encode()
    return msgspec.structs.replace(result, inherited=Captured(written.head, written.omitted, tail))


def _headed(result: CellResult, note: str) -> CellResult:
    written = result.inherited
    headed = Captured(f"{note}\n".encode() + written.head, written.omitted, written.tail)
    return msgspec.structs.replace(result, inherited=headed)
