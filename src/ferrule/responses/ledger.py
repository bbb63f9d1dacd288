"""What a client is told of one response: its items under one id each, its events numbered, its object complete.

Every reader reads the same events, from any number on. Source: the stream events of the Responses API.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from secrets import token_urlsafe
from typing import Any, Literal

import msgspec

from ferrule.model.calls import random_id
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.responses.errors import ApiError
from ferrule.responses.objects import tool_usage

TERMINAL = frozenset({"completed", "failed", "incomplete", "cancelled"})
"""Statuses that never change again."""

NOISE = 32
"""Bytes to which the size of an obfuscated piece is rounded: a few words."""

STEERED = "steered"
"""Why a response is incomplete that ended before its next item."""

_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "shell_call": "sh",
    "local_shell_call": "lsh",
    "apply_patch_call": "apc",
    "computer_call": "cu",
    "code_interpreter_call": "ci",
    "compaction": "cmp",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "image_generation_call": "ig",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
}
_CUT = {"image_generation_call": "failed"}
"""How items end that are cut off, where the API has no `incomplete` for them."""
_encode = msgspec.json.encode


def new_id(kind: str) -> str:
    """Return a new id for an item of this type, whose prefix names the type."""
    return f"{_PREFIXES.get(kind, kind.removesuffix('_call') or 'item')}_{random_id()}{random_id()}"


class Ending(msgspec.Struct, frozen=True):
    """How a response ends. `reason`: why it is incomplete, or the error's code; `message`: the error in words."""

    status: Literal["completed", "incomplete", "failed", "cancelled"]
    usage: TokenUsage | None = None
    reason: str = ""
    message: str = ""


class Batch(msgspec.Struct, frozen=True):
    """Events that are there at once, and whether any come after them."""

    events: Sequence[bytes]
    is_last: bool


class Part:
    """A part of a message or of reasoning that arrives. `pieces` have been told; `fields` are those of each delta."""

    __slots__ = ("fields", "index", "kind", "logprobs", "pieces")

    def __init__(self, kind: str, index: int, item: "OpenItem") -> None:
        event, named, more = _DELTAS[kind]
        self.kind = kind
        self.index = index
        self.pieces: list[str] = []
        self.logprobs: list[JsonValue] = []
        self.fields: JsonObject = {
            "type": f"{event}.delta", "sequence_number": 0, "item_id": item.id, "output_index": item.index,
            named: index, "delta": "", **more,
        }  # fmt: skip

    @property
    def said(self) -> str:
        """What has been told of it."""
        return "".join(self.pieces)

    def value(self, text: str) -> JsonObject:
        """Return the whole part with this text."""
        if self.kind == "output_text":
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": self.logprobs}
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        return {"type": self.kind, "text": text}


_DELTAS: dict[str, tuple[str, str, JsonObject]] = {
    "output_text": ("response.output_text", "content_index", {"logprobs": []}),
    "refusal": ("response.refusal", "content_index", {}),
    "reasoning_text": ("response.reasoning_text", "content_index", {}),
    "summary_text": ("response.reasoning_summary_text", "summary_index", {}),
}
"""How the pieces of each kind of part are told: the event, the name of the part's index, further fields."""


class OpenItem:
    """An item that has been told of and is not complete."""

    __slots__ = ("begun", "id", "index", "kind", "parts", "pieces")

    def __init__(self, kind: str, item_id: str, index: int, begun: Mapping[str, JsonValue]) -> None:
        self.kind = kind
        self.begun = begun
        self.id = item_id
        self.index = index
        self.parts: dict[tuple[str, int], Part] = {}
        self.pieces: list[str] = []
        """What has been told of a call's input."""


