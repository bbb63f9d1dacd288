"""The dialogue of the user, the model and its tools: history, its record, and the next request."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from ferrule.dispatch.front_end import Pace
from ferrule.history.compaction import user_message
from ferrule.history.history import History
from ferrule.history.pairs import settled
from ferrule.model.lessons import Lesson, latest
from ferrule.model.recipient import mark_of
from ferrule.model.stream import Model, ModelRequest, OutputFormat, ResponseEvent, ToolChoice
from ferrule.model.wire import WireModel
from ferrule.protocol.content import ContentPart, InputImage, InputText, text_of
from ferrule.protocol.events import Event, TokenUsage, WarningEvent
from ferrule.protocol.items import Message, ResponseItem, make_item
from ferrule.protocol.settings import Settings
from ferrule.protocol.specs import ConfiguredToolSpec, ToolSpec
from ferrule.protocol.truncation import BYTES_PER_TOKEN, OutputBudget, byte_length, tokens_of_bytes, truncate_text
from ferrule.session.bounds import Allowance
from ferrule.session.budget import Budget
from ferrule.session.children import SessionChildren
from ferrule.session.guidance import Guidance
from ferrule.session.images import MAX_IMAGE_BYTES, bounded, without_marked, without_refused
from ferrule.session.instructions import base_instructions, with_examples
from ferrule.session.lines import ImagesRefused
from ferrule.session.output_type import OutputType
from ferrule.session.record import Parentage, SessionRecord
from ferrule.session.rollout import StoredSession
from ferrule.session.server_check import ServerCheck
from ferrule.session.skills import Skills
from ferrule.session.toolset import Toolset
from ferrule.tools.events import ToolEvent

if TYPE_CHECKING:
    from ferrule.model.abilities import Wanted
    from ferrule.session.spans import Spans

RUNNING_BUDGET = OutputBudget(100)
"""Of the text of a command that still runs: enough to know it again."""


class Dialogue:
    """The state that turns share. `notes` are texts for the model, read behind the response that goes on; the
    session's hooks add theirs to the same list."""

    def __init__(
        self,
        settings: Settings,
        model: Model,
        model_name: str,
        toolset: Toolset,
        record: SessionRecord,
        history: History,
        *,
        budget: Budget,
        output_type: OutputType | None = None,
        stored: StoredSession | None = None,
        notes: list[str] | None = None,
        parentage: Parentage = Parentage(),  # noqa: B008 - frozen
        children: SessionChildren,
        spans: "Spans | None" = None,
        checks_server: bool = True,
    ) -> None:
        self.settings = settings
        self.model = model
        self.spans = spans
        ask = model.stream if spans is None else spans.asking(model.stream)
        self.ask = ask if toolset.host.pace is None else _paced(ask, toolset.host.pace)
        """Sends a request to the model; see `Model.stream`."""
        self.model_name = model_name
        self.toolset = toolset
        self.record = record
        self.history = history
        toolset.recall(self.history.items)
        self.guidance = Guidance(settings, toolset.touched, self._warn)
        self.guidance.recall(self.history.items)
        self.skills = Skills(settings, self._warn)
        self.stored = None if stored is None else msgspec.structs.replace(stored, responses=())
        """The session that this one goes on with, without its items: history has them."""
        self._lessons = stored.lessons if stored else ()
        self.output_type = output_type
        self.budget = budget
        self.allowance = Allowance(settings.max_tool_calls, settings.run_max_tool_calls)
        self.check = ServerCheck(
            model if checks_server else None,
            model_name,
            self._wanted,
            self._warn,
            configured=settings.model.context_window,
            usual=toolset.conversation.profile.context_window,
        )
        self._instructions = with_examples(
            settings.instructions or base_instructions(settings.model.reasoning_effort), toolset.examples
        )
        self._specs: tuple[list[ConfiguredToolSpec], tuple[ToolSpec, ...]] | None = None
        self._fixed: tuple[list[ConfiguredToolSpec], int] | None = None
        self.parentage = parentage
        self.children = children
        self._notes = [] if notes is None else notes
        self._steered: list[tuple[ContentPart, ...]] = []
        self._estimated = False

    @property
    def observed(self) -> bool:
        """True if somebody listens to the events."""
        return self.toolset.host.observed

    def emit(self, event: Event | ToolEvent) -> None:
        """Show an event."""
        self.toolset.host.emit(event)

    def _warn(self, text: str) -> None:
        self.emit(WarningEvent(message=text))

    def add(self, item: ResponseItem) -> None:
        """Put an item into history and on disk."""
        self.history.append(item)
        self.record.item(item)
        if _has_image(item):
            self.check.image_added()

    def hear(self, content: tuple[ContentPart, ...]) -> None:
        """Put what the user said into history, with the skills that it names."""
        self.add(make_item(Message(role="user", content=content)))
        for message in self.skills.mentioned(text_of(content)):
            self.add(message)

    def say(self, text: str) -> None:
        """Put words of the user into history."""
        self.add(user_message(text))

    def tell_guidance(self) -> None:
        """Put the AGENTS.md files into history whose folders calls have touched."""
        for message in self.guidance.fresh():
            self.add(message)

    def steer(self, content: tuple[ContentPart, ...]) -> None:
        """Let the model read these words of the user before its next answer."""
        self._steered.append(content)

    def next_steered(self) -> tuple[ContentPart, ...] | None:
        """Take the oldest words that the model has not read yet."""
        return self._steered.pop(0) if self._steered else None

    def add_notes(self) -> None:
        """Move the waiting notes for the model into history."""
        notes, self._notes[:] = list(self._notes), []
        for text in notes:
            self.add(make_item(Message(role="developer", content=(InputText(text),))))

    def tell_model(self, text: str) -> None:
        """Add a note that the model reads after the current response."""
        self._notes.append(text)

    def request(
        self,
        specs: list[ConfiguredToolSpec],
        interrupted_calls: set[str],
        tool_choice: ToolChoice,
        on_sent: Callable[[], None] | None,
        compact_threshold: int | None = None,
    ) -> ModelRequest:
        """Build the next request to the model; `on_sent` is called while it thinks."""
        history, stored = self.history, self.history.stored
        if self._specs is None or self._specs[0] is not specs:
            self._specs = (specs, tuple(entry.spec for entry in specs))
        items = bounded(history.items) if history.weight > MAX_IMAGE_BYTES else history.items
        return ModelRequest(
            model=self.model_name,
            instructions=self._instructions,
            items=items,
            lineage=history.lineage if items is history.items else None,
            tools=self._specs[1],
            tool_choice=tool_choice,
            settings=self.settings.model,
            output_format=OutputFormat(schema=schema) if (schema := self.settings.output_schema) is not None else None,
            session_id=self.toolset.session_id,
            previous_response_id=stored.response_id if stored else None,
            stored_items=stored.items if stored else 0,
            on_sent=self.check.due(on_sent),
            interrupted_calls=frozenset(interrupted_calls),
            compact_threshold=compact_threshold,
            lessons=self._lessons,
        )

    def _wanted(self) -> "Wanted":
        """Return what the session wants of a server of the user's own."""
        from ferrule.model.abilities import Wanted

        return Wanted(
            self.fixed_tokens(),
            tools=bool(self.toolset.current()[0]),
            images=any(map(_has_image, self.history.items)),
            native=not isinstance(self.model, WireModel) or self.model.native_calls,
            window=self.settings.model.context_window,
        )

    @property
    def instruction_tokens(self) -> int:
        """Approximate tokens of the instructions."""
        return tokens_of_bytes(byte_length(self._instructions))

    def fixed_tokens(self) -> int:
        """Return the approximate tokens of what each request has beside its items: instructions and tools."""
        specs, _ = self.toolset.current()
        if self._fixed is None or self._fixed[0] is not specs:
            size = sum(len(msgspec.json.encode(entry.spec.to_responses())) for entry in specs)
            self._fixed = (specs, self.instruction_tokens + tokens_of_bytes(size))
        return self._fixed[1]

    def request_about(self, items: tuple[ResponseItem, ...], *, with_tools: bool = False) -> ModelRequest:
        """Build a request beside the conversation: other items, and no tools that may be called."""
        specs = self.toolset.current()[0] if with_tools else ()
        return ModelRequest(
            model=self.model_name,
            instructions=self._instructions,
            items=bounded(items) if self.history.weight > MAX_IMAGE_BYTES else items,
            tools=tuple(entry.spec for entry in specs),
            tool_choice="none" if with_tools else "auto",
            settings=self.settings.model,
            session_id=self.toolset.session_id,
            lessons=self._lessons,
        )

    def running_commands(self) -> str:
        """Return what the model must know of the commands that still run; empty if none does."""
        running = self.toolset.conversation.commands.running()
        lines = [f"- session {number}: {truncate_text(script, RUNNING_BUDGET)}" for number, script in running]
        return "\n".join(["Commands that are still running:", *lines]) if lines else ""

    def replace_history(self, items: tuple[ResponseItem, ...], summary: str, usage: TokenUsage) -> None:
        """Go on with `items` instead of all that was said; the record keeps both."""
        self.history.replace(items)
        self.guidance.recall(items)
        self.record.compacted(items, summary)
        self.record.end_response(usage)

    def estimate(self, asked: int) -> TokenUsage:
        """Return about what a request took whose history was estimated at `asked` tokens and whose server does not
        say; tell it once."""
        if not self._estimated:
            self._estimated = True
            text = f"the server reports no token usage; it is estimated, at {BYTES_PER_TOKEN} bytes a token"
            self.emit(WarningEvent(message=text))
        return TokenUsage(input_tokens=self.fixed_tokens() + asked, output_tokens=self.history.tokens - asked)

    def leave_out_refused(self) -> bool:
        """Go on without the images that the server has refused. Return False if there were none."""
        before, items = self.history.items, without_refused(self.history.items)
        if items is None:
            return False
        self.history.replace(items)
        marks = {mark_of(one.raw) for one, other in zip(before, items, strict=True) if one is not other}
        self.record.images_refused(ImagesRefused(self.settings.provider_name, self.model_name, frozenset(marks)))
        return True

    def learn(self, lesson: Lesson) -> None:
        """Remember what the server refuses, also for when this session is resumed."""
        self._lessons = latest((*self._lessons, lesson))
        self.record.lesson(lesson)


def _has_image(item: ResponseItem) -> bool:
    """Return whether an item is a message with an image."""
    content = item.view.content if isinstance(item.view, Message) else ""
    return not isinstance(content, str) and any(isinstance(part, InputImage) for part in content)


def restored_history(stored: StoredSession | None, settings: Settings, model_name: str) -> History:
    """Return the history of a stored session, without the images that this server has refused; None: an empty one."""
    if stored is None:
        return History()
    who = (settings.provider_name, model_name)
    marks = {mark for refused in stored.refused if (refused.provider, refused.model) == who for mark in refused.items}
    return History(without_marked(settled(stored.responses), marks))


Ask = Callable[[ModelRequest], AsyncGenerator[ResponseEvent, None]]


def _paced(ask: Ask, pace: Pace) -> Ask:
    """Let the model's answer wait for a front end that is slower."""

    async def stream(request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        async with aclosing(ask(request)) as events:
            async for event in events:
                await pace()
                yield event

    return stream
