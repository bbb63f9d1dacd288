"""Compaction: history is replaced by a summary before it outgrows the model's window, on demand, and when the server
says that it is too long. Until the replacement is whole, history stays as it was."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Literal, Protocol, runtime_checkable

import msgspec

from ferrule.history.compaction import (
    KEPT_USER_TOKENS,
    SUMMARY_PROMPT,
    around_summary,
    compacted,
    cut_to,
    is_said,
    is_summary,
    split_unanswered,
    summary_message,
    user_message,
)
from ferrule.history.images import REFUSED, without_images
from ferrule.history.tokens import Meter, estimate_all
from ferrule.model.retry import delay_ms
from ferrule.model.stream import (
    Completed,
    ContentRefused,
    ContextOverflow,
    ItemDone,
    Learned,
    LeftOut,
    ModelError,
    ModelRequest,
    Retrying,
    TextDelta,
)
from ferrule.protocol.content import text_of
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.events import ContextCompacted, TokenUsage, WarningEvent
from ferrule.protocol.items import Compaction, Message, ResponseItem
from ferrule.protocol.thoughts import shown
from ferrule.protocol.truncation import OutputBudget, byte_length, tokens_of_bytes, truncate_text
from ferrule.session.bounds import RepeatWatch
from ferrule.session.dialogue import Dialogue
from ferrule.session.turn_hooks import TurnHooks

Trigger = Literal["auto", "manual"]

CONTEXT_FULL = "the context is full"
"""How the failure begins of a turn that cannot be asked for: as no later one, unless what fills it is taken back."""

DEFAULT_SHARE = 0.85
"""The share of the window at which history is compacted: an answer and its tool outputs still fit then."""
LEAST_SHARE = 0.6
"""Below it nothing is compacted: each compaction loses something."""
MOST_SHARE = 0.95
ATTEMPTS = 3
"""Requests for one summary, and compactions for one request that the server refuses as too long."""
SHRINK = 0.5
"""How much smaller the next request for a summary is when the server refused one as too long, and each time as much
again: what is left out is lost, but a session may go on with a model of a far smaller window."""
WORDS_SHARE = 0.2
"""The share of the window that the user's newest words may fill, and the summary, too."""
TOOLS_PERHAPS_MISSED = frozenset({400, 422})
"""How servers refuse a request that offers no tools though there are calls in it."""
PROMPT_TOKENS = 500
"""Room for the words that ask for a summary."""


class CompactionFailed(FerruleError):
    """History could not be made smaller. It is as it was."""


class NothingGained(CompactionFailed):
    """A compaction would not make history smaller, or a hook does not want it."""


@runtime_checkable
class CompactingModel(Protocol):
    """A model whose server compacts a history itself."""

    async def compact(self, request: ModelRequest) -> tuple[tuple[ResponseItem, ...], TokenUsage | None]:
        """Return what replaces the request's items. Raises `ModelError`."""
        ...


class Compacted(msgspec.Struct, frozen=True):
    """One compaction: tokens of the next request before and after, the items that were replaced, and its cost."""

    before: int
    after: int
    replaced: tuple[ResponseItem, ...]
    usage: TokenUsage


OnReplaced = Callable[[Compacted], None]


class _Replacement(msgspec.Struct, frozen=True):
    items: tuple[ResponseItem, ...]
    summary: str


