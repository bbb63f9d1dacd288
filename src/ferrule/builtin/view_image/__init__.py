"""`view_image`: the model looks at an image."""

from base64 import b64encode
from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.view_image.fitting import BadImage, fitted
from ferrule.patch.files import Kind
from ferrule.patch.planner import reason
from ferrule.protocol.content import InputImage
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import ViewImage
from ferrule.protocol.profiles import ModelProfile
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Look at an image file on this machine (PNG, JPEG, GIF or WebP). Only for a file that the user named or that you made, \
and that is not in the conversation already."""


class ViewImageAction(Action):
    """The path of an image."""

    path: str = Field(description="Path of the image file")


class ViewImageObservation(Observation):
    """The image as a `data:` URL. Where outputs are text only, the wire shows it in a message behind them."""

    bounded = True

    image_url: str

    @property
    def to_llm_content(self) -> Sequence[InputImage]:
        return (InputImage(image_url=self.image_url),)


MAX_FILE_BYTES = 64 * 1024 * 1024
"""Bytes: nobody looks at larger images."""
BLIND = "view_image is not allowed because you do not support image inputs"


class ViewImageExecutor(ToolExecutor[ViewImageAction, ViewImageObservation]):
    """Runs on a thread: decoding takes a while."""

    def __init__(self, profile: ModelProfile) -> None:
        self._profile = profile

    def __call__(self, action: ViewImageAction, ctx: ToolContext) -> ViewImageObservation:
        """Return the image. Raises `RespondToModel`."""
        if not self._profile.image_input:
            raise RespondToModel(BLIND)
        path = ctx.files.shown_path(action.path)
        data = _read(path, ctx)
        try:
            image = fitted(data)
        except BadImage as error:
            raise RespondToModel(f"unable to process image at `{path}`: {error}") from error
        ctx.emit(ViewImage(call_id=ctx.call_id, path=path))
        return ViewImageObservation(image_url=f"data:{image.mime};base64,{b64encode(image.data).decode()}")


def _read(path: str, ctx: ToolContext) -> bytes:
    try:
        entry = ctx.files.look(path)
        if entry.kind is Kind.MISSING:
            raise RespondToModel(f"unable to locate image at `{path}`: No such file or directory (os error 2)")
        if entry.kind is not Kind.FILE:
            raise RespondToModel(f"image path `{path}` is not a file")
        if entry.size > MAX_FILE_BYTES:
            size = f"{entry.size / 1024 / 1024:.0f} MB, at most {MAX_FILE_BYTES // 1024 // 1024} MB"
            raise RespondToModel(f"unable to process image at `{path}`: the file is too large ({size})")
        with ctx.files.open(path) as file:
            return file.read(MAX_FILE_BYTES) or b""
    except OSError as error:
        raise RespondToModel(f"unable to read image at `{path}`: {reason(error)}") from error


class ViewImageTool(ToolDefinition[ViewImageAction, ViewImageObservation]):
    """Reads through `ctx.files`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ViewImageTool]":
        """Create one for the conversation, with the limits of the session's model."""
        return [cls(description=DESCRIPTION, executor=ViewImageExecutor(conv_state.profile), annotations=LOOKS)]


TOOL = ViewImageTool
