"""What `view_image` takes and answers."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.view_image import DESCRIPTION
from ferrule.protocol.content import InputImage
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class ViewImageAction(Action):
    """Which image."""

    path: str = Field(description="Path of the image file")


class ViewImageObservation(Observation):
    """The image as a `data:` URL. Where outputs are text only, the wire shows it in a message behind them."""

    bounded = True

    image_url: str

    @property
    def to_llm_content(self) -> Sequence[InputImage]:
        return (InputImage(image_url=self.image_url),)


class ViewImageTool(ToolDefinition[ViewImageAction, ViewImageObservation]):
    """Reads through `ctx.files`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ViewImageTool]":
        """The one instance, with the limits of the session's model."""
        from ferrule.builtin.view_image.impl import ViewImageExecutor

        return [cls(description=DESCRIPTION, executor=ViewImageExecutor(conv_state.profile), annotations=LOOKS)]
