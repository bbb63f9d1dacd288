"""The parts of a message or a tool output. Field names are the Responses API's."""

import msgspec

from ferrule.protocol.json_text import JsonObject


class InputText(msgspec.Struct, frozen=True, tag="input_text"):
    """Text input for the model."""

    text: str


class InputImage(msgspec.Struct, frozen=True, tag="input_image", omit_defaults=True):
    """An image input: `image_url` is a URL or a `data:` URL."""

    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None


class InputFile(msgspec.Struct, frozen=True, tag="input_file", omit_defaults=True):
    """A file input."""

    file_id: str | None = None
    file_url: str | None = None
    file_data: str | None = None
    filename: str | None = None


class InputAudio(msgspec.Struct, frozen=True, tag="input_audio", omit_defaults=True):
    """An audio input, in the provider's format."""

    audio_url: str | None = None
    input_audio: msgspec.Raw = msgspec.Raw()


class OutputText(msgspec.Struct, frozen=True, tag="output_text", omit_defaults=True):
    """Text output of the model. `annotations` (citations) are kept unchanged."""

    text: str
    annotations: tuple[msgspec.Raw, ...] | None = None


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """The model's explanation of why it does not answer."""

    refusal: str


class SummaryText(msgspec.Struct, frozen=True, tag="summary_text"):
    """One paragraph of a reasoning summary."""

    text: str


class ReasoningText(msgspec.Struct, frozen=True, tag="reasoning_text"):
    """Raw reasoning, from providers that show it."""

    text: str


class PlainText(msgspec.Struct, frozen=True, tag="text"):
    """Text in the spelling of conversation objects and of Chat Completions."""

    text: str


class UnknownPart(msgspec.Struct, frozen=True, tag="unknown", omit_defaults=True):
    """A part of a kind unknown to this version. The item's raw bytes still hold it whole."""

    original_type: str = ""


InputPart = InputText | InputImage | InputFile | InputAudio
ContentPart = InputPart | OutputText | Refusal | SummaryText | ReasoningText | PlainText | UnknownPart

PART_TAGS = frozenset(
    str(part.__struct_config__.tag)
    for part in (
        InputText, InputImage, InputFile, InputAudio, OutputText, Refusal, SummaryText, ReasoningText, PlainText,
    )
)  # fmt: skip


def text_of(content: str | tuple[ContentPart, ...]) -> str:
    """Return the text of a string or of the textual parts, joined without a separator. A refusal is text, too."""
    if isinstance(content, str):
        return content
    return "".join(
        part.refusal if isinstance(part, Refusal) else part.text
        for part in content
        if isinstance(part, InputText | OutputText | SummaryText | ReasoningText | PlainText | Refusal)
    )


def cited_pages(content: str | tuple[ContentPart, ...]) -> tuple[JsonObject, ...]:
    """Return the citations of pages in a message: `url_citation` annotations of the Responses API."""
    if isinstance(content, str):
        return ()
    notes = [note for part in content if isinstance(part, OutputText) for note in part.annotations or ()]
    decoded = [msgspec.json.decode(note) for note in notes]
    return tuple(note for note in decoded if isinstance(note, dict) and note.get("type") == "url_citation")


def is_empty(content: str | tuple[ContentPart, ...]) -> bool:
    """Return whether the content has neither a character nor a part of another kind."""
    return not content if isinstance(content, str) else not any(getattr(part, "text", "x") for part in content)
