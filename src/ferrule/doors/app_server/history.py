"""A stored thread's turns, read from its session file."""

import os
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from ferrule.doors.app_server import forms
from ferrule.doors.app_server.making import item_of_call, item_of_words
from ferrule.doors.app_server.shapes.common import TurnError
from ferrule.doors.app_server.shapes.items import ThreadItem, UserMessage
from ferrule.doors.app_server.shapes.threads import Turn, TurnStatus
from ferrule.history.compaction import is_words_of_user
from ferrule.history.pairs import answered_id, called_id
from ferrule.protocol.items import Message, ResponseItem, read_item
from ferrule.protocol.payload import output_in
from ferrule.rpc import RpcError
from ferrule.session.lines import TurnContext
from ferrule.session.salvage import LONGEST_LINE, Line, read_line

MOST_BYTES = 64 << 20
"""Bytes of a session's lines that are told of: the turns before are left out. A client cannot show more."""


class _Said(msgspec.Struct):
    """A turn as it is read. `calls` have no answer yet."""

    number: int
    id: str
    began: float
    cwd: str
    ended: float = 0.0
    status: TurnStatus = "completed"
    error: str = ""
    weight: int = 0
    items: dict[str, ThreadItem] = {}
    calls: dict[str, ResponseItem] = {}


class _Event(msgspec.Struct):
    type: str
    message: str = ""


def turns_of(path: Path) -> tuple[Turn, ...]:
    """Return the turns in a session file, the oldest first. Raises `RpcError` if it cannot be read."""
    return tuple(map(_shape, _read(path)))


def turn_number(path: Path, turn_id: str) -> int:
    """Return which turn of a session this is, from 1. Raises `RpcError` if it has none of this id."""
    for turn in _read(path):
        if turn.id == turn_id:
            return turn.number
    raise RpcError(f"the thread has no turn {turn_id!r}")


def _read(path: Path) -> Iterator[_Said]:
    turns: deque[_Said] = deque()
    weight = number = 0
    try:
        with path.open("rb") as file:
            while text := file.readline(LONGEST_LINE):
                line = read_line(text.strip())
                if line is not None and line.type == "turn_context":
                    number += 1
                    turns.append(_turn(line, number))
                elif line is not None and turns:
                    _take(turns[-1], line)
                    turns[-1].weight += len(text)
                    weight += len(text)
                while weight > MOST_BYTES and len(turns) > 1:
                    weight -= turns.popleft().weight
    except OSError as error:
        raise RpcError(f"the session file {path} cannot be read: {error.strerror}") from error
    yield from turns


def _turn(line: Line, number: int) -> _Said:
    fallback = f"turn-{number}"
    try:
        context = msgspec.json.decode(line.payload, type=TurnContext)
    except msgspec.DecodeError:
        return _Said(number, fallback, _seconds(line.timestamp), "/")
    return _Said(number, context.turn_id or fallback, _seconds(line.timestamp), context.cwd)


def _take(turn: _Said, line: Line) -> None:
    turn.ended = _seconds(line.timestamp) or turn.ended
    try:
        if line.type == "response_item":
            _add(turn, read_item(bytes(line.payload)))
        elif line.type == "event_msg":
            event = msgspec.json.decode(line.payload, type=_Event)
            if event.type == "turn_aborted":
                turn.status = "interrupted"
            elif event.type == "error":
                turn.status, turn.error = "failed", event.message
    except (msgspec.DecodeError, UnicodeDecodeError):
        return  # a line that cannot be read says nothing


def _add(turn: _Said, item: ResponseItem) -> None:
    key = getattr(item.view, "id", None) or f"{turn.id}:{len(turn.items)}"
    call_id, answered = called_id(item.view), answered_id(item.view)
    if answered is not None:
        call = turn.calls.pop(answered, None)
        if call is not None and (made := item_of_call(answered, call, output_in(item.view), turn.cwd)) is not None:
            turn.items[answered] = made
    elif call_id is not None:
        turn.calls[call_id] = item
    elif isinstance(item.view, Message) and item.view.role == "user":
        if is_words_of_user(item):
            turn.items[key] = UserMessage(id=key, content=forms.said_shape(item.view.content))
    elif (made := item_of_words(item, key)) is not None:
        turn.items[key] = made


def _shape(turn: _Said) -> Turn:
    took = max(turn.ended - turn.began, 0.0)
    return Turn(
        id=turn.id,
        root_turn_id=turn.id,
        status=turn.status,
        items=tuple(turn.items.values()),
        items_view="full",
        error=TurnError(message=turn.error, codex_error_info="other") if turn.error else None,
        started_at=int(turn.began) or None,
        completed_at=int(turn.ended) or None,
        duration_ms=int(took * 1000),
    )


def _seconds(timestamp: str) -> float:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return 0.0


def seconds_of(timestamp: str) -> int:
    """Return a time as whole seconds since 1970; 0 for what is none."""
    return int(_seconds(timestamp))


def changed_at(path: str) -> int:
    """Return when a file changed, in seconds since 1970; 0 if it is gone."""
    try:
        return int(os.stat(path).st_mtime)
    except OSError:
        return 0
