"""Turn an incoming call into the history's item: declared name, unique id, readable arguments."""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from ferrule.model import freeform
from ferrule.model.names import Callee, CallIds, CallNames, KnownIds
from ferrule.model.payloads import is_object
from ferrule.model.stream import ItemAdded, ModelRequest
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import ResponseItem, read_item
from ferrule.protocol.json_text import decode, encodable

Fields = Mapping[str, object]
"""Additional fields of an item."""
NO_FIELDS: Fields = MappingProxyType({})


def random_id() -> str:
    """Return a new id."""
    return os.urandom(12).hex()


def made_reasoning(item_id: str, *, summary: str = "", content: str = "", more: Fields = NO_FIELDS) -> ResponseItem:
    """Build a reasoning item from streamed text. Servers require `summary` even if it is empty."""
    item: dict[str, object] = {"type": "reasoning", "id": item_id}
    item["summary"] = [{"type": "summary_text", "text": summary}] if summary else []
    if content:
        item["content"] = [{"type": "reasoning_text", "text": content}]
    return read_item(msgspec.json.encode(item | dict(more)))


def made_message(
    item_id: str | None, text: str, status: str, *, refusal: bool = False, more: Fields = NO_FIELDS
) -> ResponseItem:
    """Build an assistant message from streamed text."""
    part: dict[str, object] = {"type": "output_text", "text": text, "annotations": []}
    if refusal:
        part = {"type": "refusal", "refusal": text}
    item: dict[str, object] = {"type": "message", "role": "assistant", "status": status, "content": [part]}
    return read_item(msgspec.json.encode(item | ({"id": item_id} if item_id else {}) | dict(more)))


class OpenCall:
    """A call whose arguments are still arriving. `call_id` is unique, `said_id` is the server's."""

    __slots__ = ("_text", "call_id", "callee", "custom", "name", "namespace", "said_id")

    def __init__(
        self, call_id: str, said_id: str | None, name: str, namespace: str | None, callee: Callee | None, custom: bool
    ) -> None:
        self.call_id = call_id
        self.said_id = said_id
        self.name = name.strip() if callee is None else callee.name
        self.namespace = namespace if callee is None else callee.namespace
        self.callee = callee
        self.custom = custom
        self._text = freeform.TextInArguments() if self.kind == "custom_tool_call" and not custom else None

    @property
    def kind(self) -> str:
        """The kind of item for the call."""
        if self.callee is None:
            return "custom_tool_call" if self.custom else "function_call"
        return self.callee.kind

    def added(self, item_id: str) -> ItemAdded:
        """Return the event that tells of the call."""
        return ItemAdded(item_id, self.kind, self.call_id, self.name, self.namespace)

    def delta(self, fragment: str) -> str:
        """Return the input that a fragment adds: its text for a freeform tool, else the fragment itself."""
        return fragment if self._text is None else self._text.feed(fragment)


class CallReader:
    """A reader of one response's calls."""

    def __init__(
        self,
        names: CallNames,
        request: ModelRequest,
        new_id: Callable[[], str] = random_id,
        known: KnownIds | None = None,
    ) -> None:
        self._names = names
        self.new_id = new_id
        ids = known or KnownIds()
        self._ids = CallIds(lambda: ids.of(request.items), request.interrupted_calls, new_id)

    def declares(self, name: str) -> bool:
        """Return whether a tool is declared by exactly this name."""
        return self._names.declares(name)

    def may_grow(self, name: str) -> bool:
        """Return whether this may be only the first piece of a name."""
        return not self._names.declares(name) or self._names.begins_longer(name)

    def open(self, call_id: str | None, name: str, namespace: str | None, *, custom: bool) -> OpenCall:
        """Open a call."""
        return OpenCall(
            self._ids.unique(call_id), call_id, name, namespace, self._names.resolve(name, namespace), custom
        )

    def finish(
        self,
        call: OpenCall,
        body: str,
        item: ResponseItem | None = None,
        item_id: str | None = None,
        more: Fields = NO_FIELDS,
    ) -> ResponseItem:
        """Build the item of a complete call, with `more` fields. The server's `item`, if any, keeps its bytes if
        nothing had to change."""
        fields: dict[str, Any] = {"type": call.kind} if item is None else msgspec.json.decode(item.raw)
        before = dict(fields)
        if item is None and item_id:
            fields["id"] = item_id
        if fields["type"] != call.kind:
            fields.pop("id", None)  # an id's prefix states its kind, and servers check it
        fields |= {"type": call.kind, "call_id": call.call_id, "name": call.name}
        if call.namespace is not None or fields.get("namespace"):
            fields["namespace"] = call.namespace
        if call.namespace is None:
            fields.pop("namespace", None)
        fields |= {**_content(call, body), **more}
        fields = {key: value for key, value in fields.items() if key not in _OTHERS[call.kind]}
        if item is not None and fields == before:
            return item
        return read_item(msgspec.json.encode(fields))


_OTHERS = {
    "function_call": {"input"},
    "custom_tool_call": {"arguments"},
    "tool_search_call": {"input", "name", "namespace"},
}


def _content(call: OpenCall, body: str) -> dict[str, object]:
    """Return the arguments or the input, in the field and spelling of the call's kind."""
    text = encodable(body)
    if call.kind == "custom_tool_call":
        return {"input": text if call.custom else freeform.unwrap(text)}
    if call.kind == "tool_search_call":
        return {"arguments": _query(text), "execution": "client"}
    return {"arguments": text if text.strip() else "{}"}


def _query(text: str) -> object:
    try:
        return decode(text)
    except RespondToModel:
        return {"query": text}


def without_placeholder(text: str) -> str:
    """Return the arguments without a `{}` placeholder before the real ones."""
    if text.startswith("{}") and (rest := text[2:].lstrip()).startswith("{"):
        return rest
    return text


def sendable(arguments: str) -> str:
    """Return arguments that templates can parse: they fail on anything but a JSON object, on every later request
    too."""
    if is_object(arguments):
        return arguments
    try:
        value = decode(arguments)
    except RespondToModel:
        value = None
    return msgspec.json.encode(value if isinstance(value, dict) else {"arguments": encodable(arguments)}).decode()
