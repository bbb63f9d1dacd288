"""`spawn_agent`: the model starts a sub-agent."""

from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import AliasChoices, Field

from ferrule.builtin.agent_content import AgentItem, AgentObservation, content_of
from ferrule.builtin.escalation import described
from ferrule.builtin.hints import KEEPS
from ferrule.protocol.settings import ReasoningEffort
from ferrule.tools.action import Action
from ferrule.tools.children import ChildOrder
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Start a sub-agent: another agent that works on a task beside you, in the same directory. Use it for a separate piece \
of work whose result you can take over as text, and give it all that it needs to know; it does not see this \
conversation. Answers at once with the agent's id; wait for it with `wait`, and close it when you no longer need \
it.{roles}"""


class SpawnAgentAction(Action):
    """The task, and who does it."""

    message: str | None = Field(default=None, description="The task, with all that the agent needs to know")
    items: list[AgentItem] | None = Field(default=None, description="Instead of message: texts and images")
    agent_type: str | None = Field(
        default=None,
        description="The agent's role, one of those listed above; omit it for a plain agent",
        validation_alias=AliasChoices("agent_type", "role"),
    )
    instructions: str | None = Field(default=None, description="How the agent is to work, beside its role")
    fork_context: bool = Field(default=False, description="Let the agent begin with this whole conversation")
    model: str | None = Field(default=None, description="Another model than yours; omit it unless the user named one")
    reasoning_effort: ReasoningEffort | None = Field(default=None, description="Another effort than yours")


class SpawnAgentExecutor(ToolExecutor[SpawnAgentAction, AgentObservation]):
    """Starts a child of the session."""

    async def __call__(self, action: SpawnAgentAction, ctx: ToolContext) -> AgentObservation:
        """Start it. Raises `RespondToModel`."""
        order = ChildOrder(
            content=content_of(action.message, action.items),
            role=action.agent_type,
            instructions=action.instructions,
            model=action.model,
            reasoning_effort=action.reasoning_effort,
            fork=action.fork_context,
        )
        agent_id = await ctx.children.spawn(order)
        return AgentObservation(answer={"agent_id": agent_id, "nickname": None})


class SpawnAgentTool(ToolDefinition[SpawnAgentAction, AgentObservation]):
    """Starts children of the session; its description lists their roles."""

    template: ClassVar[str] = DESCRIPTION

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> Sequence[Self]:
        """Create one for the conversation."""
        text = described(cls.template, None, conv_state)
        return [cls(description=text, executor=SpawnAgentExecutor(), annotations=KEEPS, parallel=True)]


TOOL = SpawnAgentTool
