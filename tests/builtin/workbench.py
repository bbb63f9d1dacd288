"""Built-in tools behind a real dispatch, with a host that grants everything and writes down what it was told."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.patch.files import PlainFiles
from ferrule.process.launcher import Launcher
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy
from ferrule.protocol.events import ExecCommandOutputDelta
from ferrule.protocol.items import FunctionCall, ItemView, ResponseInputItem
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.truncation import OutputBudget
from ferrule.session.sources import BuiltinSource
from ferrule.tools.commands import Commands
from ferrule.tools.context import Access, Attempt, ToolCaller, ToolContext, ToolInvocation
from ferrule.tools.conversation import Conversation
from ferrule.tools.effects import Effect
from ferrule.tools.files import Files
from ferrule.tools.questions import Answer, NoAnswer, Question
from ferrule.tools.registry import ToolRegistryBuilder
from tests.builtin.states import conversation
from tests.processes import DEADLINE

T = TypeVar("T")


class Host:
    """Grants every effect with `launcher`; keeps effects, results of attempts, and events."""

    def __init__(self) -> None:
        self.observed = True
        self.effects: list[Effect] = []
        self.results: list[Any] = []
        self.events: list[Any] = []
        self.notice: str | None = None
        self.launcher: Launcher = PlainLauncher()
        self._news = asyncio.Event()

    async def run(self, ctx: ToolContext, effect: Effect, attempt: Attempt[T]) -> T:
        self.effects.append(effect)
        result = await attempt(Access(self.launcher, ctx.files, notice=self.notice))
        self.results.append(result)
        return result

    async def ask(self, ctx: ToolContext, question: Question) -> Answer:
        return NoAnswer("nobody is here")

    def emit(self, event: Any) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the event that makes it so."""
        async with asyncio.timeout(DEADLINE):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def live(self) -> str:
        """All that commands wrote so far."""
        return b"".join(event.chunk for event in self.told(ExecCommandOutputDelta)).decode(errors="replace")

    def told(self, *kinds: type) -> list[Any]:
        """The events of these kinds."""
        return [event for event in self.events if isinstance(event, kinds)]


def unaffected(
    cwd: Path,
    policy: ShellEnvironmentPolicy = ShellEnvironmentPolicy(),  # noqa: B008 - frozen
    **variables: str,
) -> Conversation:
    """A conversation that start-up files and settings of whoever runs the tests do not touch."""
    base = {**os.environ, "HOME": str(cwd / "home"), "SHELL": "/bin/bash", **variables}
    commands = Commands(PlainLauncher(), str(cwd), policy, base=base)
    return msgspec.structs.replace(conversation(cwd), commands=commands)


class Bench:
    """Calls tools by name, as a model does."""

    def __init__(
        self, cwd: Path, *names: str, budget: OutputBudget | None = None, state: Conversation | None = None
    ) -> None:
        self.state = state or unaffected(cwd)
        if budget is not None:
            self.state = msgspec.structs.replace(self.state, output_budget=budget)
        self.host = Host()
        builder = ToolRegistryBuilder()
        BuiltinSource(names, self.state).register(builder)
        self.specs, registry = builder.build()
        self.dispatcher = Dispatcher(registry, self._context)
        self._calls = 0

    def _context(self, invocation: ToolInvocation, caller: ToolCaller) -> ToolContext:
        state = self.state
        return ToolContext(
            invocation.call_id,
            state.cwd,
            state.permissions,
            state.output_budget,
            Files(PlainFiles(), state.cwd),
            self.host,
            caller=caller,
        )

    async def answer(self, view: ItemView) -> ResponseInputItem:
        """The item that answers a call."""
        answer = await self.dispatcher.respond(view)
        assert answer is not None
        return answer

    async def output(self, name: str, **arguments: object) -> ToolOutput:
        """The whole output of a function call."""
        self._calls += 1
        raw = msgspec.json.encode(arguments).decode()
        routed = self.dispatcher.route(FunctionCall(call_id=f"call_{self._calls}", name=name, arguments=raw))
        assert routed is not None
        return await self.dispatcher.run(routed)

    async def call(self, name: str, **arguments: object) -> str:
        """What the model reads of a function call."""
        return (await self.output(name, **arguments)).text

    async def close(self) -> None:
        for handler in self.dispatcher.registry.loaded():
            await handler.close()
        await self.state.shared.close()
        await self.state.commands.close()


def field(text: str, label: str) -> str:
    """The rest of the line that starts with `label`, in the header of an answer."""
    head = text.partition("Output:\n")[0]
    return next(line.removeprefix(label).strip() for line in head.splitlines() if line.startswith(label))


def body(text: str) -> str:
    """What follows the header of an answer."""
    head, found, rest = text.partition("Output:\n")
    assert found, head
    return rest


def session_id(text: str) -> int:
    return int(field(text, "Process running with session ID"))
