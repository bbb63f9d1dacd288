"""Run one response against the upstream model, and tell the client of it."""

from collections.abc import Iterable, Iterator
from contextlib import aclosing
from typing import Any

import msgspec

from ferrule.history.compaction import cut_to
from ferrule.history.pairs import aborted_output, called_id
from ferrule.history.tokens import estimate_all
from ferrule.hosted.records import ToolList, is_record, record_in
from ferrule.hosted.tool import Held
from ferrule.model.stream import (
    MAX_PAUSES,
    Completed,
    ContentFiltered,
    ContentRefused,
    ContextOverflow,
    ItemAdded,
    ItemDone,
    Model,
    ModelError,
    ModelRequest,
    Progress,
    ReasoningDelta,
    ResponseEvent,
    TextDelta,
    ToolInputDelta,
)
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    MessageBlock,
    ResponseItem,
    ShellCall,
    ShellCallOutput,
    ToolSearchCall,
    UnknownItem,
    kind_of,
    make_item,
)
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.specs import ToolSpec, spec_name
from ferrule.responses.compaction import after_summary, summarised
from ferrule.responses.errors import ApiError
from ferrule.responses.failures import api_error
from ferrule.responses.held import shown, waiting
from ferrule.responses.hosted_calls import HostedCalls
from ferrule.responses.ledger import STEERED, Ending, Ledger, OpenItem, new_id
from ferrule.responses.seals import sealed, sealed_thinking
from ferrule.responses.tool_search import found_in, ran_here
from ferrule.responses.tools import ToolPlan, choose_tool, restricted, with_opened
from ferrule.tools.registry import ToolKey

MAX_CUTS = 4
"""How often a request that is too long is shortened, each time to `CUT` of its length."""
CUT = 0.6
MAX_REPEATS = 8
"""How often a model is asked again for a call whose input is wrong: one that misses it nine times never gets there."""

PAUSED = "The upstream paused its answer {} times without an end."
NOT_RUN = "this call was not run: commands run by the function {!r}"
"""About a `shell_call` where our shell is that function."""
MISSHAPEN = "the model's server sent a {} that lacks what each has"

_PRIVATE = frozenset({"id", "type", "status", "chat_fields", "chat_field", "message_fields"})
"""Fields of an upstream's item that the client does not get, or gets as the ledger says."""


