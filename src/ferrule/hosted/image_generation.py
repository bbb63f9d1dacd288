"""`image_generation`: images for any model, by the operator's backend.

Source: `image_generation` and `image_generation_call` of the Responses API.
"""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec

from ferrule.history.pairs import answered_id
from ferrule.hosted.tool import Begun, HostedCall, HostedTool, NotReady, Telling, ToolRefused
from ferrule.image_generation.backend import FORMATS, MAX_BYTES, MAX_PROMPT, ImageFailed, ImageRequest
from ferrule.image_generation.maker import ImageMaker, Made
from ferrule.image_generation.picture import Picture, checked
from ferrule.images import read_header
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import (
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    ImageGenerationCall,
    Message,
    OutputBody,
    ResponseItem,
    make_item,
)
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonObject, JsonValue, decode
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.store import Store

NAME = "image_generation"
"""The model's function."""
NOT_HERE = "image_generation cannot be used: {}. The operator of this server has to set it. Answer without images."
NOTHING_TO_EDIT = f"{NAME}: there is no image in the conversation that could be edited. Ask the user for one."
DONE = "The image is made, and the user sees it: {} pixels, {}."
LOST = "(its image is not kept)"
DESCRIPTION = (
    "{} The user sees the result; do not repeat it in your answer, and never write an address for it. The description "
    "is all that the image's model knows: say everything that matters."
)
MAKES, EDITS = "Make an image from a description.", "Change the image of the conversation, as described."
MAKES_OR_EDITS = "Make an image from a description, or change the one that the user has sent with this request."
PARAMETERS = JsonSchema(
    {
        "type": "object",
        "properties": {"prompt": {"type": "string", "description": "What the image shows, and in which style"}},
        "required": ["prompt"],
        "additionalProperties": False,
    }
)
_OPTIONS = ("size", "quality", "background", "output_compression", "input_fidelity", "moderation")
_KNOWN = {"type", "action", "model", "output_format", "partial_images", "input_image_mask", *_OPTIONS}

_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})")
_FIXED_SIZES = ("1024x1024", "1024x1536", "1536x1024")
_SIZES: Mapping[str, tuple[str, ...]] = {
    "gpt-image-1": _FIXED_SIZES,
    "gpt-image-1-mini": _FIXED_SIZES,
    "gpt-image-1.5": _FIXED_SIZES,
    "dall-e-2": ("256x256", "512x512", "1024x1024"),
    "dall-e-3": ("1024x1024", "1024x1792", "1792x1024"),
}
"""Models that make these sizes alone."""
MAX_EDGE, MAX_SIZE = 3840, 3840 * 2160
"""Pixels: the API's limits."""
_STEP, _RATIO = 16, 3
"""What edges are multiples of, and how much longer one may be, for the API's own models."""
_THREE_QUALITIES = {"gpt-image-1", "gpt-image-1-mini", "gpt-image-1.5", "gpt-image-2", "gpt-image-2-2026-04-21"}


class _Arguments(msgspec.Struct, frozen=True):
    prompt: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PROMPT)]


class _Latest:
    """The newest image of a response."""

    def __init__(self) -> None:
        self.image: bytes | None = None

    def close(self) -> None:
        """Do nothing."""


