"""`resume_agent`: the model lets a sub-agent go on."""

from ferrule.builtin.agent_content import AgentId, AgentObservation
from ferrule.builtin.hints import KEEPS
from ferrule.tools.action import Action
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Let a sub-agent go on that was interrupted, failed or reached a limit, or open one again that was closed."""


class ResumeAgentAction(Action):
    """Which agent."""

    id: AgentId


class ResumeAgentExecutor(ToolExecutor[ResumeAgentAction, AgentObservation]):
    """Reaches a child of the session, or its rollout."""

    async def __call__(self, action: ResumeAgentAction, ctx: ToolContext) -> AgentObservation:
        """Resume it. Raises `RespondToModel`."""
        status = await ctx.children.resume(action.id)
        return AgentObservation(answer={"status": status.as_json})


TOOL = ToolDefinition(
    name="resume_agent", description=DESCRIPTION, executor=ResumeAgentExecutor(), annotations=KEEPS, parallel=True
)
