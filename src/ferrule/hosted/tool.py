"""A tool that the server runs, as the Responses API sees it.

The model calls a function; what the call did is told to the client as items with events of their own, and to the model
as the function's output.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from ferrule.protocol.errors import FerruleError
from ferrule.protocol.items import OutputBody, ResponseItem
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.tools.conversation import Shared
from ferrule.web.marks import Source


class ToolRefused(FerruleError):
    """A request declares a tool that can never run: one sentence for the client. `param` is the field below the
    tool, `code` a word for programs."""

    def __init__(self, message: str, param: str, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.status = status
        self.code = code


class NotReady(FerruleError):
    """A call was told as failed, since the tool is not set up: one sentence for the model, which names the setting."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose calls these are: those of one response. `lane` names the conversation, `items` are what came before the
    response, as the model knows it. `include` is what the client wants to see beside the usual; `containers` are those
    that the client's own items name, the newest last. `searches`: the model looks for tools that were deferred.
    `shared` keeps what tools remember until the response ends."""

    owner: str
    lane: str
    include: frozenset[str] = frozenset()
    containers: tuple[str, ...] = ()
    items: tuple[ResponseItem, ...] = ()
    searches: bool = False
    shared: Shared = msgspec.field(default_factory=Shared)


class HostedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the model. `function` is one of the tool's functions, by its own name; `tool` is the tool as the client
    declared it, `arguments` are the model's words. `approval` is the request by which the client has allowed it."""

    call_id: str
    function: str
    arguments: str
    tool: JsonObject
    scope: Scope
    approval: str | None = None


class Held(msgspec.Struct, frozen=True):
    """A call that waits until the client allows it. `record` stands for it in the conversation."""

    record: ResponseItem


class Begun(Protocol):
    """An item that the client has been told of and that is not complete."""

    @property
    def id(self) -> str: ...
    @property
    def index(self) -> int: ...


class Telling(Protocol):
    """Where a call tells its items."""

    def add_item(self, kind: str, fields: Mapping[str, JsonValue], item_id: str | None = None) -> Begun:
        """Tell that an item of this type begins, under this id if it is free."""
        ...

    def tell_of(self, item: Any, kind: str, **fields: Any) -> None:
        """Tell an event of an item, with its id and its index."""
        ...

    def tell(self, kind: str, **fields: Any) -> None:
        """Tell an event."""
        ...

    def end_item(self, item: Any, fields: Mapping[str, JsonValue]) -> JsonObject:
        """Tell that an item is complete; `fields` are its final ones."""
        ...


class HostedTool(ABC):
    """One such tool. `kind` is its type in `tools`; a tool may be known to the model as several functions."""

    kind: ClassVar[str]
    opens: ClassVar[bool] = False
    """True if its functions are known only once a response runs: then `open` is called first."""

    @property
    def goes_first(self) -> bool:
        """True if it is run here even where the model's server knows a tool of this type itself."""
        return False

    def is_meant(self, tool: JsonObject) -> bool:
        """Return whether this is the declared tool."""
        return tool.get("type") == self.kind

    def not_run(self, tool: JsonObject) -> Sequence[str]:
        """Return the fields of the declared tool that are only kept; its type, if nothing of it is run."""
        return ()

    async def check(self, tool: JsonObject, owner: str) -> str:
        """Look up what the declared tool names. Returns what the model is told beside the functions' descriptions.
        Raises `ToolRefused`."""
        return ""

    async def open(self, tool: JsonObject, scope: Scope, telling: Telling) -> "Opened":
        """Make the declared tool ready for a response."""
        return Opened(self)

    def release(self) -> None:
        """Let go of what was opened: the response ends."""
        return

    def name_of(self, function: str) -> str:
        """Return the name by which the client knows what a function stands for."""
        return function

    @abstractmethod
    def functions(self, tool: JsonObject) -> Sequence[ResponsesApiTool]:
        """Return the functions that the model is told of. Where a tool of the client has the name of one, that one gets
        another."""

    @abstractmethod
    async def run(self, call: HostedCall, telling: Telling) -> OutputBody | Held:
        """Run a call, tell its items, and return what the model reads. Raises `RespondToModel` for a call that is
        wrong, before anything is told, and `NotReady`, after which the tool is not offered any more."""

    def sources(self, scope: Scope) -> Mapping[int, Source] | None:
        """Return the pages that marks of the model's text may cite, by their numbers; None: it has no marks."""
        return None

    async def citations(self, scope: Scope, used: Sequence[str], text: str) -> Sequence[JsonObject]:
        """Return further annotations of a text of the model, each with its indices in the text without marks. `used`
        are the containers of the response's calls."""
        return ()

    def replayed(self, item: JsonObject, called: Callable[[str], str]) -> tuple[ResponseItem, ...]:
        """Return an item of ours that the client sends back as the model saw it; empty if it is none of this tool.
        `called` returns the name by which the model knows a function."""
        return ()


class Opened(msgspec.Struct, frozen=True):
    """A tool that is ready for a response. `records` are kept in the conversation; the model does not see them."""

    tool: HostedTool
    records: tuple[ResponseItem, ...] = ()
