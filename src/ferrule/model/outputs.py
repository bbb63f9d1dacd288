"""Outputs of tools for servers that take text only there: the text, and what is shown beside it."""

from ferrule.protocol.content import ContentPart, text_of
from ferrule.protocol.items import OutputBody

SHOWN = "What the tools above returned beside text:"
"""Introduces the images of tool outputs where outputs are text only."""


def split_output(output: OutputBody) -> tuple[str, list[ContentPart]]:
    """The text of a tool output, and its parts that are not text."""
    if isinstance(output, str):
        return output, []
    others: list[ContentPart] = [part for part in output if not hasattr(part, "text")]
    return text_of(output) or ("(see below)" if others else ""), others
