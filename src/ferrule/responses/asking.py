"""From a client's request to what the upstream is asked."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ferrule.history.tokens import estimate_all
from ferrule.hosted.mcp.declared import RemoteServer
from ferrule.hosted.network import without_values
from ferrule.hosted.tool import HostedTool, ToolRefused
from ferrule.model.responses.request import LOGPROBS
from ferrule.model.stream import ModelRequest, OutputFormat
from ferrule.protocol.items import AdditionalTools, ResponseItem, ToolSearchOutput, kind_of
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.settings import ModelSettings
from ferrule.responses.answering import Answering
from ferrule.responses.attachments import Attachments
from ferrule.responses.errors import ApiError, not_found
from ferrule.responses.failures import tool_refusal
from ferrule.responses.held import once
from ferrule.responses.history import Histories, History, ResponseCache
from ferrule.responses.request import (
    Compacting,
    ConfigurationUpdate,
    JsonObjectFormat,
    JsonSchemaFormat,
    Known,
    ResponseRequest,
)
from ferrule.responses.run import RunOptions
from ferrule.responses.seals import Opener, maker_of
from ferrule.responses.tool_search import NAME as SEARCH
from ferrule.responses.tool_search import as_told, found_in
from ferrule.responses.tool_shapes import read_tool, spelled
from ferrule.responses.tools import ToolPlan, choose_tool, plan_tools, restricted
from ferrule.responses.transcript import check_pairs, read_input, to_upstream
from ferrule.responses.upstream import Upstream
from ferrule.store import Store
from ferrule.web.download import Downloads

ENCRYPTED = "reasoning.encrypted_content"
SOURCES = "web_search_call.action.sources"
OF_TOOLS = frozenset({SOURCES, "web_search_call.results", "file_search_call.results", "code_interpreter_call.outputs"})
"""What `include` may name of tools that the model server runs."""
COMPACT_AT = 200_000
"""Tokens from which on a conversation is summarised where the client names no threshold: the API's own default."""

_UPDATE, _TRIGGER = "configuration_update", "compaction_trigger"


class Asked(msgspec.Struct, frozen=True):
    """A request that has been read: what stands before it, the client's items, the same as the upstream knows them, its
    tools, what the upstream is asked, and how the client wants it."""

    request: ResponseRequest
    owner: str
    history: History
    input: tuple[JsonObject, ...]
    new: tuple[ResponseItem, ...]
    plan: ToolPlan
    upstream: ModelRequest
    options: RunOptions


