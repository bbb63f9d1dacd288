"""The input and the output of a tool: pydantic models that the model and people can read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from ferrule.protocol.content import ContentPart
from ferrule.protocol.json_text import encodable
from ferrule.protocol.payload import ToolOutput

if TYPE_CHECKING:
    from rich.console import RenderableType
else:
    RenderableType = Any  # type hints resolve without rich, which is loaded where something is shown


class Action(BaseModel):
    """The input of a tool. Its fields are the parameters that the model sees; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    @property
    def visualize(self) -> RenderableType:
        """The action as shown to people: one field per line."""
        return _visualize(self)


class Observation(BaseModel):
    """The output of a tool. The model reads `to_llm_content`: by default the fields as JSON."""

    model_config = ConfigDict(frozen=True)

    bounded: ClassVar[bool] = False
    """The tool itself kept to `ctx.output_budget`; nothing is cut afterwards."""
    ends_turn: ClassVar[bool] = False
    """The model is not asked again; the text it would read becomes its final message to the user."""

    @property
    def to_llm_content(self) -> str | Sequence[ContentPart]:
        """The model's view: a text, or content parts."""
        return self.model_dump_json()

    @property
    def success(self) -> bool | None:
        """Whether the tool succeeded; the front end shows it, the model reads only the content."""
        return True

    @property
    def visualize(self) -> RenderableType:
        """The observation as shown to people: one field per line."""
        return _visualize(self)

    def to_output(self, call_id: str) -> ToolOutput:
        """Build the answer to the call. Native tools override this with an item of their own."""
        content = self.to_llm_content
        body = encodable(content) if isinstance(content, str) else tuple(content)
        return ToolOutput(body, self.success, self.bounded, self.ends_turn)


def _visualize(model: BaseModel) -> RenderableType:
    from rich.text import Text

    text = Text()
    for index, (field, value) in enumerate(model):
        if index:
            text.append("\n")
        text.append(f"{field}: ", style="bold")
        text.append(str(value))
    return text
