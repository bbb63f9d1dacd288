"""Run the calls of a response that belong to tools of ours."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ferrule.history.images import REFUSED, without_images
from ferrule.history.pairs import answered_id
from ferrule.hosted.records import HeldCall
from ferrule.hosted.tool import Held, HostedCall, HostedTool, NotReady, Opened, Scope
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Message,
    OutputBody,
    ResponseItem,
    ToolSearchCall,
    ToolSearchOutput,
    make_item,
    read_item,
)
from ferrule.protocol.json_text import JsonObject
from ferrule.responses.held import UNKNOWN_OUTCOME, Waiting, output_of, refused_text
from ferrule.responses.ledger import Ledger
from ferrule.responses.tool_search import NAME as SEARCH
from ferrule.responses.tool_search import Search, shown_to_client
from ferrule.tools.tasks import run_blocking
from ferrule.web.marks import Cited, MarkReader, Source, cited

MOST_CALLS = 256
"""Calls of one response where the client names no limit: a model that makes more does not end by itself."""
GONE = "This call was not run: its tool is not there any more."
OVER = "This call was not run: the response has made as many tool calls as it may. Answer with what you have."


class Declared(msgspec.Struct, frozen=True):
    """A tool of ours that a request declares."""

    tool: HostedTool
    declared: JsonObject


class Hosted(Declared, frozen=True):
    """A function of such a tool. `function` is its own name."""

    function: str

    def is_meant(self, choice: JsonObject) -> bool:
        """Return whether a choice of a server, or of one of its tools, means this function."""
        label, name = choice.get("server_label"), choice.get("name")
        of_server = self.declared.get("server_label") == label
        return of_server and (name is None or self.tool.name_of(self.function) == name)


def containers_in(items: Sequence[JsonObject]) -> tuple[str, ...]:
    """Return the ids of containers that calls among a client's items name."""
    places = [item if item.get("type") == "code_interpreter_call" else item.get("environment") for item in items]
    found = [place.get("container_id") for place in places if isinstance(place, dict)]
    return tuple(str(container_id) for container_id in found if container_id)


def named_by(tools: Iterable[Hosted]) -> tuple[str, ...]:
    """Return the ids of containers that declared tools name."""
    places = [entry.declared.get("container") or entry.declared.get("environment") for entry in tools]
    found = [place.get("container_id") if isinstance(place, dict) else place for place in places]
    return tuple(dict.fromkeys(str(container_id) for container_id in found if container_id))


