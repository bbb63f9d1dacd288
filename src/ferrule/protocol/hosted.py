"""Tools that the provider runs: switched on by configuration, and told in a line when their items arrive."""

from collections.abc import Mapping
from typing import cast

import msgspec

from ferrule.protocol.errors import UsageError
from ferrule.protocol.items import (
    CodeInterpreterCall,
    ComputerCall,
    FileSearchCall,
    ImageGenerationCall,
    ItemView,
    McpApprovalRequest,
    McpCall,
    McpListTools,
    WebSearchCall,
)
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.specs import (
    AllowedDomains,
    CodeInterpreter,
    DomainAllowList,
    FileSearch,
    ImageGeneration,
    SearchContextSize,
    UserLocation,
    WebSearch,
    WebSearchPreview,
)

HostedTool = WebSearch | WebSearchPreview | FileSearch | CodeInterpreter | ImageGeneration


class _WebSearchTable(msgspec.Struct, tag="web_search"):
    """`WebSearch` with its filters unread: there are two spellings, and only one says its type."""

    external_web_access: bool | None = None
    search_context_size: SearchContextSize | None = None
    user_location: UserLocation | None = None
    filters: dict[str, JsonValue] | None = None


_KINDS = {
    str(kind.__struct_config__.tag): kind
    for kind in (_WebSearchTable, WebSearchPreview, FileSearch, CodeInterpreter, ImageGeneration)
}
"""What can be switched on. Not among them: what somebody here would have to answer (`computer_use_preview`), and MCP
servers, which have their own settings."""
_LEFT_OUT: dict[str, dict[str, JsonValue]] = {"code_interpreter": {"container": {"type": "auto"}}}
"""What a type cannot be without and a user need not say."""

MAX_DOMAINS = 100
"""How many domains the API takes in a search's filters."""


def hosted_tool(given: str | Mapping[str, JsonValue]) -> HostedTool:
    """The spec that a configuration means: a type alone, or a table of the type and its parameters as the Responses API
    spells them. Raises `UsageError` that says what is wrong."""
    table: dict[str, JsonValue] = {"type": given} if isinstance(given, str) else dict(given)
    name = str(table.get("type"))
    kind = _KINDS.get(name)
    if kind is None:
        raise UsageError(f"hosted_tools: there is no tool {name!r} to switch on; there are: {', '.join(_KINDS)}")
    unknown = set(table) - {"type", *kind.__struct_fields__}
    if unknown:
        raise UsageError(f"hosted_tools: {name} has no parameter {min(unknown)!r}")
    try:
        spec = msgspec.convert(_LEFT_OUT.get(name, {}) | table, kind)
        return _web_search(spec) if isinstance(spec, _WebSearchTable) else cast("HostedTool", spec)
    except msgspec.ValidationError as error:
        raise UsageError(f"hosted_tools: {name}: {error}") from error


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


def hosted_line(view: ItemView) -> str | None:
    """One line for people on what the provider did, or None for an item of another kind."""
    match view:
        case WebSearchCall(action=action):
            return f"Web search: {_search(action)}"
        case FileSearchCall(queries=queries):
            return f"File search: {', '.join(queries)}"
        case CodeInterpreterCall(code=code):
            return f"Python at the provider: {_first_line(code)}"
        case ImageGenerationCall(revised_prompt=prompt):
            return f"Image: {_first_line(prompt)}"
        case ComputerCall(action=action):
            return f"Computer: {_field(action, 'type')}"
        case McpListTools(server_label=server, tools=tools):
            return f"MCP server {server}: {len(tools)} tools"
        case McpCall(server_label=server, name=name):
            return f"MCP: {server}/{name}"
        case McpApprovalRequest(server_label=server, name=name):
            return f"MCP: {server}/{name} waits for approval"
    return None


def _search(action: msgspec.Raw) -> str:
    """What is searched, or which page is looked at."""
    return _field(action, "query") or _field(action, "url") or _field(action, "type")


def _field(raw: msgspec.Raw, name: str) -> str:
    value: JsonValue = msgspec.json.decode(raw) if bytes(raw) else {}
    return str(value.get(name) or "") if isinstance(value, dict) else ""


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
