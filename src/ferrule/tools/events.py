"""Events that carry pydantic models: a tool's action, its observation, or its failure."""

from typing import TYPE_CHECKING

import msgspec

from ferrule.protocol.events import Event

if TYPE_CHECKING:
    from ferrule.tools.action import Action, Observation
else:
    Action = Observation = object  # type hints resolve without pydantic


class ActionEvent(msgspec.Struct, frozen=True):
    """A call was parsed and validated. `action` is what will run."""

    call_id: str
    tool_name: str
    action: "Action"


class ObservationEvent(msgspec.Struct, frozen=True):
    """A tool answered."""

    call_id: str
    tool_name: str
    observation: "Observation"


class AgentErrorEvent(msgspec.Struct, frozen=True):
    """A call could not be parsed, was refused or failed; `error` is what the model reads."""

    call_id: str
    tool_name: str
    error: str


class ChildEvent(msgspec.Struct, frozen=True):
    """An event of a sub-agent, whose session is `thread_id`; `parent_thread_id` is the session that started it."""

    thread_id: str
    parent_thread_id: str
    event: "Event | ToolEvent"


ToolEvent = ActionEvent | ObservationEvent | AgentErrorEvent | ChildEvent
