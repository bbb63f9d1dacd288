"""The items of a conversation in two forms: as the client sends and sees them, and as the upstream model saw them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import get_args

import msgspec

from ferrule.history.compaction import summary_message
from ferrule.history.pairs import answered_id, called_id
from ferrule.hosted.records import PREFIX
from ferrule.protocol.items import (
    Compaction,
    ItemView,
    McpApprovalRequest,
    Origin,
    Reasoning,
    ResponseItem,
    UnknownItem,
    kind_of,
    read_item,
)
from ferrule.protocol.json_text import JsonObject
from ferrule.responses.errors import INVALID, ApiError
from ferrule.responses.held import held_in
from ferrule.responses.ledger import new_id
from ferrule.responses.native_tools import NATIVE_TOOLS, NativeTool
from ferrule.responses.request import ConfigurationUpdate, unfit
from ferrule.responses.seals import Opener

Form = Mapping[str, str]
"""Names of the functions that stand for native tools, by the tools' types."""

_decode_view = msgspec.json.Decoder(ItemView)
_KNOWN = frozenset(str(kind.__struct_config__.tag) for kind in get_args(ItemView)) - {"unknown"}
_WITH_STATUS = frozenset(kind for kind in _KNOWN if kind.endswith(("_call", "_output")))
"""Types of items that say how they ended; a client may leave that out, a list of items has it."""


class _Entry(msgspec.Struct, array_like=True):
    raw: msgspec.Raw
    origin: Origin | None = None


def encode_items(items: Iterable[ResponseItem]) -> bytes:
    """Return items for storage, with their origins."""
    return msgspec.json.encode([_Entry(msgspec.Raw(item.raw), item.origin) for item in items])


def decode_items(data: bytes) -> tuple[ResponseItem, ...]:
    """Return stored items."""
    return tuple(read_item(entry.raw, entry.origin) for entry in msgspec.json.decode(data, type=list[_Entry]))