class ImageGeneration(HostedTool):
    """The tool. `maker` None: something is `missing`, and each response is told so once. `store` has the files that
    clients name."""

    kind = "image_generation"

    def __init__(self, maker: ImageMaker | None, store: Store, *, missing: str = "") -> None:
        self._maker = maker
        self._store = store
        self._missing = missing

    @property
    def goes_first(self) -> bool:
        """True where it is set up: the operator has chosen this backend."""
        return self._maker is not None

    def not_run(self, tool: JsonObject) -> Sequence[str]:
        """Return the fields that are only kept; its type where it is not set up."""
        return sorted(tool.keys() - _KNOWN) if self._maker is not None else (self.kind,)

    async def check(self, tool: JsonObject, owner: str) -> str:
        """Check the fields of the declared tool, and look up its mask. Raises `ToolRefused`."""
        _check(tool)
        await self._mask(tool, owner)
        return ""

    def functions(self, tool: JsonObject) -> Sequence[ResponsesApiTool]:
        """Return the function that the model is told of."""
        does = {"edit": EDITS, "generate": MAKES}.get(str(tool.get("action")), MAKES_OR_EDITS)
        return (ResponsesApiTool(name=NAME, description=DESCRIPTION.format(does), parameters=PARAMETERS),)

    async def run(self, call: HostedCall, telling: Telling) -> OutputBody:
        """Make an image, or edit one."""
        try:
            prompt = msgspec.convert(decode(call.arguments), _Arguments).prompt
        except msgspec.ValidationError as error:
            raise RespondToModel(f"{NAME}: {error}") from error
        latest = call.scope.shared.get(_Latest)
        mask = await self._mask(call.tool, call.scope.owner)
        source = _source(call, latest.image, has_mask=mask is not None)
        item = telling.add_item("image_generation_call", {"result": None})
        telling.tell_of(item, "response.image_generation_call.in_progress")
        shown = {"action": "generate" if source is None else "edit", "revised_prompt": prompt, "result": None}
        if self._maker is None:
            telling.end_item(item, shown | {"status": "failed", "error": _error(self._missing, "not_configured")})
            raise NotReady(NOT_HERE.format(self._missing))
        telling.tell_of(item, "response.image_generation_call.generating")
        request = _request(call.tool, prompt, source, mask)
        try:
            made = await self._maker.make(request, _Partials(item, telling, request).tell)
        except ImageFailed as error:
            telling.end_item(item, shown | {"status": "failed", "error": _error(str(error), error.code)})
            return f"{error} There is no image: tell the user."
        latest.image = made.picture.data
        telling.tell_of(item, "response.image_generation_call.completed")
        telling.end_item(item, shown | _result(made, request))
        return _told(made.picture)

    def replayed(self, item: JsonObject, called: Callable[[str], str]) -> tuple[ResponseItem, ...]:
        """Return a call that the client sends back as the model saw it."""
        if item.get("type") != "image_generation_call":
            return ()
        call_id, arguments = str(item.get("id")), {"prompt": item.get("revised_prompt") or ""}
        said = msgspec.json.encode(arguments).decode()
        return (
            make_item(FunctionCall(call_id=call_id, name=called(NAME), arguments=said)),
            make_item(FunctionCallOutput(call_id=call_id, output=_replayed_output(item))),
        )

    async def _mask(self, tool: JsonObject, owner: str) -> bytes | None:
        """Return the mask of the declared tool, if it has one. Raises `ToolRefused`."""
        given = tool.get("input_image_mask")
        if given is None:
            return None
        param = "input_image_mask"
        file_id, url = given.get("file_id"), given.get("image_url")
        if bool(file_id) == bool(url):
            raise ToolRefused("a mask has a file_id or an image_url", param)
        param = f"{param}.{'file_id' if file_id else 'image_url'}"
        mask = await self._file(file_id, owner, param) if file_id else _of_data_url(url)
        if mask is None:
            raise ToolRefused("a mask is a data URL in base64, or a file by its file_id", param)
        try:
            checked(mask)
        except ImageFailed as error:
            raise ToolRefused(f"the mask cannot be used: {error}", param) from error
        return mask

    async def _file(self, file_id: str, owner: str, param: str) -> bytes:
        content = await self._store.content(owner, file_id)
        if content is None:
            raise ToolRefused(f"there is no file {file_id!r}", param, status=404, code="not_found")
        async with content:
            if content.record.bytes > MAX_BYTES:
                raise ToolRefused(f"the file has more than {MAX_BYTES >> 20} MB", param)
            return b"".join([block async for block in content])


class _Partials:
    """Tells of the images that are not finished."""

    def __init__(self, item: Begun, telling: Telling, request: ImageRequest) -> None:
        self._item = item
        self._telling = telling
        self._request = request
        self._number = 0

    def tell(self, picture: Picture) -> None:
        self._telling.tell_of(
            self._item,
            "response.image_generation_call.partial_image",
            partial_image_index=self._number,
            partial_image_b64=b64encode(picture.data).decode(),
            size=picture.size,
            quality=self._request.quality or "auto",
            background=self._request.background or "auto",
            output_format=picture.format,
        )
        self._number += 1


def _check(tool: JsonObject) -> None:
    """Check what the fields mean together; each for itself was checked when the request was read. Raises
    `ToolRefused`."""
    form, model = tool.get("output_format") or "png", str(tool.get("model") or "")
    if form not in FORMATS:
        raise ToolRefused(f"this server makes {', '.join(FORMATS)}, not {form}", "output_format")
    if tool.get("background") == "transparent" and form == "jpeg":
        raise ToolRefused("jpeg has no transparency: take png or webp", "background")
    compression = tool.get("output_compression")
    if compression is not None and compression < 100 and form == "png":
        raise ToolRefused("png is not compressed by degrees: take webp or jpeg", "output_compression")
    if tool.get("quality") in ("xhigh", "max") and model in _THREE_QUALITIES:
        raise ToolRefused(f"{model} has low, medium and high", "quality")
    if tool.get("input_fidelity") == "high" and model == "gpt-image-1-mini":
        raise ToolRefused(f"{model} has low alone", "input_fidelity")
    if tool.get("input_image_mask") is not None and tool.get("action") == "generate":
        raise ToolRefused("a mask is for an image that is edited, and action says generate", "input_image_mask")
    _check_size(tool.get("size"), model)


