"""`mcp`: the tools of a remote MCP server, for any model.

Source: `mcp`, `mcp_list_tools`, `mcp_call`, `mcp_approval_request` and `mcp_approval_response` of the Responses API.
"""

from collections.abc import Callable, Sequence

from ferrule.egress.guard import Refused
from ferrule.hosted.approvals import Approvals, Wanted
from ferrule.hosted.mcp.declared import RemoteServer, checked_place, read_server
from ferrule.hosted.mcp.listing import ListCache, ServerTools, entries_of, known_list, source_of, too_many
from ferrule.hosted.mcp.remote import Failure, Remote, Remotes
from ferrule.hosted.mcp.results import Outcome, kept_output, outcome_of
from ferrule.hosted.records import Answer, HeldCall, Record, ToolList, as_item
from ferrule.hosted.tool import Held, HostedCall, HostedTool, Opened, Scope, Telling, ToolRefused
from ferrule.mcp.client import McpTool
from ferrule.mcp.names import qualified_name
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, OutputBody, ResponseItem, make_item
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.tools.arguments import read_arguments
from ferrule.tools.foreign import ForeignValidator
from ferrule.tools.tasks import run_blocking

KIND = "mcp"


class HostedMcp(HostedTool):
    """The tool, before it is known which functions it has. It is run here even where the model's server knows it: that
    one could not reach what is reached from here, and would be given the client's credentials."""

    kind = KIND
    opens = True

    def __init__(self, remotes: Remotes, approvals: Approvals) -> None:
        self._remotes = remotes
        self._approvals = approvals
        self._lists = ListCache()

    @property
    def goes_first(self) -> bool:
        """True: see above."""
        return True

    async def check(self, tool: JsonObject, owner: str) -> str:
        """Check the server's address and what is sent to it. Raises `ToolRefused`."""
        host, port = checked_place(read_server(tool))
        try:
            self._remotes.guard.check(host, port)
        except Refused as error:
            raise ToolRefused(str(error), "server_url") from error
        return ""

    def functions(self, tool: JsonObject) -> Sequence[ResponsesApiTool]:
        """Return nothing yet."""
        return ()

    async def run(self, call: HostedCall, telling: Telling) -> OutputBody | Held:
        """Not called: there are no functions yet."""
        raise NotImplementedError

    async def open(self, tool: JsonObject, scope: Scope, telling: Telling) -> Opened:
        """List the server's tools, unless the conversation knows them. A server that does not list them has none."""
        server = read_server(tool)
        remote = self._remotes.open(server, scope.owner)
        entries = known_list(scope.items, server)
        records: list[Record] = []
        if entries is None:
            listed = await _listed(server, remote, telling, deferred=scope.searches and server.defer_loading is True)
            entries = listed or ()
            if listed is not None:
                records.append(ToolList(server.server_label, listed, source_of(server)))
        opened = OpenServer(server, await self._lists.tools_of(server, entries), remote, self._approvals)
        return Opened(opened, tuple(map(as_item, records)))

    def replayed(self, item: JsonObject, called: Callable[[str], str]) -> tuple[ResponseItem, ...]:
        """Return an item of ours that the client sends back: a call with its output, or what the conversation keeps of
        it."""
        match item.get("type"):
            case "mcp_list_tools":
                tools = tuple(entry for entry in item.get("tools") or () if isinstance(entry, dict))
                return (as_item(ToolList("" if item.get("error") else str(item.get("server_label")), tools)),)
            case "mcp_approval_request":
                request = {name: item.get(name) for name in ("id", "type", "server_label", "name", "arguments")}
                function = _function_of(item)
                held = HeldCall(str(item.get("id")), function, request)
                return (_call(item, str(item.get("id")), called(function)), as_item(held))
            case "mcp_approval_response":
                answer = Answer(str(item["approval_request_id"]), item["approve"] is True, item.get("reason"))
                return (as_item(answer),)
            case "mcp_call":
                call_id = str(item.get("approval_request_id") or item.get("id"))
                output = FunctionCallOutput(call_id=call_id, output=kept_output(item))
                return (_call(item, call_id, called(_function_of(item))), make_item(output))
        return ()

    async def aclose(self) -> None:
        """Wait until the connections of responses that ended are closed."""
        await self._remotes.aclose()


