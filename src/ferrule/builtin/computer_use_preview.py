"""`computer_use_preview`: the older native form of `computer`, one action an item."""

from ferrule.builtin.computer import ComputerTool
from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.protocol.specs import ComputerUsePreview

_SIZE = ComputerSettings()


class ComputerUsePreviewTool(ComputerTool):
    """Declares the screen's size, which is the session's."""

    native = ComputerUsePreview(
        display_width=_SIZE.display_width, display_height=_SIZE.display_height, environment="browser"
    )


TOOL = ComputerUsePreviewTool
