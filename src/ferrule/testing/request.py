"""A client's request, as the server recorded it."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from ferrule.testing.plain import JsonObject, as_object, as_objects, as_text, json_text

Wire = Literal["responses", "chat", "messages", "models", "unknown"]


class Output(msgspec.Struct, frozen=True):
    """One tool output in a request: the call it answers and its text as the model reads it."""

    call_id: str
    text: str


class Request(msgspec.Struct):
    """One request.

    Times are `time.monotonic_ns()`: `arrived_ns` when its last byte had been read, `finished_ns` when the last byte of
    the answer was handed to the kernel (None until then). `aborted`: the client closed the connection before that.
    `step` is the 0-based number of the script's step that answered, counted within its lane.
    """

    wire: Wire
    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: JsonObject
    arrived_ns: int
    finished_ns: int | None = None
    status: int | None = None
    aborted: bool = False
    step: int | None = None
    _outputs: tuple[Output, ...] | None = None

    @property
    def stream(self) -> bool:
        """Whether the client asked for events."""
        return self.body.get("stream") is True

    @property
    def items(self) -> list[JsonObject]:
        """The input items, or the messages on the other wires; a plain `input` string is one user message."""
        given = self.body.get("input" if self.wire == "responses" else "messages")
        return [{"role": "user", "content": given}] if isinstance(given, str) else as_objects(given)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Every tool output of the request, in order."""
        if self._outputs is None:
            self._outputs = tuple(output for item in self.items for output in call_outputs(item))
        return self._outputs

    @property
    def tool_names(self) -> list[str]:
        """The names of the offered tools; native tools by their type, those of a namespace as `namespace.name`."""
        return [name for tool in as_objects(self.body.get("tools")) for name in _tool_names(tool)]

    @property
    def user_text(self) -> str:
        """All user messages, joined by newlines."""
        said = (_without_results(item.get("content")) for item in self.items if item.get("role") == "user")
        return "\n".join(content_text(content) for content in said if content)


def _without_results(content: object) -> object:
    """Return a user message's content without the tool outputs that stand in it on the Messages wire."""
    if isinstance(content, str):
        return content
    return [part for part in as_objects(content) if part.get("type") != "tool_result"]


def content_text(content: object) -> str:
    """Return a string, or the text of content parts joined by newlines; a part without text appears as its JSON."""
    if isinstance(content, str):
        return content
    parts = as_objects(content)
    return "\n".join(text if isinstance(text := part.get("text"), str) else json_text(part) for part in parts)


def call_output(item: JsonObject) -> Output | None:
    """Return an input item or chat message as a tool output, or None if it is none."""
    if item.get("role") == "tool":
        return Output(as_text(item.get("tool_call_id")), content_text(item.get("content")))
    if not as_text(item.get("type")).endswith("_output"):
        return None
    # A local_shell_call_output has no call_id in OpenAI's types: its id is the call's.
    call_id = as_text(item.get("call_id")) or as_text(item.get("id"))
    return Output(call_id, content_text(item.get("output", item.get("tools"))))


def call_outputs(item: JsonObject) -> list[Output]:
    """Return the tool outputs in an input item or message."""
    if item.get("role") == "user":
        results = (part for part in as_objects(item.get("content")) if part.get("type") == "tool_result")
        return [Output(as_text(part.get("tool_use_id")), content_text(part.get("content"))) for part in results]
    output = call_output(item)
    return [] if output is None else [output]


def _tool_names(tool: JsonObject) -> list[str]:
    if tool.get("type") == "namespace":
        return [f"{tool.get('name')}.{name}" for inner in as_objects(tool.get("tools")) for name in _tool_names(inner)]
    name = as_object(tool.get("function")).get("name") or tool.get("name") or tool.get("type")
    return [as_text(name)]
