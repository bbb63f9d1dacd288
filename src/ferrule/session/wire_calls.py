"""Calls as other loops hold them, dicts and the objects of an SDK, and their answers in the same form."""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec

from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.history.pairs import answered_id, called_id
from ferrule.protocol.content import InputText
from ferrule.protocol.items import CustomToolCall, FunctionCall, ItemView, Message, ResponseItem, make_item, read_item
from ferrule.protocol.json_text import JsonValue
from ferrule.tools.registry import ToolRegistry


async def answer_items(items: Iterable[object], dispatcher: Dispatcher) -> list[dict[str, JsonValue]]:
    """Run the calls among `items` and return their answers in call order; see `Toolset.run`."""
    given = [_as_dict(item) for item in items]
    views = [None if _is_chat(item) else read_item(msgspec.json.encode(item)).view for item in given]
    there = {answered_id(view) for view in views if view is not None}
    words: list[str] = []
    answers = (
        _answer_chat(item, dispatcher) if view is None else _respond(view, dispatcher, words.append)
        for item, view in zip(given, views, strict=True)
        if view is None or called_id(view) not in there
    )
    found = [answer for answer in await asyncio.gather(*answers) if answer is not None]
    said = (make_item(Message(role="developer", content=(InputText(text),))) for text in words)
    return [*found, *map(_plain, said)]


async def _answer_chat(call: Mapping[str, JsonValue], dispatcher: Dispatcher) -> dict[str, JsonValue]:
    call_id = str(call.get("id", ""))
    view: ItemView
    if call.get("function") is not None:
        function = call["function"]
        view = FunctionCall(call_id=call_id, name=str(function["name"]), arguments=function["arguments"] or "")
    else:
        custom = call["custom"]
        view = CustomToolCall(call_id=call_id, name=str(custom["name"]), input=custom["input"] or "")
    routed = dispatcher.route(view)
    assert routed is not None
    output = await dispatcher.run(routed)
    return {"role": "tool", "tool_call_id": call_id, "content": output.text}


def item_of_call(
    name: str, arguments: Mapping[str, JsonValue] | str, call_id: str | None, registry: ToolRegistry
) -> ItemView:
    """Return the item with which a model would make this call."""
    call_id = call_id or f"call_{secrets.token_hex(8)}"
    namespace = None
    if registry.handler(name) is None:
        spaces = (key for key in registry if key[0] and name in (f"{key[0]}__{key[1]}", f"{key[0]}.{key[1]}", key[1]))
        namespace, name = next(spaces, (None, name))
    if isinstance(arguments, str) and not arguments.lstrip().startswith("{"):
        return CustomToolCall(call_id=call_id, name=name, namespace=namespace, input=arguments)
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    return FunctionCall(call_id=call_id, name=name, namespace=namespace, arguments=text)


async def _respond(
    view: ItemView, dispatcher: Dispatcher, on_words: Callable[[str], object]
) -> dict[str, JsonValue] | None:
    response = await dispatcher.respond(view, on_words)
    return None if response is None else _plain(response)


def _plain(item: ResponseItem) -> dict[str, JsonValue]:
    fields = msgspec.json.decode(item.raw, type=dict[str, Any])
    fields.pop("failed", None)  # our own field, which no server takes
    return fields


def _is_chat(item: Mapping[str, JsonValue]) -> bool:
    return isinstance(item.get("function"), Mapping) or isinstance(item.get("custom"), Mapping)


def _as_dict(item: object) -> Mapping[str, JsonValue]:
    if isinstance(item, Mapping):
        return item
    dump = getattr(item, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(item).__name__} is neither a dict nor an object of the OpenAI SDK")
    return cast("Mapping[str, JsonValue]", dump(mode="json", exclude_none=True))