class Ledger:
    """One response: its object as it is now, and its events.

    `not_run` names types of tools that nobody runs. With `obfuscates`, pieces carry noise: the sizes of encrypted
    packets tell little then. Methods that tell are called by the response's run alone.
    """

    def __init__(
        self,
        response: JsonObject,
        *,
        not_run: Sequence[str] = (),
        obfuscates: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.object = response
        self.id = str(response["id"])
        self.not_run = tuple(not_run)
        self.error: ApiError | None = None
        """Why the response failed, for a caller that waits for the whole of it."""
        self.is_steered = False
        self._obfuscates = obfuscates
        self._clock = clock
        self._events: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._open: dict[int, OpenItem] = {}
        self._output: list[JsonObject | None] = []
        self._ids: set[str] = set()

    @property
    def ended(self) -> bool:
        """Whether the last event has been told."""
        return self.object["status"] in TERMINAL

    @property
    def output(self) -> tuple[JsonObject, ...]:
        """The complete items, in order."""
        return tuple(item for item in self._output if item is not None)

    async def read(self, after: int = -1) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the events after a number, each with its number, until the response has ended."""
        number = after + 1
        while True:
            while number < len(self._events):
                yield number, self._events[number]
                number += 1
            if self.ended:
                return
            await self._news()

    async def batches(self, after: int = -1) -> AsyncIterator[Batch]:
        """Yield the events after a number, all that are there at once, until the response has ended."""
        number = after + 1
        while True:
            events, ended = self._events[number:], self.ended
            if events or ended:
                number += len(events)
                yield Batch(events, is_last=ended)
            if ended:
                return
            await self._news()

    def since(self, number: int) -> Sequence[bytes]:
        """Return the events from a number on, as far as they are there."""
        return self._events[number:]

    async def finished(self) -> None:
        """Wait for the end."""
        while not self.ended:
            await self._news()

    def steer(self) -> None:
        """Ask the response to end before its next item: its client has added something."""
        self.is_steered = True

    # The response

    def begin(self, *, queued: bool = False) -> None:
        """Tell that the response exists."""
        self._tell_object("response.created")
        if queued:
            self._tell_object("response.queued")

    def start(self) -> None:
        """Tell that the response runs."""
        self.object["status"] = "in_progress"
        self._tell_object("response.in_progress")

    def close(self, end: Ending) -> JsonObject:
        """Complete what is open, and return the response's last object. Nobody is told before `publish`: what is told
        as completed must be stored."""
        self._settle_items("completed" if end.status == "completed" else "incomplete")
        more: JsonObject = {} if end.usage is None else {"usage": usage_json(end.usage)}
        if end.status == "completed":
            more["completed_at"] = int(self._clock())
        if end.status == "incomplete":
            more["incomplete_details"] = {"reason": end.reason}
        if end.status == "failed":
            more["error"] = {"code": end.reason, "message": end.message}
        output = list(self.output)
        return self.object | {"status": end.status, "output": output} | tool_usage(output) | more

    def publish(self, last: JsonObject) -> None:
        """End the response with its last object. No event tells of a cancelled one: its stream just ends."""
        self.object = last
        if last["status"] == "cancelled":
            self._wake()
        else:
            self._tell_object(f"response.{last['status']}")

    def _settle_items(self, status: str) -> None:
        for item in list(self._open.values()):
            cut = status if item.kind == "message" else _CUT.get(item.kind, "incomplete")
            self.end_item(item, {**item.begun, "status": cut})

    # Items

    def add_item(self, kind: str, fields: Mapping[str, JsonValue], item_id: str | None = None) -> OpenItem:
        """Tell that an item begins, under `item_id` unless another one has it."""
        free = item_id is not None and item_id not in self._ids
        item = OpenItem(kind, item_id if item_id is not None and free else new_id(kind), len(self._output), fields)
        self._ids.add(item.id)
        self._output.append(None)
        self._open[item.index] = item
        begun = {"id": item.id, "type": kind, "status": "in_progress", **fields}
        self.tell("response.output_item.added", output_index=item.index, item=begun)
        return item

    def say(self, item: OpenItem, kind: str, number: int, text: str, logprobs: bytes = b"") -> None:
        """Tell a piece of a part, which begins with its first piece. `kind` is the part's type, `number` tells apart
        those of one type. `logprobs` is the JSON of the probabilities of the piece's tokens."""
        part = item.parts.get((kind, number))
        if part is None:
            part = item.parts[kind, number] = self._begin_part(item, kind)
        part.pieces.append(text)
        part.fields["delta"] = text
        if kind == "output_text" and (logprobs or part.logprobs):
            tokens: list[JsonValue] = msgspec.json.decode(logprobs or b"[]")
            part.logprobs += tokens
            part.fields["logprobs"] = tokens
        self._publish(part.fields)

    def say_input(self, item: OpenItem, delta: str) -> None:
        """Tell a piece of a call's arguments or of its input."""
        item.pieces.append(delta)
        self.tell_of(item, f"{_INPUTS[item.kind][0]}.delta", delta=delta)

    def end_item(self, item: OpenItem, fields: Mapping[str, JsonValue]) -> JsonObject:
        """Tell that an item is complete; `fields` are its final ones. What its pieces said stands in it."""
        del self._open[item.index]
        whole: JsonObject = {"id": item.id, "type": item.kind, "status": "completed", **fields}
        if item.kind == "message":
            whole = {"role": "assistant", **whole, "content": self._end_parts(item, fields.get("content"), "content")}
        elif item.kind == "reasoning":
            whole["summary"] = self._end_parts(item, fields.get("summary"), "summary")
            content = self._end_parts(item, fields.get("content"), "reasoning")
            whole |= {"content": content} if content else {}
        elif item.kind in _INPUTS:
            self._end_input(item, whole)
        self._output[item.index] = whole
        self.tell("response.output_item.done", output_index=item.index, item=whole)
        return whole

    def _end_input(self, item: OpenItem, whole: JsonObject) -> None:
        event, field = _INPUTS[item.kind]
        said = "".join(item.pieces)
        text = str(whole.get(field, said))
        if text.startswith(said) and text != said:
            self.say_input(item, text[len(said) :])
        whole[field] = "".join(item.pieces) or text
        named = {"name": whole.get("name")} if field == "arguments" else {}
        self.tell_of(item, f"{event}.done", **named, **{field: whole[field]})

    def _begin_part(self, item: OpenItem, kind: str) -> Part:
        alike = _ALIKE[kind]
        part = Part(kind, sum(other.kind in alike for other in item.parts.values()), item)
        if kind == "summary_text":
            self.tell_of(item, "response.reasoning_summary_part.added", summary_index=part.index, part=part.value(""))
        else:
            self.tell_of(item, "response.content_part.added", content_index=part.index, part=part.value(""))
        return part

    def _end_parts(self, item: OpenItem, given: JsonValue, field: str) -> list[JsonObject]:
        """Tell the ends of an item's parts. Return them whole: what was told, completed by the final item."""
        kinds = _KINDS[field]
        told = [part for part in item.parts.values() if part.kind in kinds]
        final = [part for part in given if isinstance(part, dict)] if isinstance(given, list) else []
        ended: list[JsonObject] = []
        for number, whole in enumerate(final):
            kind = str(whole.get("type"))
            if number >= len(told) and kind in kinds and _text_in(whole):
                self.say(item, kind, -1 - number, _text_in(whole))
                told.append(item.parts[kind, -1 - number])
        for number, part in enumerate(told):
            whole = final[number] if number < len(final) and final[number].get("type") == part.kind else {}
            text, said = _text_in(whole), part.said
            if text.startswith(said) and text != said:
                self.say(item, part.kind, _number_of(item, part), text[len(said) :])
            ended.append(self._end_part(item, part, whole))
        return ended

    def _end_part(self, item: OpenItem, part: Part, whole: JsonObject) -> JsonObject:
        event, index, more = _DELTAS[part.kind]
        said = part.said
        value = part.value(said)
        value |= {name: entry for name, entry in whole.items() if name not in ("type", "text", "refusal") and entry}
        place = {index: part.index}
        for number, annotation in enumerate(value.get("annotations") or ()):
            self.tell_of(
                item,
                "response.output_text.annotation.added",
                **place,
                annotation_index=number,
                annotation=annotation,
            )
        field = "refusal" if part.kind == "refusal" else "text"
        more = {"logprobs": value.get("logprobs", [])} if more else {}
        self.tell_of(item, f"{event}.done", **place, **{field: said}, **more)
        ending = "response.reasoning_summary_part.done" if part.kind == "summary_text" else "response.content_part.done"
        self.tell_of(item, ending, **place, part=value)
        return value

    # Events

    def tell_of(self, item: OpenItem, kind: str, **fields: Any) -> None:
        """Tell an event of an item, with its id and its index."""
        self.tell(kind, item_id=item.id, output_index=item.index, **fields)

    def _tell_object(self, kind: str) -> None:
        self.tell(kind, response=self.object)

    def tell(self, kind: str, **fields: Any) -> None:
        """Tell an event."""
        self._publish({"type": kind, "sequence_number": 0, **fields})

    def _publish(self, fields: JsonObject) -> None:
        number = len(self._events)
        fields["sequence_number"] = number
        if self._obfuscates and "delta" in fields:
            fields["obfuscation"] = noise(len(str(fields["delta"]).encode()))
        event = _encode(fields)
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for reader in waiting:
            if not reader.done():
                reader.set_result(None)

    async def _news(self) -> None:
        """Wait for an event, or for the end."""
        reader = asyncio.get_running_loop().create_future()
        self._waiting.append(reader)
        await reader


_INPUTS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}
"""How the input of a call is told: the event, the field of the item."""

_KINDS = {
    "content": frozenset({"output_text", "refusal"}),
    "summary": frozenset({"summary_text"}),
    "reasoning": frozenset({"reasoning_text"}),
}
_ALIKE = {kind: kinds for kinds in _KINDS.values() for kind in kinds}
"""Kinds of parts that are counted together."""


def _text_in(part: Mapping[str, JsonValue]) -> str:
    return str(part.get("text") or part.get("refusal") or "")


def _number_of(item: OpenItem, part: Part) -> int:
    return next(number for (_, number), other in item.parts.items() if other is part)


def noise(size: int) -> str:
    """Return random text that fills a piece of so many bytes up to a multiple of `NOISE`."""
    return token_urlsafe(NOISE)[: NOISE - size % NOISE]


def usage_json(usage: TokenUsage) -> JsonObject:
    """Return token counts as the API shows them."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_input_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_output_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
