"""The turn loop: ask the model, start its tools as their calls arrive, answer in call order, ask again."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing

import msgspec

from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.dispatch.router import RoutedCall
from ferrule.history.pairs import aborted_output, answered_id, called_id, place_of
from ferrule.model.retry import delay_ms, in_words
from ferrule.model.stream import (
    CallUnreadable,
    Completed,
    ContentRefused,
    ContextOverflow,
    ForcedTool,
    ItemAdded,
    ItemDone,
    Learned,
    LeftOut,
    ModelError,
    PassedOver,
    ReasoningDelta,
    ResponseEvent,
    Retrying,
    TextDelta,
    ToolChoice,
    ToolInputDelta,
)
from ferrule.protocol.content import InputText, text_of
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.events import ItemCompleted, ItemStarted, ItemUpdated, TokenCount, TokenUsage, WarningEvent
from ferrule.protocol.hosted import is_unfinished, nobody_runs
from ferrule.protocol.items import (
    Compaction,
    FunctionCall,
    ItemView,
    Message,
    MessageBlock,
    Reasoning,
    ResponseItem,
    read_item,
)
from ferrule.protocol.payload import ToolOutput, output_in
from ferrule.protocol.thoughts import ShownText, shown
from ferrule.session.bounds import REPEATED, CallMissing, RepeatWatch, Repetition
from ferrule.session.compaction import ATTEMPTS as COMPACTIONS
from ferrule.session.compaction import Compacted, Compactor
from ferrule.session.dialogue import Dialogue
from ferrule.session.endings import Endings
from ferrule.session.failures import Failures, SameFailure
from ferrule.session.loading import ToolLoading
from ferrule.session.output_type import OutputInvalid
from ferrule.session.result import ToolCall, TurnResult, tool_call
from ferrule.session.tool_choice import after_a_call
from ferrule.session.turn_hooks import PromptBlocked, TurnHooks
from ferrule.session.web import Citing
from ferrule.tools.context import ToolInvocation
from ferrule.tools.handler import InputWatcher
from ferrule.tools.tasks import end_tasks, start_task
from ferrule.web.marks import Citation

MAX_CALLS = 256
"""Calls that one response may make. Models make a few dozen at most; without a bound, an endless response would hold a
task, a process and an answer for each."""
TOO_MANY_CALLS = (
    f"not run: one response may make {MAX_CALLS} calls, and this one came after them; "
    "make it again in your next response if it is still wanted"
)
BROKEN_OFF = "not run: the response broke off; make the call again if it is still wanted"
CONTINUE = "Your last answer was empty. Go on with the task: call a tool, or say what you have found."
"""Sent to a model that keeps answering nothing."""
LONGEST_GENERATION = 2_000
"""Characters of an unreadable call that its model is shown: the mistake is near the beginning."""


class TurnLimit(FerruleError):
    """The model still wanted to go on after as many requests as are allowed."""


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


class Turn:
    """One turn of the user, with all state that ends with it. A tool ends it by `interrupt`."""

    def __init__(
        self,
        dialogue: Dialogue,
        turn_id: str,
        tool_choice: ToolChoice,
        *,
        hooks: TurnHooks,
        loading: ToolLoading,
        compactor: Compactor,
        interrupt: Callable[[], object],
    ) -> None:
        self.id = turn_id
        self.tool_choice = tool_choice
        self._dialogue = dialogue
        self._hooks = hooks
        self._loading = loading
        self._compactor = compactor
        self._interrupt = interrupt
        self.usage = TokenUsage()
        self.text = ""
        self.citations: tuple[Citation, ...] = ()
        self._citing = Citing(dialogue.toolset.conversation.web)
        self.interrupted_calls: set[str] = set()
        self._calls: list[_Call] = []
        self._ended = asyncio.Event()
        self._broken = False
        self._began = 0
        self._left_out = False
        self._last_word: str | None = None
        self._watchers: dict[str, InputWatcher] = {}
        self._shown: dict[str, ShownText] = {}
        self._told = ""
        self._answered = False
        settings = dialogue.settings
        self._unusable_left = settings.unusable_answer_retries
        self._output_left = settings.unusable_answer_retries
        self._endings = Endings(settings.unusable_answer_retries)
        self._failures = Failures(settings.same_failure_hint, settings.same_failure_limit)
        self._made: list[ToolCall] = []
        self._repeats: dict[str, RepeatWatch] = {}
        self._first = 0
        self._earlier: tuple[ResponseItem, ...] = ()
        self._summarised = False
        self._began_at = time.monotonic()

    async def run(self) -> TurnResult:
        """Ask the model until it calls no tool, or a tool ends the turn.

        Raises `ModelError`, `Fatal`, `TurnLimit`, `CallMissing`, `Repetition` and `OutputInvalid`. History stays
        complete in every case.
        """
        self._first = self._dialogue.history.count
        limit = self._dialogue.settings.max_turns
        asked = sent_back = 0
        while True:
            if limit is not None and asked >= limit:
                raise TurnLimit(f"stopped after {limit} requests (--max-turns): the model wanted to go on")
            asked += 1
            last = self._is_last_request()
            more = await self._sample_patiently()
            if more and last:
                raise TurnLimit(f"{self._dialogue.allowance.reason}: the model wanted to go on")
            if more or self._ask_after_nothing():
                continue
            if self.tool_choice not in ("auto", "none"):
                raise CallMissing(_missing(self.tool_choice))
            output, correction = self._read_output()
            if correction is not None:
                self._dialogue.say(correction)
                continue
            again = await self._hooks.at_stop(self.text, sent_back)
            if again is None and not await self._add_steered():
                return self.result(output=output)
            if again is None:
                self._last_word = None
                continue
            sent_back += 1
            self._last_word = None
            self._dialogue.say(again)

    async def _add_steered(self) -> bool:
        """Put what the user said meanwhile into history. Return True if there was anything."""
        added = False
        while (content := self._dialogue.next_steered()) is not None:
            try:
                await self._hooks.at_prompt(text_of(content))
            except PromptBlocked as blocked:
                self._dialogue.emit(WarningEvent(message=str(blocked)))
                continue
            self._dialogue.hear(content)
            added = True
        return added

    def _is_last_request(self) -> bool:
        """Ask for a final answer without tools once no call is left. Return True if this is the last request."""
        dialogue, allowance = self._dialogue, self._dialogue.allowance
        if not allowance.is_spent or not self._made:
            return False
        if self.tool_choice != "none":
            self.tool_choice = "none"
            dialogue.tell_model(f"{allowance.reason.capitalize()}. Answer now, with what you have found.")
            dialogue.add_notes()
        return True

    def result(self, *, aborted: bool = False, output: object = None) -> TurnResult:
        """Return the result so far."""
        dialogue = self._dialogue
        return TurnResult(
            self.text,
            self.usage,
            self.id,
            aborted,
            dialogue.toolset.session_id,
            (*self._earlier, *dialogue.history.since(self._first)),
            tuple(self._made),
            dialogue.toolset.conversation.turn_diff.diff_of(self.id),
            time.monotonic() - self._began_at,
            output,
            dialogue.budget.cost_of(self.usage),
            self.citations,
            self._endings.incomplete,
        )

    def _read_output(self) -> tuple[object, str | None]:
        """Return the last message as the requested type, or a correction for the model. Raises `OutputInvalid` after
        the last correction."""
        kind = self._dialogue.output_type
        if kind is None or self._last_word is not None:
            return None, None
        try:
            return kind.read(self.text), None
        except ValueError as error:
            if not self._output_left:
                raise OutputInvalid(f"the model's answer is not the {kind.name} that was asked for: {error}") from error
            self._output_left -= 1
            self._warn(f"the answer is not the {kind.name} that was asked for", "asking again")
            return None, kind.correction(error)

    async def _sample_patiently(self) -> bool:
        """Ask once, and again when the stream breaks off. No call runs twice."""
        retries, attempt, overflows = self._dialogue.settings.stream_retries, 0, 0
        self._answered, self._told = False, ""
        while True:
            try:
                more = await self._sample()
                if self._answered:
                    self._unusable_left = self._dialogue.settings.unusable_answer_retries
                return more
            except ModelError as error:
                if isinstance(error, ContentRefused) and self._dialogue.leave_out_refused():
                    self._dialogue.emit(WarningEvent(message=f"{error}; going on without its images"))
                    continue
                if isinstance(error, CallUnreadable) and self._ask_after_unreadable(error):
                    continue
                if isinstance(error, ContextOverflow) and overflows < COMPACTIONS:
                    overflows += 1
                    if await self._compactor.after_refusal(error, self.id, self._went_on):
                        continue
                if not error.retryable or attempt == retries:
                    self._keep(error.partial)
                    raise
                self._warn(str(error), f"asking again ({attempt + 1} of {retries})")
                await asyncio.sleep(delay_ms(attempt, error.retry_after_ms, random.random()) / 1000)
                attempt += 1

    def _warn(self, what: str, then: str) -> None:
        """Warn of a failure and what follows; say the same failure only once in a row."""
        self._dialogue.emit(WarningEvent(message=then if what == self._told else f"{what.rstrip('.')}; {then}"))
        self._told = what

    def _ask_after_nothing(self) -> bool:
        """Return True to ask again because the model said nothing. Raises `ModelError` after the last try: an empty
        answer is no success."""
        if self._answered or self._last_word is not None:
            return False
        times = self._dialogue.settings.unusable_answer_retries
        if not self._unusable_left:
            raise ModelError(
                f"The model answered nothing, asked {times + 1} times (unusable_answer_retries): "
                "say in a further message how to go on, or choose another model with -m."
            )
        self._unusable_left -= 1
        self._warn("the model answered nothing", f"asking again ({times - self._unusable_left} of {times})")
        if not self._unusable_left:
            self._dialogue.say(CONTINUE)
        return True

    def _ask_after_unreadable(self, error: CallUnreadable) -> bool:
        """Show the model its call that the server could not read. Return False after the last try."""
        if not self._unusable_left:
            return False
        self._unusable_left -= 1
        self._keep(error.partial)
        wrote = f" You wrote:\n{error.generation[:LONGEST_GENERATION]}\n" if error.generation else " "
        self._dialogue.say(
            f"Your last call could not be read: {error.said or error}{wrote}"
            "Make the call again, with its name and valid JSON arguments, or answer in words."
        )
        self._warn(str(error), "asking again")
        return True

    def _keep(self, partial: ResponseItem | None) -> None:
        """Keep what the model had said when the stream broke off for good, marked as incomplete."""
        if partial is not None:
            self._dialogue.add(partial)
            self._dialogue.emit(ItemCompleted(item=partial))

    async def _sample(self) -> bool:
        """Send one request. Return True if the model has to be asked again."""
        dialogue, toolset = self._dialogue, self._dialogue.toolset
        dialogue.budget.check()
        await toolset.settled()
        dialogue.tell_guidance()
        await self._add_steered()
        for notice in dialogue.children.notices():
            dialogue.say(notice)
        await self._compactor.make_room(self.id, self._went_on)
        dialogue.budget.check()  # a summary costs, too
        specs, _ = toolset.current()
        dispatcher = toolset.dispatcher(self.id, self._interrupt, refuse=dialogue.allowance.take)
        request = dialogue.request(
            specs,
            self.interrupted_calls,
            self.tool_choice,
            on_sent=self._loading.due(specs),
            compact_threshold=self._compactor.server_limit,
        )
        self._began, asked = len(request.items), dialogue.history.tokens
        self._ended = asyncio.Event()
        self._calls, self._left_out, more, usage, broken = [], False, False, None, True
        try:
            async with aclosing(dialogue.ask(request)) as events:
                async for event in events:
                    if isinstance(event, ItemDone):
                        self._take(event.item, dispatcher)
                    elif isinstance(event, Completed):
                        usage, more = event.usage, event.end_turn is False
                        self._endings.note(event)
                        as_said = event.incomplete is None and not self._left_out
                        dialogue.history.mark_stored(event.response_id if as_said else "")
                        self._compactor.counted(usage, asked)
                        if event.incomplete is not None:
                            dialogue.emit(WarningEvent(message=f"the answer was cut short: {event.incomplete}"))
                    elif isinstance(event, Learned):
                        dialogue.learn(event.lesson)
                    else:
                        if isinstance(event, Retrying):
                            self._counted(event.usage, asked, broken=True)
                        if isinstance(event, TextDelta | ReasoningDelta):
                            self._watch(event)
                        if dialogue.observed:
                            self._show(event, dispatcher)
            broken = False
        except ModelError as error:
            usage = error.usage
            raise
        finally:
            usage = self._counted(usage, asked, broken=broken)
            await self._settle(usage, broken)
        if self._summarised:
            self._summarised = False
            self._went_on(self._compactor.drop_summarised(self.id))
        if self._failures.reason is not None:
            raise SameFailure(self._failures.reason)
        if self._last_word is not None:
            self.text = self._last_word
            return False
        return self._corrected() or more or not all(call.answered_there for call in self._calls)

    def _corrected(self) -> bool:
        """Tell the model of its call that was cut off, if there is one."""
        correction = self._endings.correction()
        if correction is not None:
            self._dialogue.say(correction)
        return correction is not None

    def _went_on(self, done: Compacted) -> None:
        """Keep account of a compaction: the turn's items are in another history now."""
        self._earlier += done.replaced[self._first :]
        self._first = self._dialogue.history.count
        self.usage += self._compactor.new_usage()

    def _counted(self, usage: TokenUsage | None, asked: int, *, broken: bool) -> TokenUsage | None:
        """Count what a request took; where the server does not say, estimate it if it matters."""
        dialogue = self._dialogue
        if not broken and (usage is None or not usage.total_tokens) and dialogue.budget.is_watched:
            usage = dialogue.estimate(asked)
        if usage is None:
            return None
        self.usage += usage
        dialogue.budget.spend(usage)
        if dialogue.observed:
            cost = dialogue.budget.cost_of(self.usage)
            dialogue.emit(TokenCount(turn_id=self.id, usage=self.usage, cost=cost, budget=dialogue.budget.figure))
        return usage

    def _watch(self, event: TextDelta | ReasoningDelta) -> None:
        """Raise `Repetition` once a text has repeated itself for too long."""
        watch = self._repeats.get(event.item_id)
        if watch is None:
            watch = self._repeats[event.item_id] = RepeatWatch()
        if watch.feed(event.delta):
            what = "answer" if isinstance(event, TextDelta) else "reasoning"
            raise Repetition(
                f"stopped: the model's {what} repeats itself ({REPEATED:,} characters of the same again); "
                "ask in other words, or choose another model with -m"
            )

    def _take(self, item: ResponseItem, dispatcher: Dispatcher) -> None:
        """Record an item of the model; start it if it is a call that has not run yet."""
        call_id = called_id(item.view)
        if call_id is not None and call_id in self.interrupted_calls:
            self._left_out = self._answered = True
            return
        dialogue = self._dialogue
        item = _with_arguments(item)
        dialogue.add(item)
        routed = dispatcher.route(item.view)
        self._answered = self._answered or routed is not None or _says_something(item.view)
        self._summarised = self._summarised or isinstance(item.view, Compaction)
        if not isinstance(item.view, Message | Reasoning | MessageBlock):
            self.tool_choice = after_a_call(self.tool_choice)
        if routed is not None:
            dialogue.emit(ItemStarted(item=item))
            started = time.monotonic()
            refused = self._call_refused()
            work = self._pass_over(item, refused) if refused else self._answer(item, routed, dispatcher, started)
            self._calls.append(_Call(item, routed.invocation, start_task(work), started))
            return
        if (answered := answered_id(item.view)) is not None:
            self._leave_to_provider(answered, item.view)
        if is_unfinished(item.view):
            dialogue.tell_model(nobody_runs(item.view))
        if isinstance(item.view, Message):
            self.text, self.citations = self._citing.read(shown(text_of(item.view.content)))
        if dialogue.observed:
            dialogue.emit(ItemCompleted(item=self._citing.shown(item)))

    def _call_refused(self) -> str | None:
        """Return why one more call is not run, or None."""
        if len(self._calls) >= MAX_CALLS:
            return TOO_MANY_CALLS
        return self._dialogue.allowance.take()

    def _leave_to_provider(self, call_id: str, output: ItemView) -> None:
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
            self._last_word = output.text
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

    async def _settle(self, usage: TokenUsage | None, broken: bool) -> None:
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
                self.interrupted_calls.update(filter(None, (called_id(call.view) for call in self._calls)))
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
            self._made.append(tool_call(call.view, call.invocation, output))
        return fatal

    def _show(self, event: ResponseEvent, dispatcher: Dispatcher) -> None:
        """Show the front end what is still arriving."""
        emit = self._dialogue.emit
        match event:
            case TextDelta(item_id=item_id, delta=delta):
                text = self._shown.setdefault(item_id, ShownText()).feed(delta)
                if text := self._citing.feed(item_id, text):
                    emit(ItemUpdated(item_id=item_id, kind="text", delta=text))
            case ReasoningDelta(item_id=item_id, delta=delta):
                emit(ItemUpdated(item_id=item_id, kind="reasoning", delta=delta, summary=event.summary))
            case ToolInputDelta(item_id=item_id, call_id=call_id, delta=delta):
                emit(ItemUpdated(item_id=item_id, kind="input", delta=delta, call_id=call_id))
                watcher = self._watchers.get(item_id)
                progress = watcher.feed(delta) if watcher is not None else None
                if progress is not None:
                    emit(progress)
            case ItemAdded(item_id=item_id, call_id=call_id, name=name) if name and call_id:
                handler = dispatcher.registry.handler(name)
                watcher = handler.input_watcher(call_id) if handler is not None else None
                if watcher is not None:
                    self._watchers[item_id] = watcher
            case LeftOut(message=message) | PassedOver(message=message):
                emit(WarningEvent(message=message))
            case Retrying(message=message, delay_ms=delay, longest_ms=longest) if message != self._told:
                long = f", and for up to {in_words(longest)}" if longest > delay else ""
                self._warn(message, f"trying again in {delay / 1000:.1f} s{long}")