class Asker:
    """Reads requests for one upstream."""

    def __init__(
        self,
        upstream: Upstream,
        histories: Histories,
        store: Store,
        hosted: Sequence[HostedTool] = (),
        downloads: Downloads | None = None,
    ) -> None:
        self._upstream = upstream
        self._hosted = hosted
        self._store = store
        self._histories = histories
        self._downloads = downloads
        self._approvals = Answering(store)

    async def allow(self, asked: Asked) -> frozenset[str]:
        """Take the client's answers to calls that wait: each counts once. Returns the requests that it has allowed now.
        Raises `ApiError`."""
        if not asked.options.answer:
            return frozenset()
        return await self._approvals.take(asked.history.items, asked.new, asked.plan, asked.owner)

    async def read(self, request: ResponseRequest, owner: str, cache: ResponseCache | None = None) -> Asked:
        """Read a request. Raises `ApiError`."""
        known, knows = request.known, self._upstream.knows
        if known.prompt is not None:
            raise not_found("prompt", known.prompt.id, "prompt.id")
        model = known.model or self._upstream.default_model
        if not model:
            raise ApiError("model: name the model that is to answer", code="missing_required_parameter", param="model")
        declared = tuple(map(spelled, known.tools or ()))
        plan = plan_tools(declared, knows, self._hosted)
        history = await self._before(request, owner, cache, plan, model)
        given = await self._histories.referenced(read_input(known.input), owner)
        files = Attachments(self._store, owner, self._downloads)
        whole = [await files.within(item, f"input[{index}]") for index, item in enumerate(given)]
        _check_brought(given)
        placed = once(list(self._to_upstream(whole, plan, model)))
        new = tuple(item for _, item in placed)
        await self._approvals.check(history.items, placed, owner)
        check_pairs(history.items, placed, given)
        if not history.items and not new:
            raise ApiError("input: there is nothing to answer", code="missing_required_parameter", param="input")
        everything = (*history.items, *new)
        found = [] if knows(SEARCH) else _brought(everything, declared)
        brought = plan_tools([*declared, *found], knows, self._hosted) if found else plan
        brought = await _checked(brought, declared, owner)
        brought = restricted(brought.with_found(found_in(everything)), known.tool_choice)
        choice, specs = choose_tool(known.tool_choice, brought)
        items = tuple(item for item in everything if kind_of(item.view) not in (_UPDATE, _TRIGGER))
        updated = _updated(known, everything)
        asked = ModelRequest(
            model=model,
            instructions=known.instructions or "",
            items=items,
            tools=specs,
            tool_choice=choice,
            settings=_settings(updated, one_by_one=bool(brought.hosted or brought.unopened or brought.search)),
            output_format=_output_format(updated),
            session_id=known.prompt_cache_key or history.lane,
            include=tuple(name for name in known.include or () if name in OF_TOOLS),
        )
        plan = msgspec.structs.replace(brought, echoed=plan.echoed)
        return Asked(request, owner, history, given, new, plan, asked, _options(known, items, given))

    async def _before(
        self, request: ResponseRequest, owner: str, cache: ResponseCache | None, plan: ToolPlan, model: str
    ) -> History:
        if request.conversation is None:
            return await self._histories.before(request.known.previous_response_id, owner, cache)
        return await self._histories.of_conversation(
            request.conversation, owner, lambda items: [item for _, item in self._to_upstream(items, plan, model)]
        )

    def _to_upstream(
        self, items: Sequence[JsonObject], plan: ToolPlan, model: str
    ) -> Iterator[tuple[int, ResponseItem]]:
        """Yield a client's items as the upstream model knows them, each with the number of the item that it is from."""
        seals, maker = Opener(), maker_of(self._upstream.maker(model))
        if plan.search is not None or not self._upstream.knows(SEARCH):
            labels = {str(label) for one in plan.ours if (label := one.declared.get("server_label"))}
            items = as_told(items, labels, plan.spaces)
        for index, item in enumerate(items):
            yield from ((index, form) for form in self._forms(item, plan, seals, maker))

    def _forms(self, item: JsonObject, plan: ToolPlan, seals: Opener, maker: str) -> tuple[ResponseItem, ...]:
        """Return a client's item as the upstream model knows it: a call of ours is a call and its output."""
        knows = self._upstream.knows
        for tool in self._hosted:
            if knows(tool.kind) and not tool.goes_first:
                continue  # the model's server runs it, and knows its items
            if replayed := tool.replayed(item, plan.called):
                return replayed
        return (to_upstream(item, plan.names, lambda kind: knows(kind) and not plan.is_ours(kind), seals, maker),)


async def _checked(plan: ToolPlan, declared: Sequence[JsonObject], owner: str) -> ToolPlan:
    """Let tools that run here look up what they name. Returns the plan with what they tell the model of it. Raises
    `ApiError`."""
    entries = {id(entry.declared): entry for entry in plan.ours}
    notes: dict[int, str] = {}
    for key, entry in entries.items():
        try:
            notes[key] = await entry.tool.check(entry.declared, owner)
        except ToolRefused as error:
            place = next((at for at, tool in enumerate(declared) if tool is entry.declared), None)
            raise tool_refusal(error, "input" if place is None else f"tools[{place}].{error.param}") from error
    return plan.with_notes({name: notes[id(entry.declared)] for name, entry in plan.hosted.items()})


def _options(known: Known, items: Sequence[ResponseItem], given: Sequence[JsonObject]) -> RunOptions:
    triggers = [at for at, item in enumerate(given) if item.get("type") == _TRIGGER]
    if triggers and triggers != [len(given) - 1]:
        raise ApiError(f"input[{triggers[0]}]: a compaction_trigger is the last item", param=f"input[{triggers[0]}]")
    return RunOptions(
        encrypted=ENCRYPTED in (known.include or ()),
        logprobs=_wants_logprobs(known),
        sources=SOURCES in (known.include or ()),
        compact=bool(triggers) or _is_due(known.context_management or (), items),
        answer=not triggers and known.generate is not False,
        truncate=known.truncation == "auto",
        choice=known.tool_choice,
    )