def read_input(given: str | Sequence[msgspec.Raw] | None, field: str = "input") -> tuple[JsonObject, ...]:
    """Return the input as items, each with an id. Raises `ApiError` that names the item of `field` which is wrong."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (whole_message({"role": "user", "content": given}),)
    seals = Opener()
    return tuple(_read(raw, f"{field}[{index}]", seals) for index, raw in enumerate(given))


def _read(raw: msgspec.Raw, param: str, seals: Opener) -> JsonObject:
    item = msgspec.json.decode(raw)
    if not isinstance(item, dict):
        raise ApiError(f"{param}: an item is an object", param=param)
    if "type" not in item and "role" in item:
        item = {"type": "message", **item}
    kind = item.get("type")
    if not isinstance(kind, str) or not kind:
        raise ApiError(f"{param}.type: an item needs a type", param=f"{param}.type")
    if kind.startswith(PREFIX):
        raise ApiError(f"{param}.type: items of the type {kind!r} are this server's own", param=f"{param}.type")
    if item.get("id") in (None, "") and kind != "item_reference":
        item = {**item, "id": new_id(kind)}
    _check(item, kind, param, seals)
    if kind in _WITH_STATUS and item.get("status") is None:
        item = {**item, "status": "completed"}
    return whole_message(item) if kind == "message" else item


def whole_message(message: JsonObject) -> JsonObject:
    """Return a message with all its fields and its content in parts, as the API shows it; null counts as absent."""
    given = {name: value for name, value in message.items() if value is not None}
    content = given.get("content")
    if isinstance(content, str):
        said: JsonObject = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
        content = [said if message.get("role") == "assistant" else {"type": "input_text", "text": content}]
    return {"id": new_id("message"), "type": "message", "status": "completed", **given, "content": content}


def _check(item: JsonObject, kind: str, param: str, seals: Opener) -> None:
    """Refuse an item of a known type with wrong fields; unknown types and unknown parts are kept."""
    if not isinstance(item.get("id", ""), str):
        raise ApiError(f"{param}.id: an id is a string", code="invalid_value", param=f"{param}.id")
    encoded = msgspec.json.encode(item)
    view = read_item(encoded).view
    try:
        if isinstance(view, UnknownItem) and view.original_type in _KNOWN:
            _decode_view.decode(encoded)
        elif kind == "configuration_update":
            msgspec.convert(item, ConfigurationUpdate)
    except msgspec.ValidationError as error:
        raise unfit(error, param) from error
    if isinstance(view, Compaction):
        seals.text(view.encrypted_content, f"{param}.encrypted_content")
    if isinstance(view, Reasoning):
        seals.thinking(view.encrypted_content or "", f"{param}.encrypted_content")
    if kind == "computer_call_output" and not isinstance(item.get("output"), dict):
        raise ApiError(f"{param}.output: a screenshot is an object", code="invalid_value", param=f"{param}.output")
    if kind == "apply_patch_call_output" and item.get("status") not in ("completed", "failed", None):
        text = f"{param}.status: {item['status']!r} is neither completed nor failed"
        raise ApiError(text, code="invalid_value", param=f"{param}.status")
    _check_parts(item, param)


_SOURCES = {
    "input_image": ("image_url", "file_id"),
    "input_file": ("file_data", "file_url", "file_id"),
    "computer_screenshot": ("image_url", "file_id"),
}
"""Parts that have to name what they hold, by one of these fields."""


def _check_parts(item: JsonObject, param: str) -> None:
    for field in ("content", "output"):
        parts = item.get(field)
        for at, part in enumerate(parts) if isinstance(parts, list) else ((None, parts),):
            sources = _SOURCES.get(str(part.get("type")), ()) if isinstance(part, dict) else ()
            if isinstance(part, dict) and sources and not any(part.get(source) for source in sources):
                where = f"{param}.{field}" if at is None else f"{param}.{field}[{at}]"
                text = f"{where}: a part of this type has one of {', '.join(sources)}"
                raise ApiError(text, code="missing_required_parameter", param=where)


def to_upstream(
    item: JsonObject, forms: Form, knows: Callable[[str], bool], seals: Opener, maker: str = ""
) -> ResponseItem:
    """Return a client's item as the upstream model knows it. `knows` tells which tool types it takes as they are;
    `maker` is the model, as `maker_of` names it. Raises `ApiError` for a seal that cannot be opened."""
    kind = str(item.get("type"))
    native = _native_of(item, kind)
    if native is not None and not knows(native.kind):
        if kind == native.call:
            return native.as_function_call(item, forms.get(native.kind, native.name))
        return native.as_function_output(item)
    content = str(item.get("encrypted_content") or "")
    if kind == "compaction" and (summary := seals.text(content)) is not None:
        return summary_message(summary)
    if kind == "reasoning" and (thinking := seals.thinking(content, maker=maker)) is not None:
        item = {name: value for name, value in item.items() if name != "encrypted_content"} | thinking
    return read_item(msgspec.json.encode(item))


def _native_of(item: JsonObject, kind: str) -> NativeTool | None:
    """Return the tool of a native item. The two screens share their items; one has `actions`."""
    alike = [native for native in NATIVE_TOOLS if kind in (native.call, native.output)]
    if kind == "computer_call" and "actions" not in item and item.get("action"):
        alike.reverse()
    return alike[0] if alike else None


_MAY_WAIT = (McpApprovalRequest, UnknownItem)


def check_pairs(
    before: Sequence[ResponseItem], new: Sequence[tuple[int, ResponseItem]], given: Sequence[JsonObject]
) -> None:
    """Check that each output answers a call, and that each call has its output. `new` items come with their place in
    the input, `given` is the input as the client sent it. Raises `ApiError`."""
    calls = {called_id(item.view): item for item in before}
    answered = {answered_id(item.view) for item in before}
    named = {called_id(item.view): given[index].get("type") for index, item in new}
    for index, item in new:
        if (answers := answered_id(item.view)) is not None:
            if isinstance(item.view, UnknownItem):
                pass  # nobody knows what it answers
            elif answers not in calls:
                raise _unpaired(_place(index, given), f"no call {answers!r} precedes this {given[index]['type']}")
            elif answers in answered:
                raise _unpaired(_place(index, given), f"the call {answers!r} has an output already")
            answered.add(answers)
        calls[called_id(item.view)] = item
    answered |= {one.call for one in held_in([*before, *(item for _, item in new)]).values()}
    for call_id, item in calls.items():
        if call_id is not None and call_id not in answered and not isinstance(item.view, _MAY_WAIT):
            raise _unpaired("input", f"the {named.get(call_id) or kind_of(item.view)} {call_id!r} has no output")


def _place(index: int, given: Sequence[JsonObject]) -> str:
    """Return what an unpaired output's error names: of a screen the whole input, as the API does."""
    return "input" if given[index].get("type") == "computer_call_output" else f"input[{index}]"


def _unpaired(param: str, text: str) -> ApiError:
    return ApiError(f"{param}: {text}", kind=INVALID, code="invalid_value", param=param)
