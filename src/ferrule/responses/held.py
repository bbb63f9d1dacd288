"""Calls that wait until the client allows them: found in a conversation, and shown to the model. Pure.

A conversation keeps such a call with a record behind it. Its output comes in a later response, and the model sees it
where the record stands.
"""

from collections.abc import Sequence

import msgspec

from ferrule.hosted.records import Answer, HeldCall, is_record, record_in
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, ResponseItem, make_item

NOT_ALLOWED = "This call was not run: the user was asked, and went on without an answer."
UNKNOWN_OUTCOME = "The user allowed this call, but its outcome is not known: it may have run. Do not repeat it unasked."
DENIED = "This call was not run: the user denied it"


Placed = tuple[int, ResponseItem]
"""An item, and the number of the client's item that it comes from."""


class Waiting(msgspec.Struct, frozen=True):
    """A call that has no output yet, and the client's answer, if there is one."""

    held: HeldCall
    answer: Answer | None = None


def held_in(items: Sequence[ResponseItem]) -> dict[str, HeldCall]:
    """Return the calls that wait or waited, by the ids of their requests."""
    found = (record_in(item, HeldCall) for item in items)
    return {held.id: held for held in found if held is not None}


def answers_in(items: Sequence[ResponseItem]) -> dict[str, Answer]:
    """Return the client's first answer to each request, by the request's id."""
    found: dict[str, Answer] = {}
    for item in items:
        if (answer := record_in(item, Answer)) is not None:
            found.setdefault(answer.request, answer)
    return found


def outputs_in(items: Sequence[ResponseItem]) -> dict[str, ResponseItem]:
    """Return the first output of each call of a function."""
    found: dict[str, ResponseItem] = {}
    for item in items:
        if isinstance(item.view, FunctionCallOutput):
            found.setdefault(item.view.call_id, item)
    return found


def waiting(items: Sequence[ResponseItem]) -> list[Waiting]:
    """Return the calls that have no output yet."""
    outputs, answers = outputs_in(items), answers_in(items)
    return [Waiting(held, answers.get(held.id)) for held in held_in(items).values() if held.call not in outputs]


def output_of(call: str, text: str) -> ResponseItem:
    """Return the output of a call."""
    return make_item(FunctionCallOutput(call_id=call, output=text))


def refused_text(answer: Answer | None) -> str:
    """Return the output of a call that is not run."""
    if answer is None:
        return NOT_ALLOWED
    return f"{DENIED}: {answer.reason}" if answer.reason else f"{DENIED}."


def once(placed: Sequence[Placed]) -> list[Placed]:
    """Return a client's items without the second form of a call: one that waited and then ran is sent back as both."""
    held = {one.call for one in held_in([item for _, item in placed]).values()}
    seen: set[str] = set()
    kept: list[Placed] = []
    for at, item in placed:
        call = item.view.call_id if isinstance(item.view, FunctionCall) else ""
        if call not in held or call not in seen:
            kept.append((at, item))
        seen.add(call)
    return kept


def shown(items: Sequence[ResponseItem]) -> tuple[ResponseItem, ...]:
    """Return a conversation as the model sees it: without records, the output of a call that waited in its place."""
    held = held_in(items)
    calls = {one.call for one in held.values()}
    outputs = outputs_in(items)
    found: list[ResponseItem] = []
    for item in items:
        record = record_in(item, HeldCall)
        if record is not None:
            found.append(outputs.get(record.call) or output_of(record.call, NOT_ALLOWED))
        elif not is_record(item) and not (isinstance(item.view, FunctionCallOutput) and item.view.call_id in calls):
            found.append(item)
    return tuple(found)
