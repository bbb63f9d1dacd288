"""Histories that grow: each request encodes what is new, and nothing of another session."""

import json
from collections.abc import Callable

import msgspec
import pytest

from ferrule.history.history import History
from ferrule.model.chat import request as chat_request
from ferrule.model.http import Endpoint, Server
from ferrule.model.profiles import load_profiles
from ferrule.model.responses import request as responses_request
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.specs import Wire
from tests.model.bodies import HISTORY, PIXEL, answered, body, called, offline, said
from tests.model.support import function, outcome, raw_server, reply, request, user, wire_model


def test_a_server_that_stores_is_sent_what_is_new() -> None:
    asked = request(*HISTORY, previous_response_id="resp_1", stored_items=9)
    sent = body("responses", asked, "openai", stores=True)
    assert sent["previous_response_id"] == "resp_1"
    assert sent["store"] is True
    assert len(sent["input"]) == 1
    unstored = body("responses", asked, "openai")
    assert "previous_response_id" not in unstored
    assert len(unstored["input"]) == len(HISTORY)


async def test_a_lost_response_is_replaced_by_the_whole_history() -> None:
    lost = b'{"error":{"code":"previous_response_not_found","message":"Previous response not found"}}'
    done = b'{"object":"response","id":"r","output":[]}'
    async with raw_server([reply("400 Bad Request", lost)], [reply("200 OK", done)]) as served:
        server = Server(Endpoint(name="T", base_url=served.base_url, params={}, headers=dict, idle_timeout_ms=1000))
        accepts = msgspec.structs.replace(load_profiles().providers["openai"], stores=True)
        model = wire_model("responses", server, accepts)
        found = await outcome(model, request(*HISTORY, previous_response_id="resp_1", stored_items=9))
    assert found.error is None
    assert [len(json.loads(sent)["input"]) for _, sent in served.requests] == [1, len(HISTORY)]


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_a_turn_encodes_only_what_is_new(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    model = offline(wire, "ollama")
    encoded: list[object] = []
    module = chat_request if wire == "chat" else responses_request
    kept: Callable[[object], bytes] = module._encode

    def count(value: object) -> bytes:
        encoded.append(value)
        return kept(value)

    monkeypatch.setattr(module, "_encode", count)
    items: list[ResponseItem] = [user("go")]
    for turn in range(30):
        items += [said(f"turn {turn}"), called(f"c{turn}"), answered(f"c{turn}", (InputText("a"), InputText("b")))]
        model.body(request(*items))
    before = len(encoded)
    items += [said("last"), called("last"), answered("last")]
    whole = model.body(request(*items))
    assert len(encoded) - before < 15
    assert whole == offline(wire, "ollama").body(request(*items))


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_a_history_that_grows_item_by_item_gives_the_same_body(wire: Wire) -> None:
    parts = (InputText("a"), InputImage(image_url=PIXEL))
    items = (
        *HISTORY,
        called("c2"),
        called("c3"),
        user("wait"),
        answered("c3", parts),
        answered("c2", parts),
        user("go"),
        user("on"),
    )
    model = offline(wire, "ollama")
    for end in range(1, len(items) + 1):
        asked = request(*items[:end])
        assert model.body(asked) == offline(wire, "ollama").body(asked)


def test_a_changed_history_is_converted_anew() -> None:
    model = offline("chat")
    model.body(request(user("a"), called("c1"), answered("c1"), user("b")))
    changed = request(user("other"), said("x"))
    assert model.body(changed) == offline("chat").body(changed)
    assert model.body(request(user("a"))) == offline("chat").body(request(user("a")))


def test_sessions_that_share_a_model_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model, alone = offline("chat"), offline("chat")
    histories = {name: [part for n in range(20) for part in (user(f"{name}{n}"), said("x"))] for name in ("a", "b")}
    for name, items in histories.items():
        model.body(request(*items, session_id=name))
    encoded: list[object] = []
    kept: Callable[[object], bytes] = chat_request._encode

    def count(value: object) -> bytes:
        encoded.append(value)
        return kept(value)

    monkeypatch.setattr(chat_request, "_encode", count)
    for name, items in histories.items():
        asked = request(*items, tools=(function(f"tool_{name}"),), session_id=name)
        before = len(encoded)
        body = model.body(asked)
        assert len(encoded) - before < 10
        assert body == alone.body(asked)


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_a_history_that_only_grew_is_not_compared_and_another_one_is(wire: Wire) -> None:
    model, history = offline(wire), History([user("one"), said("two")])

    def sent() -> str:
        return model.body(request(*history.items, lineage=history.lineage)).decode()

    for number in range(3):
        history.append(user(f"more {number}"))
        assert f"more {number}" in sent()
    history.replace([user("uno"), *history.items[1:]])
    assert '"uno"' in sent() and '"one"' not in sent()