def _says_something(view: ItemView) -> bool:
    """Return False for reasoning, an empty message, or a call that nobody runs."""
    if isinstance(view, Message):
        return bool(shown(text_of(view.content)).strip())
    return not isinstance(view, Reasoning) and not is_unfinished(view)


def _with_hint(output: ToolOutput, hint: str) -> ToolOutput:
    """Append a hint for the model to an output, or beside it: a native output has no room for one."""
    if isinstance(output.body, str):
        return msgspec.structs.replace(output, body=f"{output.body}\n\n{hint}")
    if isinstance(output.body, tuple):
        return msgspec.structs.replace(output, body=(*output.body, InputText(hint)))
    return msgspec.structs.replace(output, beside="\n\n".join(filter(None, (output.beside, hint))))


def _with_arguments(item: ResponseItem) -> ResponseItem:
    """Replace empty arguments by `{}`: servers refuse to read an empty text back."""
    if not isinstance(item.view, FunctionCall) or item.view.arguments.strip():
        return item
    fields = msgspec.json.decode(item.raw, type=dict[str, msgspec.Raw])
    fields["arguments"] = msgspec.Raw(b'"{}"')
    return read_item(msgspec.json.encode(fields), item.origin)


async def _all_done(calls: Sequence[_Call]) -> None:
    pending = [call.task for call in calls if not call.task.done()]
    if pending:
        await asyncio.wait(pending)


def _missing(choice: ToolChoice) -> str:
    called = f"the tool {choice.name!r}" if isinstance(choice, ForcedTool) else "one of its tools"
    return (
        f"the model was to call {called} and answered without a call: this server or model does not support a forced "
        "tool_choice; ask for the call in the prompt, or choose another model"
    )
