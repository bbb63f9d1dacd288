"""`wait`: the model waits for sub-agents."""

from pydantic import AliasChoices, Field, field_validator

from ferrule.builtin.agent_content import AgentObservation
from ferrule.builtin.hints import LOOKS
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.action import Action
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Wait until one of these sub-agents has ended its work, and read its last message. Answers with the status of all that \
have ended; none, with `timed_out`, if the time is over."""

DEFAULT_MS, SHORTEST_MS, LONGEST_MS = 30_000, 10_000, 3_600_000
"""Milliseconds of a wait, as in Codex: a shorter one costs a request for nothing."""


class WaitAction(Action):
    """For whom, and how long."""

    ids: list[str] = Field(
        description="Ids of the agents", min_length=1, validation_alias=AliasChoices("ids", "targets", "id", "target")
    )
    timeout_ms: int | None = Field(default=None, description="Milliseconds to wait: 10000 to 3600000; 30000 if omitted")

    @field_validator("ids", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value


class WaitExecutor(ToolExecutor[WaitAction, AgentObservation]):
    """Waits for children of the session."""

    async def __call__(self, action: WaitAction, ctx: ToolContext) -> AgentObservation:
        """Wait. Raises `RespondToModel`."""
        wanted = DEFAULT_MS if action.timeout_ms is None else action.timeout_ms
        if wanted <= 0:
            raise RespondToModel("timeout_ms must be greater than zero")
        ended = await ctx.children.wait(action.ids, min(max(wanted, SHORTEST_MS), LONGEST_MS) / 1000)
        status = {agent_id: one.as_json for agent_id, one in ended.items()}
        return AgentObservation(answer={"status": status, "timed_out": not status})


TOOL = ToolDefinition(name="wait", description=DESCRIPTION, executor=WaitExecutor(), annotations=LOOKS, parallel=True)
