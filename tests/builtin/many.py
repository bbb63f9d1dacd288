"""Two thousand tools of others, in the three ways in which they come."""

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.specs import NamespaceTool, ResponsesApiTool
from ferrule.tools.context import ToolContext, ToolInvocation
from ferrule.tools.handler import ToolHandler
from ferrule.tools.registry import ToolRegistryBuilder

VERBS = ("create", "delete", "list", "update")
THINGS = ("event", "invoice", "branch", "message", "folder")


class Echo(ToolHandler):
    """Answers with what was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str | None, str]] = []

    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        self.calls.append(invocation.key)
        return ToolOutput(f"called {invocation.tool_name}", True)


def spec(name: str, description: str, **properties: str) -> ResponsesApiTool:
    parameters = JsonSchema(
        {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}
    )
    return ResponsesApiTool(name=name, description=description, parameters=parameters)


class ManyTools:
    """A namespace (`crm`), flat names of MCP servers (`mcp__calendar__...`), and plain names; `count` tools in all."""

    revision = 0

    def __init__(self, count: int = 2000) -> None:
        self.count = count
        self.handler = Echo()

    def register(self, builder: ToolRegistryBuilder) -> None:
        customers = (spec("find_customer", "Looks a customer up.", email="string"), spec("merge", "Joins two records."))
        builder.push_deferrable(
            NamespaceTool(name="crm", description="Customers.", tools=customers), True, titles={"merge": "Deduplicate"}
        )
        for tool in customers:
            builder.register_handler(tool.name, self.handler, namespace="crm")
        special = [
            spec("mcp__calendar__createEvent", "Adds an appointment.", startTime="string"),
            spec("mcp__calendar__list_events", "Shows appointments.", day="string"),
            spec("roll_dice", "Throws dice.", sides="integer"),
        ]
        fill = [
            spec(
                f"mcp__shop{n % 9}__{VERBS[n % 4]}_{THINGS[n % 5]}_{n}",
                f"Thing number {n} of the shop.",
                limit="integer",
            )
            for n in range(self.count - len(customers) - len(special))
        ]
        for tool in special + fill:
            builder.push_deferrable(tool, False)
            builder.register_handler(tool.name, self.handler)
