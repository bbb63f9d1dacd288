"""One call, from the item of the model to the item that answers it, beside reading its arguments alone."""

import asyncio
from functools import partial

from pydantic import BaseModel, TypeAdapter

from benchmarks.measure import Work, in_turns, row
from ferrule import Toolset, tool
from ferrule.protocol.items import FunctionCall
from ferrule.tools.tasks import start_task

ARGUMENTS = '{"a": 3, "b": 4}'
ROUNDS, REPEAT = 40, 500


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


async def measure() -> list[str]:
    """The rows."""
    toolset = Toolset.for_model("m", sandbox="danger-full-access", tools=[add, add_plain, add_thread])
    dispatcher = toolset.dispatcher()
    read = TypeAdapter(Pair).validate_json

    async def floor() -> object:
        return read(ARGUMENTS)

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
    base, awaited, task, plain = await in_turns(works, ROUNDS, REPEAT)
    [thread] = await in_turns([partial(dispatcher.respond, call("add_thread"))], ROUNDS, 20)
    await toolset.aclose()
    return [
        row("dispatch, awaited", awaited, base, 4),
        row("dispatch, as a task of a turn", task, base, 15),
        row("dispatch, plain def that does not block", plain, base, 4),
        row("dispatch, plain def on a thread", thread, base, float("inf")),
    ]


def main() -> None:
    for line in asyncio.run(measure()):
        print(line)


if __name__ == "__main__":
    main()