def _check_size(size: JsonValue, model: str) -> None:
    if size in (None, "auto"):
        return
    sizes = _SIZES.get(model)
    if sizes is not None and size not in sizes:
        raise ToolRefused(f"{model} makes {', '.join(sizes)}", "size")
    parts = _SIZE.fullmatch(str(size))
    if parts is None:
        raise ToolRefused("a size is WIDTHxHEIGHT, as 1024x1024, or auto", "size")
    short, long = sorted((int(parts[1]), int(parts[2])))
    if not short or long > MAX_EDGE or short * long > MAX_SIZE:
        raise ToolRefused(f"at most {MAX_EDGE}x{MAX_SIZE // MAX_EDGE} pixels, either way", "size")
    if model.startswith("gpt-image-") and (short % _STEP or long % _STEP or long > _RATIO * short):
        raise ToolRefused(f"edges are multiples of {_STEP}, and none is {_RATIO} times as long as the other", "size")


def _request(tool: JsonObject, prompt: str, source: bytes | None, mask: bytes | None) -> ImageRequest:
    """Return what the backend is asked for."""
    return ImageRequest(
        prompt=prompt,
        model=tool.get("model") or None,
        output_format=tool.get("output_format") or "png",
        partial_images=tool.get("partial_images") or 0,
        image=source,
        mask=None if source is None else mask,
        **{name: tool.get(name) for name in _OPTIONS},
    )


def _source(call: HostedCall, newest: bytes | None, *, has_mask: bool) -> bytes | None:
    """Return the image that a call edits: the response's newest, else the request's last, else the last result, else
    the last that the user has ever sent; None if it makes a new one. Left to itself it edits what the user sends with
    this request. Raises `RespondToModel` if there is nothing to edit."""
    action, items = call.tool.get("action") or "auto", call.scope.items
    request = _request_in(items)
    if action == "generate" or (action == "auto" and not has_mask and not any(map(_image_of, _messages(request)))):
        return None
    places = (request, _results(items), _messages(items))
    images = (image for place in places for item in reversed(place) if (image := _image_of(item)) is not None)
    source = newest or next(images, None)
    if source is None:
        raise RespondToModel(NOTHING_TO_EDIT)
    return source


def _request_in(items: Sequence[ResponseItem]) -> Sequence[ResponseItem]:
    """Return what the client has added since the model's last words."""
    start = len(items)
    while start and (_messages(items[start - 1 : start]) or answered_id(items[start - 1].view) is not None):
        start -= 1
    return items[start:]


def _messages(items: Sequence[ResponseItem]) -> list[ResponseItem]:
    """Return the messages that are not the model's."""
    return [item for item in items if isinstance(item.view, Message) and item.view.role != "assistant"]


def _results(items: Sequence[ResponseItem]) -> list[ResponseItem]:
    """Return the items that hold images of this tool."""
    views = [item.view for item in items]
    calls = {view.call_id for view in views if isinstance(view, FunctionCall) and view.name.startswith(NAME)}
    return [
        item
        for item, view in zip(items, views, strict=True)
        if isinstance(view, ImageGenerationCall) or (isinstance(view, FunctionCallOutput) and view.call_id in calls)
    ]


def _image_of(item: ResponseItem) -> bytes | None:
    """Return the last image of an item."""
    view = item.view
    if isinstance(view, ImageGenerationCall):
        return _of_base64(view.result or "")
    if isinstance(view, Message):
        parts = view.content
    elif isinstance(view, FunctionCallOutput | CustomToolCallOutput):
        parts = view.output
    else:
        return None
    images = [part.image_url for part in parts if isinstance(part, InputImage)]
    return next(filter(None, map(_of_data_url, reversed(images))), None)


def _of_data_url(url: str | None) -> bytes | None:
    head, _, data = (url or "").partition(",")
    return _of_base64(data) if head[:5].lower() == "data:" and head.endswith(";base64") else None


def _of_base64(text: str) -> bytes | None:
    """Return what base64 stands for; None if that is nothing."""
    try:
        return b64decode(text) or None
    except (binascii.Error, ValueError):
        return None


def _result(made: Made, request: ImageRequest) -> JsonObject:
    """Return the item's final fields."""
    picture = made.picture
    return {
        "result": b64encode(picture.data).decode(),
        "size": picture.size,
        "quality": made.quality or request.quality or "auto",
        "background": made.background or request.background or "auto",
        "output_format": picture.format,
        **({"revised_prompt": made.revised_prompt} if made.revised_prompt else {}),
    }


def _error(message: str, code: str | None) -> JsonObject:
    return {"type": "image_generation_error", "code": code, "message": message, "param": None}


def _told(picture: Picture) -> OutputBody:
    """Return what the model reads of an image: that it is there, and the image."""
    url = f"data:{picture.mime};base64,{b64encode(picture.data).decode()}"
    return InputText(DONE.format(picture.size, picture.format)), InputImage(image_url=url)


def _replayed_output(item: JsonObject) -> OutputBody:
    if item.get("status") == "failed":
        return "This call failed."
    text = item.get("result")
    data = _of_base64(text) if isinstance(text, str) else None
    header = read_header(data) if data else None
    if header is None:
        return LOST
    shown = InputText(DONE.format(f"{header.width}x{header.height}", header.mime.removeprefix("image/")))
    return shown, InputImage(image_url=f"data:{header.mime};base64,{text}")
