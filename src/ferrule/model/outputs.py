"""Tool outputs for servers that accept only text there: the text, and the images shown beside it."""

from ferrule.protocol.content import ContentPart, text_of
from ferrule.protocol.items import OutputBody

SHOWN = "What the tools above returned beside text:"
"""Introduces the images of tool outputs if outputs are text only."""


def split_output(output: OutputBody) -> tuple[str, list[ContentPart]]:
    """Split a tool output into its text and its other parts."""
    if isinstance(output, str):
        return output, []
    others: list[ContentPart] = [part for part in output if not hasattr(part, "text")]
    return text_of(output) or ("(see below)" if others else ""), others
