"""Tools that the provider runs: enabled by configuration, and summarised in one line when their items arrive."""

import difflib
from collections.abc import Mapping
from typing import cast

import msgspec

from ferrule.protocol.errors import UsageError
from ferrule.protocol.items import (
    CodeInterpreterCall,
    FileSearchCall,
    ImageGenerationCall,
    ItemView,
    McpApprovalRequest,
    McpCall,
    McpListTools,
    WebSearchCall,
    kind_of,
)
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.specs import (
    AllowedDomains,
    CodeInterpreter,
    ComputerTool,
    ComputerUsePreview,
    DomainAllowList,
    FileSearch,
    ImageGeneration,
    RawTool,
    RemoteMcp,
    SearchContextSize,
    ShellTool,
    ToolSearchTool,
    ToolSpec,
    UserLocation,
    WebSearch,
    WebSearchPreview,
    runs_here,
)

HostedTool = ToolSpec
"""A tool that is only declared to the model: the provider, or another party, runs its calls."""


class _WebSearchTable(msgspec.Struct, tag="web_search"):
    """`WebSearch` with its filters undecoded: there are two spellings, and only one carries its type."""

    external_web_access: bool | None = None
    search_context_size: SearchContextSize | None = None
    user_location: UserLocation | None = None
    filters: dict[str, JsonValue] | None = None


_KINDS = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        _WebSearchTable,
        WebSearchPreview,
        FileSearch,
        CodeInterpreter,
        ImageGeneration,
        ComputerTool,
        ComputerUsePreview,
        ShellTool,
        RemoteMcp,
        ToolSearchTool,
    )
}
"""Types that are validated before they are sent. A table of another type is sent unchanged."""
_OURS = ("local_shell", "apply_patch")
"""Types that run here, by their names in `tools`."""
_LEFT_OUT: dict[str, dict[str, JsonValue]] = {"code_interpreter": {"container": {"type": "auto"}}}
"""Defaults for fields that a type requires and a user may omit."""

MAX_DOMAINS = 100
"""The API's limit on domains in a search's filters."""


def hosted_tool(given: str | Mapping[str, JsonValue]) -> HostedTool:
    """Build the spec of a configured hosted tool: a type alone, or a table of the type and its parameters as the
    Responses API spells them. Raises `UsageError` that says what is wrong."""
    table: dict[str, JsonValue] = {"type": given} if isinstance(given, str) else dict(given)
    name = str(table.get("type"))
    kind = _KINDS.get(name)
    if kind is None:
        return _other(name, table)
    if isinstance(given, str) and (needed := _required(kind) - set(_LEFT_OUT.get(name, {}))):
        raise UsageError(
            f"hosted_tools: there is no tool {name!r} to switch on by its name alone; "
            f"give a table with type and {', '.join(sorted(needed))}"
        )
    unknown = set(table) - {"type", *kind.__struct_fields__}
    if unknown:
        raise UsageError(f"hosted_tools: {name} has no parameter {min(unknown)!r}")
    try:
        spec = msgspec.convert(_LEFT_OUT.get(name, {}) | table, kind)
        tool = _web_search(spec) if isinstance(spec, _WebSearchTable) else cast("HostedTool", spec)
    except msgspec.ValidationError as error:
        raise UsageError(f"hosted_tools: {name}: {error}") from error
    if runs_here(tool):
        raise UsageError(f"hosted_tools: this {name} runs here, not at the provider; name its tool in `tools` instead")
    return tool


def _required(kind: type[msgspec.Struct]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(kind) if field.required}


def _other(name: str, table: dict[str, JsonValue]) -> HostedTool:
    """Build a tool of an unknown type. Raises `UsageError` for a likely typo."""
    if name in _OURS:
        raise UsageError(f"hosted_tools: {name} runs here, not at the provider; name it in `tools` instead")
    near = difflib.get_close_matches(name, _KINDS, n=1)
    if len(table) < 2 or "type" not in table or near:
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_KINDS)}"
        raise UsageError(f"hosted_tools: there is no tool {name!r} to switch on; {hint}")
    return RawTool(definition=table)


def _web_search(table: _WebSearchTable) -> WebSearch:
    filters: DomainAllowList | AllowedDomains | None = None
    domains: tuple[str, ...] = ()
    if table.filters is not None and "type" in table.filters:
        filters = msgspec.convert(table.filters, DomainAllowList)
        domains = filters.domains
    elif table.filters is not None:
        filters = msgspec.convert(table.filters, AllowedDomains)
        domains = filters.allowed_domains
    if len(domains) > MAX_DOMAINS:
        raise UsageError(f"hosted_tools: web_search takes at most {MAX_DOMAINS} domains, not {len(domains)}")
    for domain in domains:
        if "://" in domain:
            raise UsageError(f"hosted_tools: web_search wants {domain.partition('://')[2]!r} and not {domain!r}")
    return WebSearch(table.external_web_access, table.search_context_size, table.user_location, filters)


_RUNNING = frozenset({"in_progress", "searching", "interpreting", "generating", "calling"})
_OVER = frozenset({"failed", "incomplete"})


def is_unfinished(view: ItemView) -> bool:
    """Return whether a hosted tool's call arrived without its end: its server lets the model call the tool but does
    not run it."""
    match view:
        case ImageGenerationCall(result=result, status=status):  # OpenAI's own end as `generating`, with their result
            return result is None and status not in _OVER
        case McpCall(output=output, status=status):
            return output is None and status in _RUNNING
        case WebSearchCall(status=status) | FileSearchCall(status=status) | CodeInterpreterCall(status=status):
            return status in _RUNNING
    return False


def nobody_runs(view: ItemView) -> str:
    """Return the text the model reads for such a call."""
    return f"Nobody runs the {kind_of(view)} of your last answer here: go on with the tools that you were given."


def hosted_line(view: ItemView) -> str | None:
    """Describe in one line what the provider did; None for an item of another kind."""
    match view:
        case WebSearchCall(action=action):
            return f"Web search: {_search(action)}"
        case FileSearchCall(queries=queries):
            return f"File search: {', '.join(queries)}"
        case CodeInterpreterCall(code=code):
            return f"Python at the provider: {_first_line(code)}"
        case ImageGenerationCall(revised_prompt=prompt):
            return f"Image: {_first_line(prompt)}"
        case McpListTools(server_label=server, tools=tools):
            return f"MCP server {server}: {len(tools)} tools"
        case McpCall(server_label=server, name=name):
            return f"MCP: {server}/{name}"
        case McpApprovalRequest(server_label=server, name=name):
            return f"MCP: {server}/{name} waits for approval"
    return None


def _search(action: msgspec.Raw) -> str:
    """Return the search query, or the page being read."""
    return _field(action, "query") or _field(action, "url") or _field(action, "type")


def _field(raw: msgspec.Raw, name: str) -> str:
    value: JsonValue = msgspec.json.decode(raw) if bytes(raw) else {}
    return str(value.get(name) or "") if isinstance(value, dict) else ""


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
