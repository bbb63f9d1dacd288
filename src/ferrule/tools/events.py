"""Events that carry pydantic models: a tool's action, its observation, or its failure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrule.tools.definition import Action, Observation
else:
    Action = Observation = object  # type hints resolve without pydantic


@dataclass(frozen=True, slots=True)
class ActionEvent:
    """A call was parsed and validated. `action` is what will run."""

    call_id: str
    tool_name: str
    action: "Action"


@dataclass(frozen=True, slots=True)
class ObservationEvent:
    """A tool answered."""

    call_id: str
    tool_name: str
    observation: "Observation"


@dataclass(frozen=True, slots=True)
class AgentErrorEvent:
    """A call could not be parsed, was refused or failed; `error` is what the model reads."""

    call_id: str
    tool_name: str
    error: str


ToolEvent = ActionEvent | ObservationEvent | AgentErrorEvent
