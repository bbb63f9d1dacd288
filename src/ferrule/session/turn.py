"""The turn loop: ask the model, start its tools as their calls arrive, answer in call order, ask again."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import aclosing

import msgspec

from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.history.pairs import answered_id, called_id
from ferrule.model.retry import delay_ms, in_words
from ferrule.model.stream import (
    CallUnreadable,
    Completed,
    ContentRefused,
    ContextOverflow,
    ForcedTool,
    ItemDone,
    Learned,
    ModelError,
    ModelRequest,
    ReasoningDelta,
    ResponseEvent,
    Retrying,
    TextDelta,
    ToolChoice,
)
from ferrule.protocol.content import text_of
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.events import ItemCompleted, TokenCount, TokenUsage, WarningEvent
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
from ferrule.protocol.thoughts import shown
from ferrule.session.bounds import REPEATED, CallMissing, RepeatWatch, Repetition
from ferrule.session.compaction import ATTEMPTS as COMPACTIONS
from ferrule.session.compaction import Compacted, Compactor
from ferrule.session.dialogue import Dialogue
from ferrule.session.endings import Endings
from ferrule.session.loading import ToolLoading
from ferrule.session.output_type import OutputInvalid
from ferrule.session.result import TurnResult
from ferrule.session.tool_choice import after_a_call
from ferrule.session.turn_calls import TurnCalls
from ferrule.session.turn_hooks import PromptBlocked, TurnHooks
from ferrule.session.updates import Updates
from ferrule.session.web import Citing
from ferrule.web.marks import Citation

CONTINUE = "Your last answer was empty. Go on with the task: call a tool, or say what you have found."
"""Sent to a model that keeps answering nothing."""
LONGEST_GENERATION = 2_000
"""Characters of an unreadable call that its model is shown: the mistake is near the beginning."""


class TurnLimit(FerruleError):
    """The model still wanted to go on after as many requests as are allowed."""


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
        self._updates = Updates(dialogue.emit, self._citing)
        self._calls = TurnCalls(dialogue)
        self._left_out = False
        self._told = ""
        self._answered = False
        settings = dialogue.settings
        self._unusable_left = settings.unusable_answer_retries
        self._output_left = settings.unusable_answer_retries
        self._endings = Endings(settings.unusable_answer_retries)
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
                self._calls.last_word = None
                continue
            sent_back += 1
            self._calls.last_word = None
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
        if not allowance.is_spent or not self._calls.made:
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
            tuple(self._calls.made),
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
        if kind is None or self._calls.last_word is not None:
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
        if self._answered or self._calls.last_word is not None:
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

    async def _next_request(self) -> tuple[ModelRequest, Dispatcher]:
        """Put into history what the model has to know next, and return the request and what runs its calls."""
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
        request = dialogue.request(
            specs,
            self._calls.interrupted,
            self.tool_choice,
            on_sent=self._loading.due(specs),
            compact_threshold=self._compactor.server_limit,
        )
        return request, toolset.dispatcher(self.id, self._interrupt, refuse=dialogue.allowance.take)

    async def _sample(self) -> bool:
        """Send one request. Return True if the model has to be asked again."""
        dialogue, calls = self._dialogue, self._calls
        request, dispatcher = await self._next_request()
        asked = dialogue.history.tokens
        calls.begin()
        self._left_out, more, usage, broken = False, False, None, True
        try:
            async with aclosing(dialogue.ask(request)) as events:
                async for event in events:
                    if isinstance(event, ItemDone):
                        self._take(event.item, dispatcher)
                    elif isinstance(event, Completed):
                        usage, more = event.usage, event.end_turn is False
                        self._complete(event, asked)
                    else:
                        self._heed(event, dispatcher, asked)
            broken = False
        except ModelError as error:
            usage = error.usage
            raise
        finally:
            usage = self._counted(usage, asked, broken=broken)
            await calls.settle(usage, broken)
        if self._summarised:
            self._summarised = False
            self._went_on(self._compactor.drop_summarised(self.id))
        calls.end_if_repeated()
        if calls.last_word is not None:
            self.text = calls.last_word
            return False
        return self._corrected() or more or calls.wait_for_model

    def _complete(self, event: Completed, asked: int) -> None:
        """Note how an answer ended, and what the server has stored and counted."""
        self._endings.note(event)
        as_said = event.incomplete is None and not self._left_out
        self._dialogue.history.mark_stored(event.response_id if as_said else "")
        self._compactor.counted(event.usage, asked)
        if event.incomplete is not None:
            self._dialogue.emit(WarningEvent(message=f"the answer was cut short: {event.incomplete}"))

    def _heed(self, event: ResponseEvent, dispatcher: Dispatcher, asked: int) -> None:
        """Take what arrives beside items: pieces of them, and what becomes of the request."""
        if isinstance(event, Learned):
            self._dialogue.learn(event.lesson)
            return
        if isinstance(event, TextDelta | ReasoningDelta):
            self._watch(event)
        elif isinstance(event, Retrying):
            self._counted(event.usage, asked, broken=True)
            if event.message != self._told:
                longest = event.longest_ms
                long = f", and for up to {in_words(longest)}" if longest > event.delay_ms else ""
                self._warn(event.message, f"trying again in {event.delay_ms / 1000:.1f} s{long}")
        if self._dialogue.observed:
            self._updates.show(event, dispatcher.registry)

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
        if call_id is not None and call_id in self._calls.interrupted:
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
            self._calls.start(item, routed, dispatcher)
            return
        if (answered := answered_id(item.view)) is not None:
            self._calls.leave_to_provider(answered, item.view)
        if is_unfinished(item.view):
            dialogue.tell_model(nobody_runs(item.view))
        if isinstance(item.view, Message):
            self.text, self.citations = self._citing.read(shown(text_of(item.view.content)))
        if dialogue.observed:
            dialogue.emit(ItemCompleted(item=self._citing.shown(item)))


def _says_something(view: ItemView) -> bool:
    """Return False for reasoning, an empty message, or a call that nobody runs."""
    if isinstance(view, Message):
        return bool(shown(text_of(view.content)).strip())
    return not isinstance(view, Reasoning) and not is_unfinished(view)


def _with_arguments(item: ResponseItem) -> ResponseItem:
    """Replace empty arguments by `{}`: servers refuse to read an empty text back."""
    if not isinstance(item.view, FunctionCall) or item.view.arguments.strip():
        return item
    fields = msgspec.json.decode(item.raw, type=dict[str, msgspec.Raw])
    fields["arguments"] = msgspec.Raw(b'"{}"')
    return read_item(msgspec.json.encode(fields), item.origin)


def _missing(choice: ToolChoice) -> str:
    called = f"the tool {choice.name!r}" if isinstance(choice, ForcedTool) else "one of its tools"
    return (
        f"the model was to call {called} and answered without a call: this server or model does not support a forced "
        "tool_choice; ask for the call in the prompt, or choose another model"
    )
