"""Conversations, by the SDK."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from ferrule.testing import ScriptedModel
from tests.gateway.served import Served


@pytest.fixture(scope="module")
def client(gateway: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.url, api_key="unused", max_retries=0) as made:
        yield made


def test_a_conversation_is_made_changed_and_deleted(client: OpenAI, gateway: Served) -> None:
    made = client.conversations.create(metadata={"topic": "maps"})
    assert made.metadata == {"topic": "maps"}
    assert client.conversations.update(made.id, metadata={"topic": "trees"}).metadata == {"topic": "trees"}
    assert client.conversations.retrieve(made.id).metadata == {"topic": "trees"}
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)
    assert gateway.ask("POST", "/conversations").json["metadata"] == {}


def test_its_items_are_added_listed_and_deleted(client: OpenAI) -> None:
    texts = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]} for text in "abc"]
    made = client.conversations.create(items=texts[:1])  # type: ignore[arg-type]
    added = client.conversations.items.create(made.id, items=texts[1:])  # type: ignore[arg-type]
    assert len(added.data) == 2 and added.first_id == added.data[0].id
    ids = [str(item.id) for item in client.conversations.items.list(made.id, order="asc", limit=2)]
    assert ids[1:] == [item.id for item in added.data] and len(ids) == 3
    assert client.conversations.items.retrieve(ids[0], conversation_id=made.id).id == ids[0]
    assert client.conversations.items.delete(ids[0], conversation_id=made.id).id == made.id
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(ids[0], conversation_id=made.id)


def test_an_item_can_be_named_that_is_stored(client: OpenAI, gateway: Served) -> None:
    message = client.responses.create(model="m", input="hi").output[0]
    named = {"type": "item_reference", "id": message.id}
    made = gateway.ask("POST", "/conversations", {"items": [named]}).json["id"]
    (item,) = gateway.ask("GET", f"/conversations/{made}/items").json["data"]
    assert (item["type"], item["id"]) == ("message", message.id)
    for wrong in ({"type": "item_reference", "id": "msg_none"}, {"type": "item_reference"}):
        answer = gateway.ask("POST", f"/conversations/{made}/items", {"items": [named, wrong]})
        assert (answer.status, answer.error["param"]) == (404, "items[1].id")


def test_responses_go_on_in_it(client: OpenAI, model: ScriptedModel) -> None:
    made = client.conversations.create()
    client.responses.create(model="m", input="I like maps.", conversation=made.id)
    client.responses.create(model="m", input="What do I like?", conversation=made.id)
    assert "I like maps." in model.requests[-1].user_text
    assert len(client.conversations.items.list(made.id).data) == 4


def test_what_does_not_fit(gateway: Served) -> None:
    made = gateway.ask("POST", "/conversations", {}).json["id"]
    too_many = [{"type": "message", "role": "user", "content": "x"}] * 21
    wrong: list[tuple[str, dict[str, Any], str | None]] = [
        ("/conversations", {"metadata": {"a": 1}}, "metadata"),
        ("/conversations", {"metadata": {"a": "x" * 600}}, "metadata.a"),
        ("/conversations", {"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
        ("/conversations", {"items": [{}]}, "items[0].type"),
        (f"/conversations/{made}", {"metadata": {"a": "x" * 600}}, "metadata.a"),
        (f"/conversations/{made}", {}, None),
        (
            f"/conversations/{made}/items",
            {"items": too_many},
            "items",
        ),
    ]
    for path, body, param in wrong:
        answer = gateway.ask("POST", path, body)
        assert answer.status == 400, body
        assert param is None or answer.error["param"].startswith(param), answer.error
    for method, path in (
        ("GET", ""), ("POST", ""), ("DELETE", ""), ("GET", "/items"), ("POST", "/items"), ("GET", "/items/msg_1"),
    ):  # fmt: skip
        given: dict[str, Any] | None = {"metadata": {}, "items": []} if method == "POST" else None
        answer = gateway.ask(method, f"/conversations/conv_none{path}", given)
        assert answer.status == 404 and "no conversation 'conv_none'" in answer.error["message"], (method, path)
    assert gateway.ask("DELETE", f"/conversations/{made}/items/msg_none").status == 404
