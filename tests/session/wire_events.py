"""Events of both wires, and what a session makes of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import ferrule.builtin.apply_patch  # noqa: F401 - pytest compiles imports, which CPython 3.11 fails at in two threads
from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel
from ferrule.testing.steps import Raw, StepLike
from tests.session.conversations import Place, assistants, call, chunks, function_call, items, said, sent

WIRES: tuple[Wire, ...] = ("chat", "responses")
WORDS: Mapping[Wire, Raw] = {"chat": chunks({"content": "Done."}), "responses": items(said("Done."))}
CALL: Mapping[Wire, Raw] = {"chat": chunks(call()), "responses": items(function_call())}
ONE = [("look", "{}")]
Event = dict[str, Any]


def sse(*payloads: Event | str) -> bytes:
    """Events; a string is a block as it stands."""
    blocks = [each if isinstance(each, str) else f"data: {json.dumps(each)}" for each in payloads]
    return "".join(f"{block}\n\n" for block in blocks).encode()


def chunk(delta: Event | None, finish: str | None = None, index: int = 0, **more: Any) -> Event:
    return {"id": "c1", "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}


def piece(arguments: str | None = None, name: str | None = None, **fields: Any) -> Event:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"tool_calls": [{"index": 0, "function": function, **fields}]}


def created() -> Event:
    return {"type": "response.created", "response": {"id": "r1"}}


def added(at: int, item: Event) -> Event:
    return {"type": "response.output_item.added", "output_index": at, "item": item}


def done(at: int, item: Event) -> Event:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


def delta(kind: str, text: str, item_id: str = "fc_1", at: int = 0) -> Event:
    return {"type": f"response.{kind}.delta", "item_id": item_id, "output_index": at, "delta": text}


def ended(kind: str = "completed", **response: Any) -> Event:
    return {"type": f"response.{kind}", "response": {"id": "r1", "output": [], **response}}


Calls = list[tuple[str, str]]


def told(server: ScriptedModel, wire: Wire, number: int = -1) -> tuple[Calls, list[str]]:
    """The calls and the model's words that a request repeats. Each call has its answer, in the same order."""
    if wire == "chat":
        asked = [entry for message in assistants(server, number) for entry in message.get("tool_calls", [])]
        answers = [message["tool_call_id"] for message in sent(server, number) if message["role"] == "tool"]
        assert answers == [entry["id"] for entry in asked]
        words = [message["content"] for message in assistants(server, number) if message["content"]]
        return [(entry["function"]["name"], entry["function"]["arguments"]) for entry in asked], words
    listed = sent(server, number)
    asked = [item for item in listed if item.get("type") in ("function_call", "custom_tool_call")]
    answers = [item["call_id"] for item in listed if str(item.get("type")).endswith("_call_output")]
    assert answers == [item["call_id"] for item in asked]
    words = ["".join(part["text"] for part in item["content"]) for item in listed if item.get("role") == "assistant"]
    return [(item["name"], item.get("arguments", item.get("input", ""))) for item in asked], words


async def means(
    place: Place, wire: Wire, answers: Sequence[StepLike], calls: Calls, words: Sequence[str] = (), **options: Any
) -> ScriptedModel:
    """Play the answers, end the turn with words if one is missing, and resume: both say these calls and words."""
    ends = [WORDS[wire]] if calls else []
    with ScriptedModel([*answers, *ends, WORDS[wire]]) as server:
        await place.talk(server, wire, "go", **options)
        count = len(server.requests)
        assert count == len(answers) + len(ends)
        if calls:
            assert told(server, wire) == (calls, list(words))
        await place.talk(server, wire, "more", **options, resume=True)
        assert told(server, wire) == (calls, [*words, *(["Done."] if calls else [])])
        assert len(server.requests) == count + 1
        return server
