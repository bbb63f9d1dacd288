"""What the tools share that evaluate cells in a kernel of the session: how a cell is run, and what comes of it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ferrule.builtin.kept_kernel import KeptKernel, NestedCalls, remarked
from ferrule.process.kernel import CellResult, Kernel
from ferrule.process.launcher import Launcher, LaunchError
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.payload import NO_OUTPUT
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import Access, ToolContext
from ferrule.tools.effects import CommandEffect
from ferrule.tools.executor import ToolExecutor

A = TypeVar("A", bound=Action)
O = TypeVar("O", bound=Observation)  # noqa: E741 - as in Observation


class CellObservation(Observation):
    """What a cell wrote, its value or its error, and its images as data URLs."""

    bounded = True

    ok: bool
    output: str
    images: tuple[str, ...] = ()

    @property
    def to_llm_content(self) -> str | tuple[ContentPart, ...]:
        if not self.images:
            return self.output or NO_OUTPUT
        text = (InputText(self.output),) if self.output else ()
        return (*text, *(InputImage(image_url=url) for url in self.images))

    @property
    def success(self) -> bool:
        return self.ok


class CellExecutor(ToolExecutor[A, O]):
    """Every cell goes through `ctx.run`, as the command that would run it alone; the kernel is confined likewise."""

    asks_first = True

    async def _evaluate(
        self,
        kept: KeptKernel,
        ctx: ToolContext,
        argv: Sequence[str],
        code: str,
        limit: int,
        start: Callable[[Launcher], Awaitable[Kernel]],
    ) -> CellResult:
        """Evaluate a cell within `limit` milliseconds. `argv` would run it alone; `start` starts a kernel. Raises
        `RespondToModel`."""
        nested = NestedCalls(kept.tool, ctx)

        async def attempt(access: Access) -> CellResult:
            result = await kept.run(code, limit, access.sandboxed, lambda: start(access.launcher), nested.call)
            return remarked(result, access.remarks())

        try:
            return await ctx.run(CommandEffect(argv=tuple(argv), cwd=ctx.cwd), attempt)
        except LaunchError as error:
            raise RespondToModel(f"{kept.tool} cannot start its kernel: {error}") from error
