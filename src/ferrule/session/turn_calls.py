"""The calls of a turn: each starts when it arrives, and their answers go into history in call order."""

import asyncio
import time
from collections.abc import Sequence

import msgspec

from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.dispatch.router import RoutedCall
from ferrule.history.pairs import aborted_output, called_id, place_of
from ferrule.protocol.content import InputText
from ferrule.protocol.events import ItemCompleted, ItemStarted, TokenUsage
from ferrule.protocol.items import ItemView, ResponseItem
from ferrule.protocol.payload import ToolOutput, output_in
from ferrule.session.dialogue import Dialogue
from ferrule.session.failures import Failures, SameFailure
from ferrule.session.result import ToolCall, tool_call
from ferrule.tools.context import ToolInvocation
from ferrule.tools.tasks import end_tasks, start_task

MAX_CALLS = 256
"""Calls that one response may make. Models make a few dozen at most; without a bound, an endless response would hold a
task, a process and an answer for each."""
TOO_MANY_CALLS = (
    f"not run: one response may make {MAX_CALLS} calls, and this one came after them; "
    "make it again in your next response if it is still wanted"
)
BROKEN_OFF = "not run: the response broke off; make the call again if it is still wanted"


class _Call(msgspec.Struct):
    """A call that is running or has run."""

    item: ResponseItem
    invocation: ToolInvocation
    task: "asyncio.Task[tuple[ResponseItem, ToolOutput]]"
    started: float
    answered_there: bool = False

    @property
    def view(self) -> ItemView:
        """The parsed call."""
        return self.item.view


class TurnCalls:
    """The calls of a turn, response by response."""

    def __init__(self, dialogue: Dialogue) -> None:
        self.made: list[ToolCall] = []
        """Those that were answered, with their answers."""
        self.interrupted: set[str] = set()
        """The ids of those whose response broke off: none of them runs again."""
        self.last_word: str | None = None
        """What a tool said that ends the turn."""
        settings = dialogue.settings
        self._failures = Failures(settings.same_failure_hint, settings.same_failure_limit)
        self._dialogue = dialogue
        self._calls: list[_Call] = []
        self._ended = asyncio.Event()
        self._broken = False
        self._began = 0

    def begin(self) -> None:
        """Begin a response: the items of history that follow are its own."""
        self._began = self._dialogue.history.count
        self._ended = asyncio.Event()
        self._calls = []

    def start(self, item: ResponseItem, routed: RoutedCall, dispatcher: Dispatcher) -> None:
        """Start a call, or answer that it is not run."""
        self._dialogue.emit(ItemStarted(item=item))
        started = time.monotonic()
        refused = self._refused()
        work = self._pass_over(item, refused) if refused else self._answer(item, routed, dispatcher, started)
        self._calls.append(_Call(item, routed.invocation, start_task(work), started))

    @property
    def wait_for_model(self) -> bool:
        """Whether the model has to read an answer: the provider has not answered all calls itself."""
        return not all(call.answered_there for call in self._calls)

    def end_if_repeated(self) -> None:
        """Raise `SameFailure` where the model has made the same failing call too often."""
        if self._failures.reason is not None:
            raise SameFailure(self._failures.reason)

    def _refused(self) -> str | None:
        """Return why one more call is not run, or None."""
        if len(self._calls) >= MAX_CALLS:
            return TOO_MANY_CALLS
        return self._dialogue.allowance.take()

    def leave_to_provider(self, call_id: str, output: ItemView) -> None:
        """Leave a call to the provider, which has answered it in the same response."""
        for call in self._calls:
            if called_id(call.view) == call_id and not call.answered_there:
                call.answered_there = True
                if call.task.cancel() and self._dialogue.observed:
                    self._dialogue.emit(ItemCompleted(item=call.item, output=output_in(output), duration_ms=0))

    async def _answer(
        self, item: ResponseItem, routed: RoutedCall, dispatcher: Dispatcher, started: float
    ) -> tuple[ResponseItem, ToolOutput]:
        """Run a call and write its answer to disk at once."""
        invocation = routed.invocation
        if routed.perhaps_elsewhere:
            await self._ended.wait()
        if routed.perhaps_elsewhere and routed.handler is not None and self._broken:
            output = ToolOutput(BROKEN_OFF, False)
        else:
            output = await dispatcher.run(routed)
        hint = self._failures.note(invocation, output)
        output = output if hint is None else _with_hint(output, hint)
        if (unsaid := output.unsaid(invocation.payload)) is not None:
            self._dialogue.tell_model(unsaid)
        if output.ends_turn:
            self.last_word = output.text
        answer = output.into_response(invocation.call_id, invocation.payload)
        self._dialogue.record.item(answer)
        if self._dialogue.observed:
            took = round((time.monotonic() - started) * 1000)
            self._dialogue.emit(ItemCompleted(item=item, output=output, duration_ms=took))
        return answer, output

    async def _pass_over(self, item: ResponseItem, why: str) -> tuple[ResponseItem, ToolOutput]:
        """Answer a call that is not run."""
        answer, output = aborted_output(item.view, why), ToolOutput(why, False)
        self._dialogue.record.item(answer)
        if self._dialogue.observed:
            self._dialogue.emit(ItemCompleted(item=item, output=output, duration_ms=0))
        return answer, output

    async def settle(self, usage: TokenUsage | None, broken: bool) -> None:
        """Wait for the calls and put their answers into history, in call order. Cancelling the turn cancels them;
        answers that have arrived stay."""
        self._broken = broken
        self._ended.set()
        try:
            await _all_done(self._calls)
        except asyncio.CancelledError:
            await end_tasks(call.task for call in self._calls)
            raise
        finally:
            fatal = self._collect()
            self._dialogue.record.end_response(usage)
            self._dialogue.add_notes()
            if broken:
                self.interrupted.update(filter(None, (called_id(call.view) for call in self._calls)))
        if fatal is not None:
            raise fatal

    def _collect(self) -> BaseException | None:
        fatal: BaseException | None = None
        self._dialogue.history.settle(self._began)
        self._calls.sort(key=lambda call: place_of(call.item))
        for call in self._calls:
            error = None if call.task.cancelled() else call.task.exception()
            if call.answered_there:
                continue
            if call.task.cancelled() or error is not None:
                fatal = fatal or error
                waited = max(time.monotonic() - call.started, 0.1)
                cause = f"aborted by user after {waited:.1f}s" if error is None else f"the runtime failed: {error}"
                answer, output = aborted_output(call.view, cause), ToolOutput(cause, False)
                self._dialogue.record.item(answer)
            else:
                answer, output = call.task.result()
            self._dialogue.history.append(answer)
            self.made.append(tool_call(call.view, call.invocation, output))
        return fatal


def _with_hint(output: ToolOutput, hint: str) -> ToolOutput:
    """Append a hint for the model to an output, or beside it: a native output has no room for one."""
    if isinstance(output.body, str):
        return msgspec.structs.replace(output, body=f"{output.body}\n\n{hint}")
    if isinstance(output.body, tuple):
        return msgspec.structs.replace(output, body=(*output.body, InputText(hint)))
    return msgspec.structs.replace(output, beside="\n\n".join(filter(None, (output.beside, hint))))


async def _all_done(calls: Sequence[_Call]) -> None:
    pending = [call.task for call in calls if not call.task.done()]
    if pending:
        await asyncio.wait(pending)