def _is_due(wanted: Sequence[Compacting], items: Sequence[ResponseItem]) -> bool:
    """Return whether the conversation has as many tokens as the client allows it."""
    if not wanted:
        return False
    threshold = min(entry.compact_threshold or COMPACT_AT for entry in wanted)
    return estimate_all(items) >= threshold and len(items) > 1


def _brought(items: Iterable[ResponseItem], declared: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the tools that the conversation itself has brought, by a search or later on, and that `declared` lacks."""
    names = {_called(tool) for tool in declared} - {None}
    found: list[JsonObject] = []
    for item in items:
        if not isinstance(item.view, AdditionalTools | ToolSearchOutput) or _ran_here(item.view):
            continue
        for raw in item.view.tools:
            tool = msgspec.json.decode(raw)
            if isinstance(tool, dict) and _called(tool) not in names:
                found.append(tool)
                names.add(_called(tool))
    return found


def _ran_here(view: AdditionalTools | ToolSearchOutput) -> bool:
    """Return whether a search of ours found these tools: the client declares them in each request."""
    return isinstance(view, ToolSearchOutput) and view.execution == "server" and view.call_id is not None


def _called(tool: JsonObject) -> JsonValue:
    """Return what tells a tool from others."""
    return tool.get("name") or tool.get("server_label")


def _check_brought(items: Sequence[JsonObject]) -> None:
    """Check the tools that items of the request bring. Raises `ApiError`."""
    for at, item in enumerate(items):
        tools = item.get("tools") if item.get("type") in ("additional_tools", "tool_search_output") else None
        for number, tool in enumerate(tools if isinstance(tools, list) else ()):
            param = f"input[{at}].tools[{number}]"
            shape = read_tool(tool, param)
            if isinstance(shape, RemoteServer) and shape.sent_headers:
                text = f"{param}: items are stored, credentials are not: name a server that needs some in `tools`"
                raise ApiError(text, code="invalid_value", param=param)
            if without_values(tool) != tool:
                text = "items are kept, and secrets are not: declare this tool in `tools`"
                raise ApiError(f"{param}: {text}", code="invalid_value", param=param)


def _updated(known: Known, items: Iterable[ResponseItem]) -> Known:
    """Return the settings as the conversation has changed them on its way."""
    for item in items:
        if kind_of(item.view) != _UPDATE:
            continue
        update = msgspec.json.decode(item.raw, type=ConfigurationUpdate)
        if update.reasoning is not None:
            known = msgspec.structs.replace(known, reasoning=update.reasoning)
        if update.text is not None:
            known = msgspec.structs.replace(known, text=update.text)
    return known


def _wants_logprobs(known: Known) -> bool:
    return LOGPROBS in (known.include or ()) or bool(known.top_logprobs)


def _settings(known: Known, *, one_by_one: bool) -> ModelSettings:
    """Return the settings for the upstream. `one_by_one`: it makes one call at a time, as the API has it beside tools
    that the server runs."""
    reasoning, text = known.reasoning, known.text
    return ModelSettings(
        reasoning_effort=None if reasoning is None else reasoning.effort,
        reasoning_summary=None if reasoning is None else reasoning.summary,
        verbosity=None if text is None else text.verbosity,
        parallel_tool_calls=False if one_by_one else known.parallel_tool_calls,
        max_output_tokens=known.max_output_tokens,
        temperature=known.temperature,
        top_p=known.top_p,
        top_logprobs=(known.top_logprobs or 0) if _wants_logprobs(known) else None,
        presence_penalty=known.presence_penalty,
        frequency_penalty=known.frequency_penalty,
        service_tier=known.service_tier,
    )


def _output_format(known: Known) -> OutputFormat | None:
    form = None if known.text is None else known.text.format
    if isinstance(form, JsonSchemaFormat):
        return OutputFormat(schema=form.schema, name=form.name, description=form.description, strict=form.strict)
    return OutputFormat() if isinstance(form, JsonObjectFormat) else None