def _function_of(item: JsonObject) -> str:
    return qualified_name(str(item.get("server_label")), str(item.get("name")))


def _call(item: JsonObject, call_id: str, name: str) -> ResponseItem:
    return make_item(FunctionCall(call_id=call_id, name=name, arguments=str(item.get("arguments") or "{}")))


async def _listed(
    server: RemoteServer, remote: Remote, telling: Telling, *, deferred: bool
) -> tuple[JsonObject, ...] | None:
    """List the server's tools, and tell that as an item. None: it did not list them."""
    same = {"server_label": server.server_label}
    item = telling.add_item("mcp_list_tools", {**same, "tools": []})
    telling.tell_of(item, "response.mcp_list_tools.in_progress")
    found = await remote.list_tools()
    entries = () if isinstance(found, Failure) else await run_blocking(entries_of, server, found)
    problem = found.text if isinstance(found, Failure) else too_many(entries, deferred=deferred)
    telling.tell_of(item, f"response.mcp_list_tools.{'completed' if problem is None else 'failed'}")
    if problem is not None:
        telling.end_item(item, {**same, "tools": [], "error": problem, "status": "failed"})
        return None
    telling.end_item(item, {**same, "tools": list(entries), "error": None})
    return entries


class OpenServer(HostedTool):
    """A server whose tools are known."""

    kind = KIND

    def __init__(self, server: RemoteServer, tools: ServerTools, remote: Remote, approvals: Approvals) -> None:
        self._server = server
        self._tools = tools.tools
        self._functions = tools.functions
        self._remote = remote
        self._approvals = approvals

    def name_of(self, function: str) -> str:
        """Return the server's name of the tool that a function stands for."""
        return self._tools[function].name

    def functions(self, tool: JsonObject) -> Sequence[ResponsesApiTool]:
        """Return a function for each of its tools."""
        return self._functions

    async def run(self, call: HostedCall, telling: Telling) -> OutputBody | Held:
        """Run a call, or ask the client whether it may run."""
        tool = self._tools[call.function]
        arguments: dict[str, JsonValue] = read_arguments(call.arguments, ForeignValidator(tool.schema))
        asks = self._server.asks_for(tool.name, read_only=tool.annotations.readOnlyHint)
        if asks and call.approval is None:
            return await self._ask(call, tool, telling)
        return await self._run(call, tool, arguments, telling)

    async def _ask(self, call: HostedCall, tool: McpTool, telling: Telling) -> Held:
        label = self._server.server_label
        wanted = Wanted(owner=call.scope.owner, server=label, tool=tool.name, arguments=call.arguments)
        asked = {"server_label": label, "name": tool.name, "arguments": call.arguments}
        item = telling.add_item("mcp_approval_request", asked, await self._approvals.new_id(wanted))
        request = telling.end_item(item, asked)
        return Held(as_item(HeldCall(call.call_id, call.function, request)))

    async def _run(
        self, call: HostedCall, tool: McpTool, arguments: dict[str, JsonValue], telling: Telling
    ) -> OutputBody:
        same = {"server_label": self._server.server_label, "name": tool.name, "approval_request_id": call.approval}
        item = telling.add_item("mcp_call", {**same, "arguments": "", "output": None, "error": None})
        telling.tell_of(item, "response.mcp_call.in_progress")
        telling.tell_of(item, "response.mcp_call_arguments.delta", delta=call.arguments)
        telling.tell_of(item, "response.mcp_call_arguments.done", arguments=call.arguments)
        outcome: Outcome = outcome_of(await self._remote.call(tool.name, arguments), self._server)
        telling.tell_of(item, f"response.mcp_call.{'failed' if outcome.is_failed else 'completed'}")
        telling.end_item(item, {**same, "arguments": call.arguments, **outcome.fields})
        return outcome.told

    def release(self) -> None:
        """Close the connection."""
        self._remote.release()