class _Rejected(msgspec.Struct, frozen=True):
    """A call that the client never sees, and what was wrong with it."""

    call: ResponseItem
    message: str


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a client wants a response. `encrypted`: with reasoning in its encrypted form. `logprobs`: with the
    probabilities of its tokens. `sources`: with all that a search found. `compact`: the conversation is
    summarised first. `answer`: the model answers; else the conversation is only kept, for what continues it.
    `truncate`: what is too old for the model is left out. `choice` is the tool that it is to use."""

    encrypted: bool = False
    logprobs: bool = False
    sources: bool = False
    compact: bool = False
    answer: bool = True
    truncate: bool = False
    choice: str | JsonObject | None = None


class ResponseRun:
    """One response."""

    def __init__(
        self,
        model: Model,
        request: ModelRequest,
        plan: ToolPlan,
        ledger: Ledger,
        options: RunOptions,
        hosted: HostedCalls,
    ) -> None:
        self._model = model
        self._request = request
        self._plan = plan
        self._ledger = ledger
        self._options = options
        self._hosted = hosted
        self._usage: TokenUsage | None = None
        self._incomplete: str | None = None
        self._is_blind = False
        """Whether the upstream has refused images of our tools."""
        self._pauses = 0
        """Answers in a row that the upstream wants to be asked to go on with."""
        self._open: dict[str, OpenItem] = {}
        self._unanswered: dict[str, ResponseItem] = {}
        """Calls for the tool that is our shell, by their ids, until the output comes that says they ran elsewhere."""
        self.compacted = False
        self.said: list[ResponseItem] = []
        """What the model said, as the upstream knows it, without calls that were rejected; and what the conversation
        keeps beside that."""
        self._tools: tuple[ToolSpec, ...] = request.tools
        """The tools once the one that was asked for has been called."""
        self._found: list[ToolSpec] = []
        """Those that the model has found since."""

    async def run(self) -> Ending:
        """Run the response. Returns how it ends."""
        try:
            if self._options.answer:
                await self._prepare()
            if self._options.compact:
                await self._compact()
            return await self._answer() if self._options.answer else Ending("completed", self._usage or TokenUsage())
        except ApiError as error:
            return self._refused(error)
        except ContentFiltered as error:
            self._add_usage(error.usage)
            return Ending("incomplete", self._usage, "content_filter")
        except ModelError as error:
            return self._failed(error)

    @property
    def items(self) -> tuple[ResponseItem, ...]:
        """The conversation before what the model said; after a summary, what it stands in now."""
        return self._request.items

    async def _prepare(self) -> None:
        """Make our tools ready that were not, and run the calls that the client has allowed."""
        if self._plan.unopened:
            opened = await self._hosted.open(self._plan.unopened)
            self.said += (record for one in opened for record in one.records)
            self._plan = restricted(with_opened(self._plan, [one.tool for one in opened]), self._options.choice)
            self._hosted.tools, self._hosted.search = self._plan.hosted, self._plan.search
            choice, tools = choose_tool(self._options.choice, self._plan)
            self._request = msgspec.structs.replace(self._request, tools=tools, tool_choice=choice)
            self._tools = self._plan.specs if choice == "required" and self._options.choice != "required" else tools
        if found := waiting(self._request.items):
            self.said += await self._hosted.settle(found)

    async def _compact(self) -> None:
        """Replace the conversation by a summary, which the client gets as an item."""
        item = self._ledger.add_item("compaction", {"encrypted_content": ""})
        self._ledger.tell("response.compaction.compacting", item_id=item.id, output_index=item.index)
        everything = (*self._request.items, *self.said)
        seen = shown(everything)
        summary = await summarised(self._model, msgspec.structs.replace(self._request, items=seen))
        self._add_usage(summary.usage)
        self._ledger.end_item(item, {"encrypted_content": sealed(summary.text)})
        records = tuple(item for item in everything if record_in(item, ToolList))
        self._request = msgspec.structs.replace(self._request, items=(*records, *after_summary(seen, summary.text)))
        self.said.clear()
        self.compacted = True

    async def _answer(self) -> Ending:
        """Ask the model until its calls are right and none of them is ours to run."""
        request = msgspec.structs.replace(self._request, items=(*self._request.items, *self.said))
        corrections = 0
        while True:
            before = len(self.said)
            rejected = await self._fitting(request)
            own = await self._run_own(before)
            if self._incomplete is not None:
                return Ending("incomplete", self._usage, self._incomplete)
            said = self.said[before:]
            if any(map(is_record, own)):  # which ends it even beside a wrong call: the client is asked first
                return Ending("completed", self._usage)
            paused = bool(self._pauses) and not rejected and not own and not any(map(_is_call, said))
            if paused and self._pauses > MAX_PAUSES:
                return Ending("failed", self._usage, "server_error", PAUSED.format(self._pauses))
            if paused:
                request = _again(request, said, said, [])
                continue
            if not rejected and (not own or any(_is_call(item) and item not in own for item in said)):
                return Ending("completed", self._usage)
            corrections += bool(rejected)
            if corrections > MAX_REPEATS:
                text = f"The model's call stayed wrong after {MAX_REPEATS} corrections: {rejected[0].message}"
                return Ending("failed", self._usage, "server_error", text)
            request = self._next(_again(request, said, own, rejected), own)

    async def _run_own(self, before: int) -> list[ResponseItem]:
        """Run the calls of ours that the model has made since then. Returns them with their outputs. A call that got no
        output is taken back: nobody could go on from it."""
        calls = [item for item in self.said[before:] if self._hosted.names(item)]
        ended: list[ResponseItem] = []
        try:
            if calls and not self._hosted.over:
                outputs = await self._hosted.run(calls)
                held = [one.record for one in outputs if isinstance(one, Held)]
                ended = [*(one for one in outputs if not isinstance(one, Held)), *held]
        finally:
            if not ended:
                self.said[before:] = [item for item in self.said[before:] if item not in calls]
        self.said += ended
        self._load(found_in(ended))
        return [*calls, *ended] if ended else []

    def _load(self, keys: Iterable[ToolKey]) -> None:
        """Tell the model of the tools that it has found, behind those that it knows."""
        before = set(map(id, self._plan.specs))
        self._plan = self._plan.with_found(keys)
        self._found += (spec for spec in self._plan.specs if id(spec) not in before)

    def _next(self, request: ModelRequest, own: list[ResponseItem]) -> ModelRequest:
        """Return the request after calls of ours: a tool that was asked for has been called, and where no more calls
        are run the model is not told of our tools."""
        if own and request.tool_choice != "none":
            told = set(map(id, self._tools))
            found = (spec for spec in self._found if id(spec) not in told)
            request = msgspec.structs.replace(request, tool_choice="auto", tools=(*self._tools, *found))
        tools = tuple(spec for spec in request.tools if self._hosted.offers(spec_name(spec)))
        return request if len(tools) == len(request.tools) else msgspec.structs.replace(request, tools=tools)

    @property
    def usage(self) -> TokenUsage | None:
        """The tokens so far."""
        return self._usage

    async def _fitting(self, request: ModelRequest) -> list[_Rejected]:
        """Send a request; leave out its oldest items where it is too long, if the client wants that."""
        items = shown(request.items)
        for _ in range(MAX_CUTS if self._options.truncate else 0):
            try:
                return await self._seen(msgspec.structs.replace(request, items=items))
            except ContextOverflow:
                items = tuple(cut_to(items, int(estimate_all(items) * CUT)))
        return await self._seen(msgspec.structs.replace(request, items=items))

    async def _seen(self, request: ModelRequest) -> list[_Rejected]:
        """Send a request; where the upstream refuses it with images of our tools, without them: the client has them,
        and the conversation keeps them."""
        if not self._is_blind:
            try:
                return await self._sample(request)
            except (ContentRefused, ContextOverflow):
                self._is_blind = not self._open and self._hosted.without_images(request.items) != request.items
                if not self._is_blind:
                    raise
        items = self._hosted.without_images(request.items)
        return await self._sample(msgspec.structs.replace(request, items=items, lineage=None))

    async def _sample(self, request: ModelRequest) -> list[_Rejected]:
        """Send one request, and tell of its answer. Returns the calls that are wrong."""
        rejected: list[_Rejected] = []
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                if isinstance(event, ItemDone):
                    rejected += self._end(event.item, await self._hosted.annotated(event.item))
                elif isinstance(event, ItemAdded) and self._may_stop:
                    self._incomplete = STEERED
                    break
                else:
                    self._take(event)
        unanswered, self._unanswered = self._unanswered, {}
        text = NOT_RUN.format(self._shell)
        return [*rejected, *(_Rejected(call, text) for call in unanswered.values())]

    @property
    def _may_stop(self) -> bool:
        """Whether the client has added something, and all that was said stands by itself."""
        said = [kind_of(item.view) for item in shown(self.said)] if self._ledger.is_steered else []
        return "message" in said and set(said) <= {"message", "reasoning"} and not self._open

    def _take(self, event: ResponseEvent) -> None:
        match event:
            case TextDelta(item_id=item_id) if item := self._open.get(item_id):
                self._say(item, event)
            case ReasoningDelta(item_id=item_id) if item := self._open.get(item_id):
                self._ledger.say(item, "summary_text" if event.summary else "reasoning_text", event.part, event.delta)
            case ToolInputDelta(item_id=item_id) if item := self._open.get(item_id):
                self._ledger.say_input(item, event.delta)
            case Progress(item_id=item_id) if item := self._open.get(item_id):
                told = msgspec.json.decode(event.event)
                place = {"item_id": item.id, "output_index": item.index}
                self._ledger.tell(**{**told, **place, "kind": event.kind})
            case ItemAdded():
                self._begin(event)
            case Completed():
                self._add_usage(event.usage)
                self._incomplete = event.incomplete
                self._pauses = self._pauses + 1 if event.end_turn is False else 0

    def _say(self, item: OpenItem, event: TextDelta) -> None:
        """Tell a piece of a message, as the client reads it."""
        if event.refusal:
            self._ledger.say(item, "refusal", event.part, event.delta)
            return
        logprobs = event.logprobs if self._options.logprobs else b""
        text = self._hosted.shown(event.item_id, event.part, event.delta)
        if text or logprobs:
            self._ledger.say(item, "output_text", event.part, text, logprobs)

    def _begin(self, event: ItemAdded) -> None:
        """Tell of an item that begins; one that may turn out wrong, or changes its kind, waits until it is whole."""
        ledger, kind = self._ledger, event.kind
        if kind == "message":
            self._keep(event.item_id, ledger.add_item(kind, {"role": "assistant", "content": []}))
        elif kind == "reasoning":
            self._keep(event.item_id, ledger.add_item(kind, {"summary": []}, event.item_id))
        elif kind in ("function_call", "custom_tool_call") and not self._is_checked(event.namespace, event.name or ""):
            field = "arguments" if kind == "function_call" else "input"
            space, name = self._plan.callee(event.namespace, event.name or "")
            named = {"name": name, "call_id": event.call_id, **_spaced(space), field: ""}
            self._keep(event.item_id, ledger.add_item(kind, named))
        elif event.begun and not self._is_replaced(kind):
            self._keep(event.item_id, ledger.add_item(kind, self._fields(event.begun), event.item_id))

    def _fields(self, raw: bytes) -> JsonObject:
        """Return the fields of an item that the client gets."""
        fields: JsonObject = msgspec.json.decode(raw)
        fields = {name: value for name, value in fields.items() if name not in _PRIVATE}
        action = fields.get("action")
        if isinstance(action, dict) and "sources" in action and not self._options.sources:
            fields["action"] = {name: value for name, value in action.items() if name != "sources"}
        return fields

    def _keep(self, item_id: str, item: OpenItem) -> None:
        """Keep an item that has begun, by the upstream's id. An older one of the same id stays, under one of its own:
        it is found by its type and call_id."""
        older = self._open.pop(item_id, None)
        if older is not None:
            self._open[new_id(older.kind)] = older
        self._open[item_id] = item

    def _is_replaced(self, kind: str) -> bool:
        """Return whether items of this type are told of when they are run."""
        if kind == "tool_search_call":
            return self._hosted.search is not None
        return self._shell is not None and kind in ("shell_call", "shell_call_output")

    @property
    def _shell(self) -> str | None:
        """The function that is our shell."""
        return next((name for name, entry in self._plan.hosted.items() if entry.tool.kind == "shell"), None)

    def _is_checked(self, namespace: str | None, name: str) -> bool:
        """Return whether a call must be whole before anybody sees it."""
        is_ours = self._hosted.has(namespace, name) or (namespace is None and name in self._plan.natives)
        return is_ours or (namespace, name) in self._plan.grammars

    def _end(self, item: ResponseItem, shown: ResponseItem) -> Iterator[_Rejected]:
        """Tell of a whole item, of which the client reads `shown`, unless it is a call of ours, which tells of itself.
        Yields it if it is a wrong call."""
        if self._hosted.names(item) or isinstance(item.view, MessageBlock):
            self.said.append(ran_here(item) if isinstance(item.view, ToolSearchCall) else item)
            return
        if isinstance(item.view, ShellCall) and self._shell and item.view.call_id not in self._unanswered:
            self._unanswered[item.view.call_id] = item
            return
        if isinstance(item.view, ShellCallOutput) and (call := self._unanswered.pop(item.view.call_id, None)):
            self._tell_whole(call, *self._public(call))
        try:
            kind, fields = self._public(shown)
        except RespondToModel as error:
            yield _Rejected(item, str(error))
            return
        self._tell_whole(item, kind, fields)

    def _tell_whole(self, item: ResponseItem, kind: str, fields: JsonObject) -> None:
        """Tell of a whole item, and keep it."""
        self.said.append(item)
        said_id = getattr(item.view, "id", None) or ""
        begun = self._begun(said_id, kind, fields.get("call_id"))
        if begun is None:
            begun = self._ledger.add_item(kind, _begun(kind, fields), said_id if kind == "reasoning" else None)
        if kind == "shell_call":
            self._tell_commands(begun, fields["action"]["commands"])
        self._ledger.end_item(begun, fields)

    def _tell_commands(self, item: OpenItem, commands: list[str]) -> None:
        """Tell the commands of a shell call, which have events of their own."""
        for number, command in enumerate(commands):
            place = {"output_index": item.index, "command_index": number}
            self._ledger.tell("response.shell_call_command.added", **place, command="")
            self._ledger.tell("response.shell_call_command.delta", **place, delta=command)
            self._ledger.tell("response.shell_call_command.done", **place, command=command)

    def _begun(self, said_id: str, kind: str, call_id: JsonValue) -> OpenItem | None:
        """Return the item that began as this one: it keeps its type and its call_id, but its id may have changed."""
        alike = [key for key, one in self._open.items() if one.kind == kind and one.begun.get("call_id") == call_id]
        return self._open.pop(said_id if said_id in alike else alike[0]) if alike else None

    def _public(self, item: ResponseItem) -> tuple[str, JsonObject]:
        """Return an item as the client sees it: its type and fields. Raises `RespondToModel` for a wrong call, and
        `ModelError` for one that no client could read."""
        view = item.view
        if isinstance(view, UnknownItem) and view.original_type == "shell_call":
            raise ModelError(MISSHAPEN.format(view.original_type))
        if isinstance(view, FunctionCall) and view.namespace is None and (tool := self._plan.natives.get(view.name)):
            native = tool.item(view)
            return str(native.pop("type")), native
        if isinstance(view, CustomToolCall) and (grammar := self._plan.grammars.get((view.namespace, view.name))):
            grammar.check(view.input)
        fields: JsonObject = msgspec.json.decode(item.raw)
        kind = str(fields.get("type"))
        status = {"status": "incomplete"} if fields.get("status") == "incomplete" else {}
        fields = self._fields(item.raw) | status
        if isinstance(view, FunctionCall | CustomToolCall):
            space, name = self._plan.callee(view.namespace, view.name)
            fields |= {"name": name, **_spaced(space)}
        if kind == "reasoning":
            fields |= sealed_thinking(item)
            if not self._options.encrypted:
                fields.pop("encrypted_content", None)
        return kind, fields

    def _add_usage(self, usage: TokenUsage | None) -> None:
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage + usage

    def _failed(self, error: ModelError) -> Ending:
        self._add_usage(error.usage)
        return self._refused(api_error(error))

    def _refused(self, failure: ApiError) -> Ending:
        self._ledger.error = failure
        return Ending("failed", self._usage, failure.code or "server_error", str(failure))


def _spaced(namespace: str | None) -> JsonObject:
    return {} if namespace is None else {"namespace": namespace}


def _begun(kind: str, fields: JsonObject) -> JsonObject:
    """Return the fields of an item that is told of as begun and whole in one go."""
    empty: dict[str, Any] = {"content": [], "summary": [], "arguments": "", "input": ""}
    if kind == "message":
        fields = {"role": "assistant", **fields}
    return {name: empty.get(name, value) for name, value in fields.items() if name != "status"}


def _is_call(item: ResponseItem) -> bool:
    return called_id(item.view) is not None


def _again(
    request: ModelRequest, said: list[ResponseItem], own: list[ResponseItem], rejected: list[_Rejected]
) -> ModelRequest:
    """Return the request that shows the model its wrong calls, and ours with their outputs. Right ones of the client
    are not repeated: they stand already."""
    words = [item for item in said if item in own or kind_of(item.view) in ("message", "reasoning", "message_block")]
    shown = [entry for wrong in rejected for entry in (wrong.call, _correction(wrong))]
    return msgspec.structs.replace(request, items=(*request.items, *words, *shown), lineage=None)


def _correction(wrong: _Rejected) -> ResponseItem:
    text = f"{wrong.message}. Nothing was done: make the call again, correctly."
    if isinstance(wrong.call.view, CustomToolCall):
        return make_item(CustomToolCallOutput(call_id=wrong.call.view.call_id, output=text))
    if isinstance(wrong.call.view, ShellCall):
        return aborted_output(wrong.call.view, text)
    assert isinstance(wrong.call.view, FunctionCall)
    return make_item(FunctionCallOutput(call_id=wrong.call.view.call_id, output=text, failed=True))
