"""`list_agents`: the model looks which sub-agents there are."""

from ferrule.builtin.agent_content import AgentObservation
from ferrule.builtin.hints import LOOKS
from ferrule.tools.action import Action
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
List your sub-agents, with their roles and their status."""


class ListAgentsAction(Action):
    """Takes no arguments."""


class ListAgentsExecutor(ToolExecutor[ListAgentsAction, AgentObservation]):
    """Reads the table of the session's children."""

    async def __call__(self, action: ListAgentsAction, ctx: ToolContext) -> AgentObservation:
        """List them."""
        return AgentObservation(
            answer={
                "agents": [
                    {"agent_id": one.agent_id, "agent_type": one.role, "status": one.status.as_json}
                    for one in ctx.children.infos()
                ]
            }
        )


TOOL = ToolDefinition(
    name="list_agents", description=DESCRIPTION, executor=ListAgentsExecutor(), annotations=LOOKS, parallel=True
)
