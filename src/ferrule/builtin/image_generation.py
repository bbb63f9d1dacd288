"""`image_generation`: a new image as a file of the workspace, by the backend that the user has configured."""

import os
import re
from base64 import b64encode
from collections.abc import Sequence
from itertools import count

from pydantic import Field

from ferrule.builtin.apply_patch import carry_out, record
from ferrule.builtin.view_image.fitting import BadImage, fitted
from ferrule.image_generation.access import NOT_HERE, ImageAccess
from ferrule.patch import Kind, Operation, OperationKind, Place, Plan
from ferrule.patch.planner import reason
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.errors import RespondToModel, UsageError
from ferrule.protocol.events import FileChange, ViewImage
from ferrule.protocol.image_settings import NO_IMAGES
from ferrule.tools.action import Action, Observation
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.context import Access, ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.effects import PatchEffect
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Make a new image from a description. It becomes a PNG file in the working directory, whose name comes back with the \
image, and the user sees it. The description is all that the image's model knows: say everything that matters."""
SENDS = ToolAnnotations(readOnlyHint=False, destructiveHint=False, idempotentHint=False, openWorldHint=True)
"""A tool that sends words of the model away, and makes something new each time."""
MAX_NAME = 40
"""Characters of a file's name that come from the description."""
_NO_WORD = re.compile(r"[^a-z0-9]+")


class ImageGenerationAction(Action):
    """An image that is wanted."""

    prompt: str = Field(description="What the image shows, and in which style", min_length=1, max_length=32_000)


class ImageGenerationObservation(Observation):
    """The file, and the image as a `data:` URL."""

    bounded = True

    text: str
    image_url: str | None = None

    @property
    def to_llm_content(self) -> str | Sequence[ContentPart]:
        if self.image_url is None:
            return self.text
        return (InputText(self.text), InputImage(image_url=self.image_url))


class ImageGenerationExecutor(ToolExecutor[ImageGenerationAction, ImageGenerationObservation]):
    """Makes and writes in one `ctx.run`: the user who is asked decides before anything leaves the machine."""

    asks_first = True

    def __init__(self, state: ConversationState) -> None:
        self._state = state

    async def __call__(self, action: ImageGenerationAction, ctx: ToolContext) -> ImageGenerationObservation:
        """Make the image. Raises `RespondToModel`."""
        images = self._state.images
        missing = NO_IMAGES if images is None else images.missing()
        if images is None or missing is not None:
            raise RespondToModel(NOT_HERE.format(missing))
        place = _free_place(action.prompt, ctx)
        changes = (FileChange(kind="add", path=place.path),)

        async def attempt(access: Access) -> tuple[Plan, str]:
            data, size = await _made(images, action.prompt)
            plan = Plan((Operation(OperationKind.CREATE, place, None, None, data, 0, 0, edits=()),))
            await carry_out(plan, changes, ctx, access, self._state.turn_diff, ctx.cwd)
            return plan, size

        text = f"image_generation: {action.prompt}\nA new file: {place.path}"
        effect = PatchEffect(cwd=ctx.cwd, changes=changes, paths=(place.entry.real,), text=text)
        plan, size = await ctx.run(effect, attempt)
        record(plan, ctx, self._state.turn_diff)
        ctx.emit(ViewImage(call_id=ctx.call_id, path=place.absolute))
        told = f"The image is in {place.path} (PNG, {size} pixels)."
        return ImageGenerationObservation(text=told, image_url=_shown(plan.operations[0].after or b""))


async def _made(images: ImageAccess, prompt: str) -> tuple[bytes, str]:
    """Return an image and its size. Raises `RespondToModel`."""
    from ferrule.image_generation.backend import ImageFailed, ImageRequest

    try:
        made = await images.maker.make(ImageRequest(prompt=prompt))
    except ImageFailed as error:
        raise RespondToModel(f"{error} There is no image.") from error
    except UsageError as error:
        raise RespondToModel(NOT_HERE.format(error)) from error
    return made.picture.data, made.picture.size


def _shown(data: bytes) -> str | None:
    """Return the image as models and terminals take it; None if it cannot be made small enough."""
    try:
        image = fitted(data)
    except BadImage:
        return None
    return f"data:{image.mime};base64,{b64encode(image.data).decode()}"


def _free_place(prompt: str, ctx: ToolContext) -> Place:
    """Return a place in the working directory where nothing is, named after the prompt's first words."""
    stem = _NO_WORD.sub("-", prompt.lower())[:MAX_NAME].strip("-") or "image"
    for number in count(1):
        name = f"{stem}.png" if number == 1 else f"{stem}-{number}.png"
        absolute = os.path.join(ctx.cwd, name)
        try:
            entry = ctx.files.look(absolute)
        except OSError as error:
            raise RespondToModel(f"{ctx.cwd} cannot be read: {reason(error)}") from error
        if entry.kind is Kind.MISSING and not os.path.lexists(absolute):
            return Place(name, absolute, entry)
    raise AssertionError  # numbers do not end


class ImageGenerationTool(ToolDefinition[ImageGenerationAction, ImageGenerationObservation]):
    """Makes images with the session's backend."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ImageGenerationTool]":
        """Create one for the conversation."""
        executor = ImageGenerationExecutor(conv_state)
        return [cls(description=DESCRIPTION, executor=executor, annotations=SENDS, parallel=False)]


TOOL = ImageGenerationTool
