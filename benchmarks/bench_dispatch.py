"""One call, from the item of the model to the item that answers it, beside reading its arguments alone."""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial

from pydantic import BaseModel, TypeAdapter

from benchmarks import peers
from benchmarks.measure import Row, Work, bounded, in_turns, row
from ferrule import Toolset, tool
from ferrule.protocol.items import FunctionCall
from ferrule.tools.tasks import start_task

ARGUMENTS = '{"a": 3, "b": 4}'
ROUNDS, REPEAT = 40, 500
SPECS = 20


class Pair(BaseModel):
    a: int
    b: int


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True, blocking=False, name="add_plain")
def add_plain(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True, name="add_thread")
def add_thread(a: int, b: int) -> int:
    """Add two numbers, on a thread."""
    return a + b


async def dispatch() -> Iterable[Row]:
    """CPU time of a whole dispatch; the thread hop also by the clock, since it waits."""
    toolset = Toolset.for_model("m", sandbox="danger-full-access", tools=[add, add_plain, add_thread])
    dispatcher = toolset.dispatcher()
    read = TypeAdapter(Pair).validate_json

    async def floor() -> object:
        return read(ARGUMENTS)

    async def hop() -> object:
        return await asyncio.to_thread(read, ARGUMENTS)

    def call(name: str) -> FunctionCall:
        return FunctionCall(call_id="call_1", name=name, arguments=ARGUMENTS)

    async def as_task(view: FunctionCall) -> object:
        return await start_task(dispatcher.respond(view))

    works: list[Work] = [
        floor,
        partial(dispatcher.respond, call("add")),
        partial(as_task, call("add")),
        partial(dispatcher.respond, call("add_plain")),
    ]
    base, awaited, task, plain = await in_turns(works, ROUNDS, REPEAT, time.process_time)
    others = await peers.dispatches(ARGUMENTS)
    figures = await in_turns([*others.values()], ROUNDS // 4, REPEAT // 5, time.process_time)
    threads: list[Work] = [hop, partial(dispatcher.respond, call("add_thread"))]
    least, thread = await in_turns(threads, ROUNDS, 20)
    await toolset.aclose()
    return [
        row("dispatch, awaited", awaited, base, 3.5, peers=dict(zip(others, figures, strict=True))),
        row("dispatch, as a task of a turn", task, base, 12),
        row("dispatch, plain def that does not block", plain, base, 3.5),
        row("dispatch, plain def on a thread, floor asyncio.to_thread", thread, least, 1),
    ]


async def specs() -> Iterable[Row]:
    """The tools of a request: built for the first one, looked up for the next."""

    def named(number: int) -> Callable[..., object]:
        async def work(path: str, offset: int = 1, limit: int = 2000, mode: str = "slice") -> str:
            """Do one of many things."""
            return path

        work.__name__ = f"tool_{number}"
        return work

    def build() -> None:
        tools = [tool(read_only=True)(named(number)) for number in range(SPECS)]
        Toolset.for_model("m", sandbox="danger-full-access", tools=tools).current()

    def build_theirs(make: Callable[[Callable[..., object]], object]) -> None:
        for number in range(SPECS):
            make(named(number))

    toolset = Toolset.for_model("m", sandbox="danger-full-access", tools=["*"])
    first, again = await in_turns([build, toolset.current], 5, 1, time.process_time)
    await toolset.aclose()
    makers = peers.tool_makers()
    works = [partial(build_theirs, make) for make in makers.values()]
    figures = [spent / SPECS for spent in await in_turns(works, 5, 1, time.process_time)]
    others = dict(zip(makers, figures, strict=True))
    name = f"specs of {SPECS} new @tool functions, a tool, floor the fastest peer"
    return [
        row(name, first / SPECS, min(figures), 1, peers=others)
        if figures
        else bounded(name, first / SPECS, None, "us", 1e6),
        bounded("specs of the next request", again, 10, "us", 1e6),
    ]


async def measure() -> list[Row]:
    """The rows."""
    return [*await dispatch(), *await specs()]


def main() -> None:
    """Print one line a row."""
    for line in asyncio.run(measure()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
