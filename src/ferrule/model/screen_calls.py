"""The calls of a screen in a conversation, as calls of a function: for servers that have no native form of it."""

import msgspec

from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.items import ComputerCall, ComputerCallOutput, FunctionCall, FunctionCallOutput, ItemView
from ferrule.protocol.payload import NO_SCREENSHOT

FUNCTION = "computer"
"""The name under which such calls are sent."""
KINDS = frozenset({"computer", "computer_use_preview"})
"""The types of the native tool."""
SHOWN = "The screen after the actions:"
NO_PICTURE = "(no picture was taken)"


class _Picture(msgspec.Struct):
    image_url: str | None = None
    file_id: str | None = None


def as_function(view: ItemView) -> ItemView:
    """Return a call of a screen, or its output, as those of a function; anything else as it is."""
    if isinstance(view, ComputerCall):
        arguments = msgspec.json.encode({"actions": view.every_action}).decode()
        return FunctionCall(call_id=view.call_id, name=FUNCTION, arguments=arguments)
    if isinstance(view, ComputerCallOutput):
        return FunctionCallOutput(call_id=view.call_id, output=_content(view.output))
    return view


def _content(output: msgspec.Raw) -> str | tuple[InputText, InputImage]:
    try:
        shot = msgspec.json.decode(output, type=_Picture)
    except msgspec.DecodeError:
        return NO_PICTURE
    if shot.image_url in (None, NO_SCREENSHOT) and shot.file_id is None:
        return NO_PICTURE
    return InputText(SHOWN), InputImage(image_url=shot.image_url, file_id=shot.file_id)