class Compactor:
    """Keeps a session's requests within the window. `opening` makes the messages that come before the user's first."""

    def __init__(self, dialogue: Dialogue, hooks: TurnHooks, opening: Callable[[], Iterable[ResponseItem]]) -> None:
        self._dialogue = dialogue
        self._hooks = hooks
        self._opening = opening
        self._meter = Meter()
        self._rest = 0
        """After a compaction that did not shrink much: nothing is compacted below it."""
        self._spent = TokenUsage()
        """Of requests for summaries, also of those that came to nothing."""
        self._refused: int | None = None
        """Tokens that the server refused as too many: its window is smaller, whatever was said of it."""

    @property
    def window(self) -> int | None:
        """Tokens that a request may have; None if nobody said it."""
        return min(filter(None, (self._dialogue.check.window, self._refused)), default=None)

    @property
    def limit(self) -> int | None:
        """Tokens of a request from which on history is compacted first."""
        window = self.window
        if window is None:
            return None
        wanted = self._dialogue.settings.model.auto_compact_token_limit or round(window * DEFAULT_SHARE)
        return min(max(wanted, round(window * LEAST_SHARE)), round(window * MOST_SHARE))

    @property
    def server_limit(self) -> int | None:
        """Tokens from which on the server is to summarise; None if it is not asked to."""
        return self.limit if self._dialogue.settings.compaction == "context_management" else None

    def next_tokens(self) -> int:
        """Return the tokens of the next request, as far as can be told."""
        return self._meter.next(self._dialogue.history.tokens, self._dialogue.fixed_tokens())

    def counted(self, usage: TokenUsage | None, items: int) -> None:
        """Take the server's count of the last request, whose history was estimated at `items` tokens."""
        if usage is not None and self.window is not None:
            self._meter.counted(usage.input_tokens, items, self._dialogue.fixed_tokens())

    async def make_room(self, turn_id: str, on_replaced: OnReplaced) -> None:
        """Compact history if the next request would come too near to the window. Raises `CompactionFailed`."""
        await self._dialogue.check.before(self._dialogue.history.tokens)
        window, limit = self.window, self.limit
        if window is None or limit is None:
            return
        if self.server_limit is not None:
            limit = round(window * MOST_SHARE)
        tokens = self.next_tokens()
        if tokens < max(limit, self._rest):
            return
        with suppress(NothingGained):
            await self.compact("auto", turn_id, on_replaced)
        tokens = self.next_tokens()
        if tokens > window:
            raise CompactionFailed(
                f"{CONTEXT_FULL}: what has to be sent takes about {tokens:,} of {window:,} tokens "
                "(model_context_window), even without the earlier conversation; send less at once, offer fewer tools, "
                "or choose a model with a larger window"
            )
        self._rest = tokens + (window - tokens) // 2 if tokens >= limit else 0

    async def after_refusal(self, error: ContextOverflow, turn_id: str, on_replaced: OnReplaced) -> bool:
        """Compact history because the server refused it as too long. Return False where it does not help: the error
        says why then, too."""
        tokens = self.next_tokens()
        self._refused = min(tokens, self._refused or tokens)
        try:
            await self.compact("auto", turn_id, on_replaced)
        except CompactionFailed as failure:
            error.args = (f"{str(error).rstrip('.')}; {failure}",)
            return False
        return True

    @property
    def can_shrink(self) -> bool:
        """Whether the model has said anything that a summary could stand for."""
        seen, _ = split_unanswered(self._dialogue.history.items)
        return any(is_said(item) or is_summary(item) for item in seen)

    async def compact(self, trigger: Trigger, turn_id: str, on_replaced: OnReplaced) -> Compacted:
        """Replace history by a summary and what must not be lost. Raises `CompactionFailed`; history is whole then.

        `on_replaced` is called as soon as it is replaced: hooks come after it, and may be interrupted.
        """
        dialogue = self._dialogue
        before, replaced = self.next_tokens(), dialogue.history.items
        if not self.can_shrink:
            raise NothingGained("nothing of it can be left out: send less at once")
        blocked = await self._hooks.before_compaction(trigger)
        if blocked is not None:
            raise NothingGained(f"the conversation was not compacted; a PreCompact hook blocked it: {blocked}")
        spent = self._spent
        new = await self._replacement(replaced)
        usage = self._spent - spent
        if trigger == "auto" and estimate_all(new.items) >= dialogue.history.tokens:
            raise NothingGained("a summary would be as long as the conversation is: send less at once")
        dialogue.replace_history(new.items, new.summary, usage)
        self._meter.forget()
        after = self.next_tokens()
        done = Compacted(before, after, replaced, usage)
        on_replaced(done)
        dialogue.emit(ContextCompacted(turn_id=turn_id, tokens_before=before, tokens_after=after))
        await self._hooks.after_compaction(trigger, new.summary)
        return done

    async def _replacement(self, items: tuple[ResponseItem, ...]) -> _Replacement:
        model = self._dialogue.model
        if self._dialogue.settings.compaction == "endpoint" and isinstance(model, CompactingModel):
            try:
                return await self._by_server(model, items)
            except ModelError as error:
                self._warn(f"the server did not compact the conversation ({error}); it is summarised here instead")
        return await self._by_summary(items)

    def new_usage(self) -> TokenUsage:
        """Return the tokens that summaries have taken since the last call."""
        spent, self._spent = self._spent, TokenUsage()
        return spent

    def _spend(self, usage: TokenUsage) -> None:
        self._spent += usage
        self._dialogue.budget.spend(usage)

    async def _by_summary(self, items: tuple[ResponseItem, ...]) -> _Replacement:
        seen, _ = split_unanswered(items)
        text = await self._summary(seen)
        most = self._share(WORDS_SHARE)
        if most is not None:
            text = truncate_text(text, OutputBudget(most))
        message = summary_message(text, self._dialogue.running_commands())
        new = compacted(items, opening=self._opening(), summary=(message,), room=self._room_for_words)
        return _Replacement(new, text)

    async def _by_server(self, model: CompactingModel, items: tuple[ResponseItem, ...]) -> _Replacement:
        seen, unanswered = split_unanswered(items)
        said, usage = await model.compact(self._dialogue.request_about(tuple(seen)))
        if not said:
            raise ModelError("it answered with nothing")
        self._spend(usage or TokenUsage())
        return _Replacement((*self._around(said, seen), *unanswered), "")

    def _around(self, said: Sequence[ResponseItem], items: Sequence[ResponseItem]) -> tuple[ResponseItem, ...]:
        running = self._dialogue.running_commands()
        notes = [user_message(running)] if running else []
        return around_summary(said, items, opening=self._opening(), notes=notes, room=self._room_for_words)

    async def _summary(self, seen: Sequence[ResponseItem]) -> str:
        """Ask the model for a summary of what it has seen, shortened until the request fits."""
        window, failure = self.window, "the model answered nothing"
        whole = estimate_all(seen)
        room = whole if window is None else self._room_for_summary(window)
        with_tools = False
        for attempt in range(ATTEMPTS):
            self._dialogue.budget.check()
            about = (*cut_to(seen, room), user_message(SUMMARY_PROMPT))
            try:
                text = await self._ask(self._dialogue.request_about(about, with_tools=with_tools))
            except ContextOverflow as error:
                room, failure = round(min(room, whole) * SHRINK ** (attempt + 1)), str(error)
                continue
            except ContentRefused as error:
                seen, failure = [without_images(item, REFUSED) for item in seen], str(error)
                continue
            except ModelError as error:
                failure = str(error)
                self._spend(error.usage or TokenUsage())
                if not error.retryable and (with_tools or error.status not in TOOLS_PERHAPS_MISSED):
                    break
                if not error.retryable:
                    with_tools = True
                    continue
                await asyncio.sleep(delay_ms(attempt, error.retry_after_ms, random.random()) / 1000)
                continue
            if text.strip():
                return text
        raise CompactionFailed(
            f"the conversation could not be compacted, and is as it was: {failure.rstrip('.')}; "
            "try again, start a new session, or choose a model with a larger window"
        )

    async def _ask(self, request: ModelRequest) -> str:
        """Return what the model says to a request. Its tokens count, also where it fails."""
        dialogue, text, watch = self._dialogue, "", RepeatWatch()
        async with aclosing(dialogue.ask(request)) as events:
            async for event in events:
                match event:
                    case ItemDone(item=item) if isinstance(item.view, Message):
                        text += shown(text_of(item.view.content))
                    case Completed(usage=usage):
                        self._spend(usage if usage and usage.total_tokens else self._estimated(request, text))
                    case TextDelta(delta=delta) if watch.feed(delta):
                        raise ModelError("the summary repeats itself without end")
                    case Learned(lesson=lesson):
                        dialogue.learn(lesson)
                    case Retrying(message=message, usage=usage):
                        self._spend(usage or TokenUsage())
                        self._warn(message)
                    case LeftOut(message=message):
                        self._warn(message)
        return text

    def _estimated(self, request: ModelRequest, answer: str) -> TokenUsage:
        """Return about what a request took whose server does not say; nothing where nobody wants to know."""
        if not self._dialogue.budget.is_watched:
            return TokenUsage()
        asked = self._dialogue.instruction_tokens + estimate_all(request.items)
        return TokenUsage(input_tokens=asked, output_tokens=tokens_of_bytes(byte_length(answer)))

    def drop_summarised(self, turn_id: str) -> Compacted:
        """Take out what the server itself has summarised in the middle of its last answer."""
        dialogue, items = self._dialogue, self._dialogue.history.items
        at = next(at for at in range(len(items) - 1, -1, -1) if isinstance(items[at].view, Compaction))
        before = self.next_tokens()
        dialogue.replace_history(self._around(items[at:], items[:at]), "", TokenUsage())
        self._meter.forget()
        after = self.next_tokens()
        dialogue.emit(ContextCompacted(turn_id=turn_id, tokens_before=before, tokens_after=after))
        return Compacted(before, after, items, TokenUsage())

    def _room_for_summary(self, window: int) -> int:
        """Return the estimated tokens that may be asked about in one request."""
        return round(window * MOST_SHARE / self._meter.scale) - self._dialogue.instruction_tokens - PROMPT_TOKENS

    @property
    def _room_for_words(self) -> int:
        """Return the tokens that the user's newest words may have."""
        share = self._share(WORDS_SHARE)
        return KEPT_USER_TOKENS if share is None else min(KEPT_USER_TOKENS, share)

    def _share(self, share: float) -> int | None:
        return None if self.window is None else round(self.window * share)

    def _warn(self, text: str) -> None:
        self._dialogue.emit(WarningEvent(message=text))
