"""`close_agent`: the model ends a sub-agent."""

from ferrule.builtin.agent_content import AgentId, AgentObservation
from ferrule.builtin.hints import KEEPS
from ferrule.tools.action import Action
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
End a sub-agent that you no longer need, and what it still does. Answers with its status before."""


class CloseAgentAction(Action):
    """Which agent."""

    id: AgentId


class CloseAgentExecutor(ToolExecutor[CloseAgentAction, AgentObservation]):
    """Ends a child of the session."""

    async def __call__(self, action: CloseAgentAction, ctx: ToolContext) -> AgentObservation:
        """Close it; one that is gone is `not_found`."""
        before = await ctx.children.close(action.id)
        return AgentObservation(answer={"previous_status": before.as_json})


TOOL = ToolDefinition(
    name="close_agent", description=DESCRIPTION, executor=CloseAgentExecutor(), annotations=KEEPS, parallel=True
)
