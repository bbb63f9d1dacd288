"""Assign tool call deltas to calls: by index, by id, or, if a server sends neither, by completeness."""

from collections.abc import Callable
from typing import Any

import msgspec

from ferrule.model.calls import OpenCall, without_placeholder
from ferrule.model.chat.kept import CALL_FIELDS, Fields, given, merged


class FunctionDelta(msgspec.Struct):
    """Part of a function call. Some servers put the id here, and send arguments as an object."""

    name: str | None = None
    arguments: Any = None
    id: str | None = None


class _CustomDelta(msgspec.Struct):
    name: str | None = None
    input: str | None = None


class CallDelta(msgspec.Struct):
    """One entry of `delta.tool_calls`. Some servers put the function's fields here."""

    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None
    custom: _CustomDelta | None = None
    name: str | None = None
    arguments: Any = None
    extra_content: Any = None
    provider_specific_fields: Any = None
    thought_signature: Any = None


def placed(calls: list[CallDelta] | CallDelta) -> list[CallDelta]:
    """Return the entries of one delta; each is a call of its own, even without an index."""
    if isinstance(calls, CallDelta):
        return [calls]
    if len(calls) > 1 and all(call.index is None for call in calls):
        for place, call in enumerate(calls):
            call.index = place
    return calls


BLANK_PIECES = 8
"""Pieces in which `{}` comes at most. Joining all pieces at each one would take seconds for a long patch."""


class ChatCall:
    """A call that is arriving."""

    __slots__ = ("closed", "custom", "fields", "held", "id", "item_id", "name", "opened", "parts", "place")

    def __init__(self, call_id: str | None, name: str | None, custom: bool) -> None:
        self.id = call_id
        self.name = name
        self.custom = custom
        self.parts: list[str] = []
        self.item_id = ""
        self.place = 0
        self.fields: Fields = {}
        self.opened: OpenCall | None = None
        self.closed = False
        self.held = False

    @property
    def text(self) -> str:
        """The arguments, or the input, so far."""
        return without_placeholder("".join(self.parts))

    @property
    def is_blank(self) -> bool:
        """True while the arguments are `{}`, which some servers send before the real ones."""
        return not self.custom and len(self.parts) <= BLANK_PIECES and self.text.strip() == "{}"

    @property
    def is_whole(self) -> bool:
        """True once the arguments are complete JSON; never for a custom tool, whose input cannot tell."""
        return not self.custom and bool(self.parts) and self.parts[-1].rstrip()[-1:] == "}" and _is_json(self.text)

    def keep(self, delta: CallDelta) -> None:
        """Keep extra fields of a delta that the server wants back."""
        if fields := given(delta, CALL_FIELDS):
            self.fields = merged(self.fields, fields)

    def is_repeated_by(self, text: str) -> bool:
        """Return whether `text` repeats the whole arguments, as some servers do at the end."""
        return bool(self.parts) and text[:1] == "{" and text[-1:] == "}" and self.is_whole and text == self.text


class CallDeltas:
    """The open calls of a response.

    A different id, or a new name once the JSON is complete, starts a call even under a known index; the same id and
    name on every delta do not.
    """

    def __init__(self, declares: Callable[[str], bool] = lambda name: False) -> None:
        self._declares = declares
        self._by_index: dict[int, ChatCall] = {}
        self._by_id: dict[str, ChatCall] = {}
        self._last: ChatCall | None = None

    def add(self, delta: CallDelta) -> tuple[ChatCall | None, str]:
        """Return the call of a delta and the text it adds. No call: the delta belongs to none."""
        call_id, name, text = _read(delta)
        call = self._find(delta.index, call_id)
        if call is not None and call.is_repeated_by(text):
            call.keep(delta)
            return call, ""
        if call is not None and self._grows(call, call_id, name):
            name = call.name = _joined(call.name or "", name or "")
        if call is None or _begins_anew(call, call_id, name, text, delta.index is not None):
            if not (name or call_id or text.strip()):
                return None, ""
            call = ChatCall(call_id, name, delta.custom is not None)
        call.id = call.id or call_id
        call.name = call.name or name
        if text:
            call.parts.append(text)
        call.keep(delta)
        self._last = call
        if delta.index is not None:
            self._by_index[delta.index] = call
        if call_id is not None:
            self._by_id[call_id] = call
        return call, text

    def _grows(self, call: ChatCall, call_id: str | None, name: str | None) -> bool:
        """Return whether `name` continues the name of a call that has no arguments yet."""
        if not name or not call.name or name == call.name or call.parts or call.closed:
            return False
        if call_id is not None and call_id != call.id:
            return False
        whole = _joined(call.name, name)
        return self._declares(whole) if self._declares(call.name) else not self._declares(name) or whole == name

    def _find(self, index: int | None, call_id: str | None) -> ChatCall | None:
        if index is not None:
            return self._by_index.get(index)
        return self._by_id.get(call_id or "") or self._last


def _joined(begun: str, piece: str) -> str:
    """Join a name and its next piece, which may also be the whole name so far."""
    return piece if piece.startswith(begun) else begun + piece


def _begins_anew(call: ChatCall, call_id: str | None, name: str | None, text: str, index_is_known: bool) -> bool:
    if call_id is not None and call.id is not None and call_id != call.id:
        return name is not None or call.is_whole
    if name is None or call.name is None:
        return False
    if call.is_blank and name == call.name and index_is_known:
        return False
    if name != call.name:
        return call.is_whole or not call.parts
    return text.lstrip()[:1] == "{" and call.is_whole


def _read(delta: CallDelta) -> tuple[str | None, str | None, str]:
    """Return a delta's id, name and text; empty ones count as absent."""
    if delta.custom is not None:
        return delta.id or None, delta.custom.name or None, delta.custom.input or ""
    function = delta.function or FunctionDelta(delta.name, delta.arguments)
    arguments = function.arguments
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else msgspec.json.encode(arguments).decode()
    return delta.id or function.id or None, function.name or None, arguments


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True
