"""Read what a client asks of the Responses API. Unknown fields are kept; known ones with wrong values are refused.

Source: the request bodies of `POST /v1/responses`, `/responses/compact` and `/responses/input_tokens`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.settings import ReasoningEffort, Verbosity
from ferrule.responses.errors import ApiError

MAX_METADATA = 16
"""Pairs of `metadata`; the API's limit, as are those of its keys and values in characters."""
MAX_METADATA_KEY = 64
MAX_METADATA_VALUE = 512

_AT = re.compile(r" - at `(?:key` in `)?\$\.?([^`]*)`$")
"""Where msgspec says that a value does not fit."""

_MISSING = re.compile(r"^Object missing required field `(\w+)`")
Positive = Annotated[int, msgspec.Meta(ge=1)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
T = TypeVar("T")


class Reasoning(msgspec.Struct, frozen=True):
    """How much the model is to think, and what it tells of that."""

    effort: ReasoningEffort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None


class PlainFormat(msgspec.Struct, frozen=True, tag="text"):
    """The answer is text."""


class JsonObjectFormat(msgspec.Struct, frozen=True, tag="json_object"):
    """The answer is a JSON object."""


class JsonSchemaFormat(msgspec.Struct, frozen=True, tag="json_schema"):
    """The answer is JSON by a schema."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    schema: dict[str, JsonValue]
    description: str | None = None
    strict: bool | None = None


class Text(msgspec.Struct, frozen=True):
    """The form of the answer."""

    format: PlainFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    verbosity: Verbosity | None = None


class Compacting(msgspec.Struct, frozen=True, tag="compaction"):
    """The conversation is summarised from this many tokens on."""

    compact_threshold: Positive | None = None


class ConversationId(msgspec.Struct, frozen=True):
    """A conversation by its id."""

    id: str


class StoredPrompt(msgspec.Struct, frozen=True):
    """A prompt that the server keeps, and what to put into it."""

    id: str
    version: str | None = None
    variables: dict[str, JsonValue] | None = None


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a request that are acted on. Values are checked; what is null counts as absent."""

    model: str | None = None
    input: str | tuple[msgspec.Raw, ...] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationId | None = None
    tools: tuple[dict[str, JsonValue], ...] | None = None
    tool_choice: str | dict[str, JsonValue] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Positive | None = None
    max_output_tokens: Positive | None = None
    include: tuple[str, ...] | None = None
    generate: bool | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: tuple[Compacting, ...] | None = None
    text: Text | None = None
    reasoning: Reasoning | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    metadata: dict[str, str] | None = None
    prompt: StoredPrompt | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    user: str | None = None


class ConfigurationUpdate(msgspec.Struct, frozen=True):
    """Settings that are in force from an item on."""

    reasoning: Reasoning | None = None
    text: Text | None = None


class _StreamOptions(msgspec.Struct):
    include_obfuscation: bool | None = None


class _BackgroundOptions(msgspec.Struct):
    completion_window: Literal["soonest", "2h", "8h"] | None = None
    continuation_id: str | None = None


class _Echoed(msgspec.Struct):
    """Fields that are echoed, or have no meaning here, and have a type nevertheless."""

    stream_options: _StreamOptions | None = None
    background_options: _BackgroundOptions | None = None
    prompt_cache_options: JsonObject | None = None
    prompt_cache_retention: str | None = None
    moderation: JsonObject | None = None
    image: JsonObject | None = None


_ECHOED = frozenset(_Echoed.__struct_fields__)


class ResponseRequest(msgspec.Struct, frozen=True):
    """A request: the fields that are acted on, and the whole body as `given`."""

    known: Known
    given: Mapping[str, JsonValue]

    @property
    def store(self) -> bool:
        """Whether the response is kept: yes, unless the client says no."""
        return self.known.store is not False

    @property
    def background(self) -> bool:
        """Whether the response goes on when the client leaves."""
        return self.known.background is True

    @property
    def obfuscates(self) -> bool:
        """Whether the pieces of a stream carry noise, which hides their sizes: if the client asks for it."""
        options = self.given.get("stream_options")
        return isinstance(options, dict) and options.get("include_obfuscation") is True

    @property
    def conversation(self) -> str | None:
        """The id of the conversation that the response continues."""
        given = self.known.conversation
        return given.id if isinstance(given, ConversationId) else given


def read_request(body: bytes) -> ResponseRequest:
    """Read the body of `POST /responses`. Raises `ApiError` that names the wrong field."""
    request = ResponseRequest(read(body, Known), read(body, dict[str, Any]))
    known = request.known
    if known.previous_response_id is not None and request.conversation is not None:
        raise ApiError("Give previous_response_id or conversation, not both.", param="conversation")
    if request.background and not request.store:
        raise ApiError("A background response must be stored: leave out store, or set it to true.", param="store")
    if known.tool_choice is not None and isinstance(known.tool_choice, str):
        _one_of(known.tool_choice, ("none", "auto", "required"), "tool_choice")
    check_metadata(known.metadata)
    if not _ECHOED.isdisjoint(request.given):
        _check_echoed(request)
    return request


def _check_echoed(request: ResponseRequest) -> None:
    try:
        echoed = msgspec.convert(request.given, _Echoed)
    except msgspec.ValidationError as error:
        raise unfit(error) from error
    window = echoed.background_options and echoed.background_options.completion_window
    if window in ("2h", "8h") and (not request.background or request.known.stream):
        param = "background_options.completion_window"
        raise ApiError(f"{param}: {window} needs background, and no stream", code="invalid_value", param=param)


def read(body: bytes, kind: type[T]) -> T:
    """Decode a JSON body. Raises `ApiError` that names the field which does not fit."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise unfit(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(f"The body is not JSON: {error}", code="invalid_json") from error


def unfit(error: msgspec.ValidationError, prefix: str = "") -> ApiError:
    """Return the error for a value that does not fit; `prefix` is where the value stands in the request."""
    text = str(error)
    at = _AT.search(text)
    within = at[1].partition("[...]")[0] if at else ""
    if missing := _MISSING.search(text):
        within = f"{within}.{missing[1]}" if within else missing[1]
    param = prefix + ("." if prefix and within and not within.startswith("[") else "") + within
    said = text[: at.start()] if at else text
    return ApiError(f"{param or 'The body'}: {said[:1].lower()}{said[1:]}", code="invalid_value", param=param or None)


def _one_of(value: str, known: tuple[str, ...], param: str) -> None:
    if value not in known:
        raise ApiError(f"{param}: {value!r} is none of {', '.join(known)}", code="invalid_value", param=param)


def check_metadata(metadata: Mapping[str, str] | None) -> None:
    """Check the limits of metadata. Raises `ApiError`."""
    if metadata is None:
        return
    if len(metadata) > MAX_METADATA:
        raise ApiError(f"metadata: at most {MAX_METADATA} pairs, not {len(metadata)}", param="metadata")
    for key, value in metadata.items():
        if len(key) > MAX_METADATA_KEY or len(value) > MAX_METADATA_VALUE:
            raise ApiError(
                f"metadata: a key has at most {MAX_METADATA_KEY} characters, a value {MAX_METADATA_VALUE}",
                param=f"metadata.{key[:MAX_METADATA_KEY]}",
            )
