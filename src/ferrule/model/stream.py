"""Model requests and answers, independent of the wire."""

from collections.abc import AsyncGenerator, Callable
from typing import Literal, Protocol, Self

import msgspec

from ferrule.model.lessons import Lesson
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.settings import ModelSettings
from ferrule.protocol.specs import ToolSpec


class ForcedTool(msgspec.Struct, frozen=True):
    """The model must call this tool."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | ForcedTool


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The last message is JSON, by `schema` if there is one. `strict` None: strict if the schema follows its rules."""

    schema: dict[str, object] | None = None
    name: str = "output"
    description: str | None = None
    strict: bool | None = None


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One sampling request. `items` is the whole history; `previous_response_id` stands for its first `stored_items`
    items if the provider stores them."""

    model: str
    instructions: str
    items: tuple[ResponseItem, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    settings: ModelSettings = ModelSettings()
    output_format: OutputFormat | None = None
    session_id: str = ""
    previous_response_id: str | None = None
    stored_items: int = 0
    on_sent: Callable[[], None] | None = None
    """Called when the request has been sent: time for work that the answer will need."""
    interrupted_calls: frozenset[str] = frozenset()
    """Call ids of a response that broke off. A repeated call keeps such an id, so that the turn recognises it; any
    other id already in the history is made unique."""
    lessons: tuple[Lesson, ...] = ()
    """Lessons that `Learned` reported in this session, including before a resume."""
    compact_threshold: int | None = None
    """Tokens from which on the server itself is to summarise the conversation."""
    lineage: object | None = None
    """The same object as in the previous request: its items are a prefix of these, which need not be compared."""
    headers: dict[str, str] = {}
    """More headers of this request."""
    include: tuple[str, ...] = ()
    """What a server of the Responses API is to return of the tools that it runs itself."""


MAX_PAUSES = 16
"""Answers in a row that a server may want to be gone on with: each has run some ten of its own tools by then."""


class Created(msgspec.Struct, frozen=True):
    """The response started; `model` is who answers, if the server says so."""

    response_id: str
    model: str = ""


class ItemAdded(msgspec.Struct, frozen=True):
    """An item started; its content is still to come. For a call, `call_id`, `name` and `namespace` are known. `begun`:
    the JSON so far of an item whose content does not come in deltas."""

    item_id: str
    kind: str
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    begun: bytes = b""


class TextDelta(msgspec.Struct, frozen=True):
    """More text of a message. `part` counts its content parts from 0; `refusal`: the part is a refusal. `logprobs` are
    the JSON of the list of its tokens, each with its probability and the likeliest others, if they were asked for."""

    item_id: str
    delta: str
    part: int = 0
    refusal: bool = False
    logprobs: bytes = b""


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More of the reasoning: of its raw text, or of its `summary`. `part` counts the parts of either from 0."""

    item_id: str
    delta: str
    part: int = 0
    summary: bool = False


class ToolInputDelta(msgspec.Struct, frozen=True):
    """More of a call's arguments or input; for a freeform tool the plain text, even if JSON carries it."""

    item_id: str
    call_id: str
    delta: str


class Progress(msgspec.Struct, frozen=True):
    """What the server told of an item that it runs itself, such as a search: the type of its event, and the JSON."""

    item_id: str
    kind: str
    event: bytes


class ItemDone(msgspec.Struct, frozen=True):
    """An item is complete. A call may start now. `place` orders the items of a response by their first appearance."""

    item: ResponseItem
    place: int = 0


class Retrying(msgspec.Struct, frozen=True):
    """The request failed before its first item and is retried after a pause in milliseconds. `longest_ms`: the maximum
    duration of all retries, not counting the requests themselves. `usage`: what the failed answer took, if the server
    said so."""

    message: str
    delay_ms: int
    longest_ms: int = 0
    usage: TokenUsage | None = None


class Completed(msgspec.Struct, frozen=True):
    """The response ended. `end_turn` false: the server wants another request. `incomplete`: why it was cut short.
    `cut_call`: the call in which it was cut short, and which is not among the items."""

    response_id: str
    usage: TokenUsage | None = None
    end_turn: bool | None = None
    incomplete: str | None = None
    cut_call: str = ""


class LeftOut(msgspec.Struct, frozen=True):
    """The server refused a part of the request, which is retried without it. It stays out for the session."""

    message: str


class Learned(msgspec.Struct, frozen=True):
    """A request succeeded without what the server refused: later users of the session must know it."""

    lesson: Lesson


class PassedOver(msgspec.Struct, frozen=True):
    """An event of the stream could not be parsed; the stream goes on. `kind` says why."""

    kind: str
    message: str


ResponseEvent = (
    Created
    | LeftOut
    | Learned
    | PassedOver
    | ItemAdded
    | TextDelta
    | ReasoningDelta
    | ToolInputDelta
    | Progress
    | ItemDone
    | Retrying
    | Completed
)


class Model(Protocol):
    """A model behind one wire."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        """Send one request. Ends with `Completed`, or raises `ModelError`. Retries happen only before the first
        item."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class ModelError(FerruleError):
    """The server could not be reached, refused, or disconnected. One sentence for the user.

    `retryable`: the turn may try again. `status`: the HTTP status, if there was one. `retry_after_ms`: how long the
    server asks to wait. `partial`: the text before the break, as a message whose status is `incomplete`. `said`,
    `code` and `param` are the server's own words, whole. `usage`: what the failed answer took, if the server said so.
    """

    def __init__(
        self, message: str, *, retryable: bool = False, status: int | None = None, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.status = status
        self.retry_after_ms = retry_after_ms
        self.partial: ResponseItem | None = None
        self.usage: TokenUsage | None = None
        self.said = self.code = self.param = ""

    def quoting(self, said: str, code: str, param: str) -> Self:
        """Return the error with the server's own words."""
        self.said, self.code, self.param = said, code, param
        return self


class ContextOverflow(ModelError):
    """The history does not fit the model's context window."""


class ContentRefused(ModelError):
    """The server refuses one item of the request (an image too large, a part it does not know)."""


class ToolsUnusable(ModelError):
    """The tools of the request cannot be sent as they are."""


class ContentFiltered(ModelError):
    """The server's content filter stopped the answer."""


class CallUnreadable(ModelError):
    """The server could not parse its model's call; `generation` is the model's output, if the server includes it."""

    def __init__(self, message: str, *, status: int | None = None, generation: str = "") -> None:
        super().__init__(message, status=status)
        self.generation = generation