class HostedCalls:
    """The calls of one response. `tools` are by the names of their functions, `limit` is the number of calls that are
    run, `allowed` are the requests that the client has allowed now, `search` finds deferred tools."""

    def __init__(
        self,
        tools: Mapping[str, Hosted],
        scope: Scope,
        ledger: Ledger,
        limit: int | None = None,
        allowed: frozenset[str] = frozenset(),
        search: Search | None = None,
    ) -> None:
        self.tools = tools
        self.search = search
        self._readers: dict[tuple[str, int], MarkReader] = {}
        self._withdrawn: dict[HostedTool, str] = {}
        """Tools that turned out to be not set up, and what the model is told of them."""
        self._scope = scope
        self._ledger = ledger
        self._left = MOST_CALLS if limit is None else limit
        self._allowed = allowed
        self._opened: list[HostedTool] = []
        self._searching = asyncio.Lock()

    async def open(self, tools: Sequence[Declared]) -> list[Opened]:
        """Make tools ready, side by side."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._open(one)) for one in tools]
        return [task.result() for task in tasks]

    async def _open(self, one: Declared) -> Opened:
        opened = await one.tool.open(one.declared, self._scope, self._ledger)
        self._opened.append(opened.tool)
        return opened

    async def settle(self, waiting: Sequence[Waiting]) -> list[ResponseItem]:
        """Run the calls that the client has allowed. Returns the outputs of all, also of those that are not run."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._settled(one)) for one in waiting]
        return [task.result() for task in tasks]

    async def _settled(self, one: Waiting) -> ResponseItem:
        held, answer = one.held, one.answer
        if answer is None or not answer.approve:
            return output_of(held.call, refused_text(answer))
        if held.id not in self._allowed:
            return output_of(held.call, UNKNOWN_OUTCOME)
        name = next((name for name, entry in self.tools.items() if entry.function == held.function), None)
        if name is None:
            return output_of(held.call, GONE)
        said = FunctionCall(call_id=held.call, name=name, arguments=str(held.request["arguments"]))
        item = await self._output(said, held)
        assert isinstance(item, ResponseItem)
        return item

    @property
    def over(self) -> bool:
        """True once no more calls are run."""
        return self._left <= 0

    def names(self, item: ResponseItem) -> bool:
        """Return whether an item calls a tool of ours."""
        view = item.view
        if isinstance(view, ToolSearchCall):
            return self.search is not None
        return isinstance(view, FunctionCall) and self.has(view.namespace, view.name)

    def without_images(self, items: Sequence[ResponseItem]) -> tuple[ResponseItem, ...]:
        """Return the items with a note in the place of each image that a tool of ours has returned."""
        ours = {item.view.call_id for item in items if isinstance(item.view, FunctionCall) and self.names(item)}
        return tuple(without_images(item, REFUSED) if answered_id(item.view) in ours else item for item in items)

    def has(self, namespace: str | None, name: str) -> bool:
        """Return whether a function is one of ours. The search is a function only where it is no longer offered."""
        is_late = name == SEARCH and self.search is not None and self.over
        return namespace is None and (is_late or name in self.tools)

    async def run(self, calls: Sequence[ResponseItem]) -> list[ResponseItem | Held]:
        """Run calls side by side. Returns their outputs, in the order of the calls; a call that waits for the client
        has none."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._output(call.view))
                for call in calls
                if isinstance(call.view, FunctionCall | ToolSearchCall)
            ]
        return [task.result() for task in tasks]

    def offers(self, name: str) -> bool:
        """Return whether the model is still told of a function: calls of ours may be over, or the tool withdrawn."""
        if name == SEARCH:
            return self.search is None or not self.over
        return name not in self.tools or not (self.over or self.tools[name].tool in self._withdrawn)

    async def close(self) -> None:
        """Let go of what was opened, and of what the tools remembered."""
        for tool in self._opened:
            tool.release()
        if self.search is not None:
            self.search.close()
        await self._scope.shared.close()

    def shown(self, item_id: str, part: int, delta: str) -> str:
        """Return what the client reads of a piece of the model's text: it without citation marks."""
        if self._sources() is None:
            return delta
        return self._readers.setdefault((item_id, part), MarkReader()).feed(delta)

    async def annotated(self, item: ResponseItem) -> ResponseItem:
        """Return a message as the client reads it: without citation marks, with the annotations that our tools know;
        anything else as it is."""
        if not self.tools or not isinstance(item.view, Message):
            return item
        fields: JsonObject = msgspec.json.decode(item.raw)
        sources = self._sources()
        for part in fields.get("content") or ():
            if isinstance(part, dict) and part.get("text"):
                text, marked = Cited(str(part["text"])) if sources is None else cited(str(part["text"]), sources)
                found = [*(one.annotation for one in marked), *await self._citations(text)]
                part |= {"text": text, "annotations": [*(part.get("annotations") or ()), *found]}
        return read_item(msgspec.json.encode(fields), item.origin)

    def _sources(self) -> Mapping[int, Source] | None:
        """Return what marks may cite; None: there are no marks."""
        known = (hosted.tool.sources(self._scope) for hosted in self.tools.values())
        return next((sources for sources in known if sources is not None), None)

    async def _citations(self, text: str) -> Sequence[JsonObject]:
        used = (*named_by(self.tools.values()), *containers_in(self._ledger.output))
        for hosted in self.tools.values():
            if citations := await hosted.tool.citations(self._scope, used, text):
                return citations
        return ()

    async def _output(self, call: FunctionCall | ToolSearchCall, held: HeldCall | None = None) -> ResponseItem | Held:
        if isinstance(call, ToolSearchCall):
            return make_item(await self._found(call))
        output = await self._run(call, held)
        if isinstance(output, Held):
            return output
        return make_item(FunctionCallOutput(call_id=call.call_id, output=output))

    async def _found(self, call: ToolSearchCall) -> ToolSearchOutput:
        """Look for tools, and tell the client of the call and of what it has found."""
        assert self.search is not None
        arguments = msgspec.json.decode(call.arguments or b"{}")
        over = self.over
        self._left -= 1
        async with self._searching:
            found = [] if over else await run_blocking(self.search.search, arguments)
        for kind, fields in (
            ("tool_search_call", {"arguments": arguments}),
            ("tool_search_output", {"tools": shown_to_client(found)}),
        ):
            whole = {**fields, "execution": "server", "call_id": None}
            self._ledger.end_item(self._ledger.add_item(kind, whole), whole)
        return self.search.answer(call, found)

    async def _run(self, call: FunctionCall, held: HeldCall | None) -> OutputBody | Held:
        if self.over:
            return OVER
        self._left -= 1
        hosted = self.tools[call.name]
        if (told := self._withdrawn.get(hosted.tool)) is not None:
            return told
        given = HostedCall(
            call_id=call.call_id,
            function=hosted.function,
            arguments=call.arguments,
            tool=hosted.declared,
            scope=self._scope,
            approval=None if held is None else held.id,
        )
        try:
            return await hosted.tool.run(given, self._ledger)
        except NotReady as error:
            self._withdrawn[hosted.tool] = str(error)
            return str(error)
        except RespondToModel as error:
            return str(error)
