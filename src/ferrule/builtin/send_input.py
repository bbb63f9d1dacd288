"""`send_input`: the model says something to a sub-agent."""

from pydantic import Field

from ferrule.builtin.agent_content import AgentId, AgentItem, AgentObservation, content_of
from ferrule.builtin.hints import KEEPS
from ferrule.tools.action import Action
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Send a message to a sub-agent. A running agent reads it before its next step, or at once with `interrupt`; one that \
has ended its work starts on it."""


class SendInputAction(Action):
    """Which agent, and what."""

    id: AgentId
    message: str | None = Field(default=None, description="What to say")
    items: list[AgentItem] | None = Field(default=None, description="Instead of message: texts and images")
    interrupt: bool = Field(default=False, description="End what the agent does now")


class SendInputExecutor(ToolExecutor[SendInputAction, AgentObservation]):
    """Reaches a child of the session."""

    async def __call__(self, action: SendInputAction, ctx: ToolContext) -> AgentObservation:
        """Send it. Raises `RespondToModel`."""
        content = content_of(action.message, action.items)
        sent = await ctx.children.send(action.id, content, action.interrupt)
        return AgentObservation(answer={"submission_id": sent})


TOOL = ToolDefinition(
    name="send_input", description=DESCRIPTION, executor=SendInputExecutor(), annotations=KEEPS, parallel=True
)
