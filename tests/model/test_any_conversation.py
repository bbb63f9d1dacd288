"""Whatever a conversation holds, the Messages API takes the request; and one that grew is sent as one that is read
anew."""

import json
import random
from typing import Any

from ferrule.model.stream import ToolChoice
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    ItemView,
    Message,
    Origin,
    ResponseItem,
    make_item,
    read_item,
)
from ferrule.protocol.settings import ModelSettings
from ferrule.testing.messages_rules import complaints
from tests.model.support import Replay, request, user, wire_model

PNG = "data:image/png;base64,aGk="
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
SIGNED = json.dumps(THOUGHT | {"message_fields": {"signature": "c2ln"}})
HIDDEN = '{"type":"reasoning","summary":[],"message_fields":{"type":"redacted_thinking","data":"x"}}'
SEARCH = '{"type":"message_block","message_fields":{"type":"server_tool_use","id":"s","name":"w","input":{}}}'
OUTPUTS: tuple[Any, ...] = ("ok", "", " ", (InputText("x"), InputImage(image_url=PNG)), (InputText(" "),))


def conversation(chance: random.Random) -> list[ResponseItem]:
    """Turns of any shape: answers that broke off, came from elsewhere or only think, results that are missing."""
    items: list[ResponseItem] = []
    for turn in range(chance.randrange(1, 6)):
        if chance.random() < 0.8:
            items.append(user(chance.choice(["go", " ", "x\n"])))
        response, calls = len(items) + 1, []

        def made(view: ItemView, response: int = response) -> ResponseItem:
            item = make_item(view)
            maker = chance.choice([":Test@test", ":Test@test", "other:other@other"])
            return ResponseItem(item.raw, item.view, Origin(maker, "claude", response))

        for number in range(chance.randrange(5)):
            kind = chance.randrange(7)
            if kind < 3:
                items.append(made(read_item((SIGNED, HIDDEN, SEARCH)[kind]).view))
            elif kind == 3:
                status = chance.choice(["completed", "incomplete"])
                items.append(made(Message(role="assistant", content=chance.choice(["a", "", " "]), status=status)))
            elif kind == 4:
                items.append(make_item(Message(role="assistant", content="Par", status="incomplete")))
            else:
                calls.append(chance.choice(["c{}_{}", "a.b:{}.{}"]).format(turn, number))
                arguments = chance.choice(["{}", '{"a":1}', "{bad"])
                items.append(made(FunctionCall(call_id=calls[-1], name="shell", arguments=arguments)))
        chance.shuffle(calls)
        for call_id in calls:
            if chance.random() < 0.9:
                output, failed = chance.choice(OUTPUTS), chance.random() < 0.4
                items.append(make_item(FunctionCallOutput(call_id=call_id, output=output, failed=failed)))
            if chance.random() < 0.1:
                items.append(user("meanwhile"))
    return items


def test_the_api_takes_what_is_sent_of_any_conversation() -> None:
    for seed in range(150):
        chance = random.Random(seed)
        items = conversation(chance)
        choices: tuple[ToolChoice, ...] = ("auto", "auto", "required", "none")
        settings = ModelSettings(reasoning_effort=chance.choice([None, "low", "high"]), temperature=0.5)
        fields: dict[str, Any] = {"tool_choice": chance.choice(choices), "settings": settings}
        fields["model"] = chance.choice(["claude-opus-4-6", "claude-opus-4-1"])
        growing, lineage = wire_model("messages", Replay([]), "anthropic"), object()
        sent = b""
        for end in sorted({chance.randrange(1, len(items) + 1) for _ in range(3)} | {len(items)} if items else ()):
            sent = growing.body(request(*items[:end], lineage=lineage, **fields))
            wrong = list(complaints(json.loads(sent), {"anthropic-version": "x"}))
            assert not wrong, (seed, end, wrong)
        assert not items or wire_model("messages", Replay([]), "anthropic").body(request(*items, **fields)) == sent, (
            seed
        )
