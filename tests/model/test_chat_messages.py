"""The messages of Chat Completions, made of a history."""

import json

from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.items import Message, make_item
from tests.model.bodies import HISTORY, PIXEL, answered, body, called, said
from tests.model.support import request, user


def test_chat_messages_of_a_history() -> None:
    sent = body("chat", request(*HISTORY))
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief.\n\nRules."},
        {"role": "user", "content": "Fix it"},
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "exec_command", "arguments": '{"cmd":"ls"}'}},
                {"id": "p1", "type": "function",
                 "function": {"name": "apply_patch", "arguments": '{"input":"*** \\"x\\"\\n"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "tool", "tool_call_id": "p1", "content": "Done!"},
        {"role": "assistant", "content": "All done."},
        {"role": "user", "content": "Thanks"},
    ]  # fmt: skip
    assert sent["stream_options"] == {"include_usage": True}


def test_chat_keeps_custom_tools_where_the_server_knows_them() -> None:
    sent = body("chat", request(*HISTORY), "openai")
    assert sent["messages"][0]["role"] == "developer"
    assert sent["messages"][2]["tool_calls"][1] == {
        "id": "p1", "type": "custom", "custom": {"name": "apply_patch", "input": '*** "x"\n'},
    }  # fmt: skip
    assert sent["tools"][-1]["type"] == "custom"
    assert sent["verbosity"] == "low"
    assert sent["reasoning_effort"] == "medium"


def test_b080_a_turn_of_calls_only_has_null_content() -> None:
    sent = body("chat", request(user("hi"), called("c1"), answered("c1")))
    assert sent["messages"][2]["content"] is None
    assert sent["messages"][2]["tool_calls"][0]["id"] == "c1"
    assert body("chat", request(user("hi"), called("c1"), answered("c1")), "mistral")["messages"][2]["content"] == ""


def test_b080_an_empty_turn_is_dropped_and_a_turn_of_calls_is_not() -> None:
    empty = make_item(Message(role="assistant", content=()))
    roles = [message["role"] for message in body("chat", request(user("a"), empty, user("b")))["messages"]]
    assert roles == ["system", "user", "user"]
    received = make_item(Message(role="assistant", content=""))
    sent = body("chat", request(user("a"), received, called("c1"), answered("c1")))["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]


def test_answers_follow_their_calls_in_order_and_nothing_stands_between() -> None:
    sent = body(
        "chat", request(user("a"), called("c1"), called("c2"), user("wait"), answered("c2", "2"), answered("c1", "1"))
    )
    roles = [(message["role"], message.get("tool_call_id")) for message in sent["messages"]]
    assert roles == [
        ("system", None),
        ("user", None),
        ("assistant", None),
        ("tool", "c1"),
        ("tool", "c2"),
        ("user", None),
    ]


def test_a_call_without_an_answer_is_answered_and_an_answer_without_a_call_is_not_sent() -> None:
    sent = body("chat", request(user("a"), called("c1"), said("hm"), answered("c9")))["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert sent[3]["content"] == "aborted"


def test_images_of_tool_outputs_follow_in_a_message_of_the_user() -> None:
    parts = (InputText("a picture"), InputImage(image_url=PIXEL, detail="original"))
    history = (user("look"), called("c1"), called("c2"), answered("c1", parts), answered("c2"))
    sent = body("chat", request(*history))["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert sent[3]["content"] == "a picture"
    assert sent[5]["content"][1] == {"type": "image_url", "image_url": {"url": PIXEL}}
    careful = body("responses", request(*history), "ollama")["input"]
    assert [item["type"] for item in careful[-3:]] == ["function_call_output", "function_call_output", "message"]
    assert careful[-3]["output"] == "a picture"
    assert careful[-1]["content"][1]["image_url"] == PIXEL
    native = body("responses", request(*history), "openai")["input"]
    assert native[-2]["output"][1]["image_url"] == PIXEL


def test_damaged_arguments_of_the_history_do_not_break_the_server() -> None:
    def sent(arguments: str) -> str:
        calls = body("chat", request(user("a"), called("c1", arguments), answered("c1")))["messages"][2]["tool_calls"]
        return str(calls[0]["function"]["arguments"])

    assert sent('{"cmd":"ls"}') == '{"cmd":"ls"}'
    assert json.loads(sent('{"cmd":"a\nb"}')) == {"cmd": "a\nb"}
    assert json.loads(sent('{"cmd":"ec')) == {"arguments": '{"cmd":"ec'}
    assert json.loads(sent("[1]")) == {"arguments": "[1]"}
