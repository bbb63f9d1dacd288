"""The Messages wire: what is sent, block by block."""

import json
from typing import Any

import msgspec
import pytest

from ferrule.model.messages.request import BEFORE, GO_ON
from ferrule.model.provider import choose_model, open_model
from ferrule.model.stream import ForcedTool, ItemDone, LeftOut, OutputFormat, ToolChoice
from ferrule.protocol.content import InputAudio, InputFile, InputImage, InputText
from ferrule.protocol.errors import UsageError
from ferrule.protocol.items import (
    Message,
    Origin,
    Reasoning,
    ResponseItem,
    ShellAction,
    ShellCall,
    make_item,
    read_item,
)
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.settings import ModelSettings, ProviderSettings
from ferrule.protocol.specs import AllowedDomains, ResponsesApiTool, UserLocation, WebSearch
from ferrule.testing import Raw, Request, ScriptedModel, http_error
from tests.model.claude import (
    END,
    PNG,
    START,
    Json,
    ask,
    asked_for,
    contents,
    heard,
    made,
    result,
    sent,
    stop,
    text,
    thought,
)
from tests.model.support import Replay, function, outcome, raw_server, request, sse, user, wire_model


def test_results_stand_first_in_the_order_of_the_calls() -> None:
    items = [user("go"), asked_for("a"), asked_for("b"), user("wait"), result("b", "2"), result("a", "1"), user("on")]
    assert contents(sent(ask(*items)))[2] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        {"type": "tool_result", "tool_use_id": "b", "content": "2"},
        {"type": "text", "text": "wait"},
        {"type": "text", "text": "on"},
    ]


def test_a_failure_is_marked_unless_it_shows_an_image() -> None:
    picture = (InputText("no"), InputImage(image_url=PNG))
    items = [
        asked_for("a"),
        asked_for("b"),
        asked_for("c"),
        result("a", failed=True),
        result("b", picture, failed=True),
    ]
    results = contents(sent(ask(user("go"), *items)))[2]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    assert [one.get("is_error") for one in results] == [True, None, True]  # nobody has answered the third
    assert results[1]["content"] == [{"type": "text", "text": "no"}, image]


def test_a_screen_is_a_function_here() -> None:
    screen = read_item('{"type":"computer_call","call_id":"a","actions":[{"type":"screenshot"}]}')
    shot = {"type": "computer_screenshot", "image_url": PNG}
    output = read_item(json.dumps({"type": "computer_call_output", "call_id": "a", "output": shot}))
    said, answered = contents(sent(ask(user("go"), screen, output)))[1:]
    assert said[0]["name"] == "computer" and said[0]["input"]["actions"] == [{"type": "screenshot"}]
    assert [one["type"] for one in answered[0]["content"]] == ["text", "image"]


def test_ids_are_made_to_fit_alike_in_call_and_result() -> None:
    items = [
        user("go"),
        asked_for("functions.shell:0"),
        asked_for("toolu_1"),
        result("functions.shell:0"),
        result("toolu_1"),
    ]
    said, answered = contents(sent(ask(*items)))[1:]
    assert [one["id"] for one in said] == [one["tool_use_id"] for one in answered]
    assert said[0]["id"].startswith("call_") and said[1]["id"] == "toolu_1"


def test_content_that_the_api_takes_and_content_that_it_does_not() -> None:
    parts = (
        InputImage(image_url="https://x/y.png"), InputImage(image_url="data:image/tiff;base64,aGk="),
        InputFile(file_data="data:application/pdf;base64,aGk=", filename="a.pdf"),
        InputFile(file_data="data:text/plain;base64,aGk="), InputFile(file_id="file_1"),
        InputAudio(input_audio=msgspec.Raw(b'{"data":""}')), InputText(" "),
    )  # fmt: skip
    picture, tiff, pdf, plain, stored, sound = contents(sent(ask(make_item(Message(role="user", content=parts)))))[0]
    assert picture["source"] == {"type": "url", "url": "https://x/y.png"}
    assert "takes no image/tiff" in tiff["text"] and "sound" in sound["text"]
    assert pdf["title"] == "a.pdf" and pdf["source"]["media_type"] == "application/pdf"
    assert plain["source"] == {"type": "text", "media_type": "text/plain", "data": "hi"}
    assert stored["source"] == {"type": "file", "file_id": "file_1"}


def test_an_answer_that_broke_off_is_not_sent_back() -> None:
    words = made(Message(role="assistant", content="Half"), 1)
    again = [thought(response=2), made(Message(role="assistant", content="Whole"), 2)]
    assert contents(sent(ask(user("go"), thought(), words))) == [[{"type": "text", "text": "go"}]]
    later = contents(sent(ask(user("go"), thought(), words, *again, user("more"))))
    assert [one["type"] for one in later[1]] == ["thinking", "text"] and later[1][1]["text"] == "Whole"
    partial = make_item(Message(role="assistant", content="Par", status="incomplete"))
    assert len(sent(ask(user("go"), partial, user("more")))["messages"]) == 2


def test_a_conversation_begins_and_ends_with_the_user() -> None:
    said = make_item(Message(role="assistant", content="Hi"))
    assert contents(sent(ask(said)))[::2] == [[{"type": "text", "text": BEFORE}], [{"type": "text", "text": GO_ON}]]
    assert contents(sent(ask())) == [[{"type": "text", "text": "hi"}]]
    blank = make_item(Message(role="user", content=" "))
    assert contents(sent(ask(blank))) == [[{"type": "text", "text": GO_ON}]]


def test_whole_calls_before_a_break_go_back_with_their_results() -> None:
    items = [user("go"), thought(), asked_for("a"), result("a"), made(Message(role="assistant", content="Done"), 3)]
    assert [[one["type"] for one in said] for said in contents(sent(ask(*items, user("more"))))] == [
        ["text"],
        ["thinking", "tool_use"],
        ["tool_result"],
        ["text"],
        ["text"],
    ]


def test_thinking_goes_only_to_who_made_it() -> None:
    elsewhere = thought(provider="other:other@other")
    items = [user("go"), elsewhere, asked_for("a"), result("a")]
    assert [one["type"] for one in contents(sent(ask(*items)))[1]] == ["tool_use"]


@pytest.mark.parametrize("count", [3, 30])
def test_at_most_four_places_are_marked_and_one_is_what_the_last_request_ended_with(count: int) -> None:
    calls = [asked_for(f"c{number}") for number in range(count)]
    answers = [result(f"c{number}") for number in range(count)]
    first = sent(ask(user("go"), instructions="Be brief."))
    then = sent(ask(user("go"), *calls, *answers, instructions="Be brief."))

    def marked(body: Json) -> list[tuple[int, int]]:
        blocks = [
            (m, b)
            for m, said in enumerate(body["messages"])
            for b, one in enumerate(said["content"])
            if "cache_control" in one
        ]
        rest = [one for one in (*body["tools"], *body["system"]) if "cache_control" in one]
        assert len(blocks) + len(rest) <= 4 and len(rest) == 1
        return blocks

    alone = sent(ask(user("go"), instructions=""))
    assert "system" not in alone and "cache_control" in alone["tools"][-1]
    before = [(0, 0)] if count > 9 else []  # where the server would not find it by looking back from the end
    assert marked(first) == [(0, 0)] and marked(then) == [*before, (2, count - 1)]


def test_a_resumed_conversation_is_sent_as_it_was() -> None:
    items = [user("go"), thought(), asked_for("a", arguments='{"cmd": "ls"}'), result("a", failed=True)]
    model = wire_model("messages", Replay([]), "anthropic")
    model.body(ask(*items[:1]))
    whole = model.body(ask(*items))
    stored = [read_item(item.raw, item.origin) for item in items]
    assert wire_model("messages", Replay([]), "anthropic").body(ask(*stored)) == whole


@pytest.mark.parametrize(
    ("choice", "spelled"),
    [
        ("auto", {"type": "auto"}), ("required", {"type": "any"}), ("none", {"type": "none"}),
        (ForcedTool("shell"), {"type": "tool", "name": "shell"}),
    ],
)  # fmt: skip
def test_a_forced_call_goes_before_thinking(choice: ToolChoice, spelled: Json) -> None:
    settings = ModelSettings(parallel_tool_calls=False, reasoning_effort="high")
    free = {} if choice == "none" else {"disable_parallel_tool_use": True}
    for model in ("claude-opus-4-6", "claude-opus-4-1"):
        body = sent(ask(model=model, tool_choice=choice, settings=settings))
        assert body["tool_choice"] == spelled | free
        assert ("thinking" in body) is (choice in ("auto", "none"))


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("claude-opus-4-6", None, ({"type": "adaptive", "display": "summarized"}, None, 64_000)),
        ("claude-sonnet-5", "minimal", ({"type": "adaptive", "display": "summarized"}, "low", 64_000)),
        ("claude-opus-4-6", "none", ({"type": "disabled"}, None, 64_000)),
        ("claude-opus-4-1", None, (None, None, 16_384)),
        ("claude-opus-4-1", "high", ({"type": "enabled", "budget_tokens": 16_000}, None, 32_000)),
        ("anthropic/claude-opus-4.5", "low", ({"type": "enabled", "budget_tokens": 4_096}, None, 20_480)),
        ("claude-3-opus", "high", (None, None, 4_096)),
        ("kimi-k2", "low", ({"type": "enabled", "budget_tokens": 4_096}, None, 20_480)),
        ("kimi-k2", None, (None, None, 16_384)),
    ],
)
def test_how_much_a_model_thinks(model: str, effort: Any, expected: tuple[Any, ...]) -> None:
    body = sent(ask(model=model, settings=ModelSettings(reasoning_effort=effort, temperature=0.5)))
    assert (body.get("thinking"), body.get("output_config", {}).get("effort"), body["max_tokens"]) == expected
    assert ("temperature" in body) is (expected[0] in (None, {"type": "disabled"}))


@pytest.mark.parametrize(("effort", "top_p", "kept"), [("low", 0.9, False), ("low", 0.95, True), ("none", 0.9, True)])
def test_a_model_that_thinks_is_sent_no_small_top_p(effort: Any, top_p: float, kept: bool) -> None:
    body = sent(ask(settings=ModelSettings(reasoning_effort=effort, top_p=top_p)))
    assert ("top_p" in body) is kept


def test_a_budget_needs_an_answer_that_began_with_thinking() -> None:
    settings = ModelSettings(reasoning_effort="low")
    for began, on in (([thought()], True), ([], False)):
        items = [user("go"), *began, asked_for("a"), result("a")]
        assert ("thinking" in sent(ask(*items, model="claude-opus-4-1", settings=settings))) is on
        assert "thinking" in sent(ask(*items, user("next"), model="claude-opus-4-6", settings=settings))


def test_tools_that_claude_knows_go_by_their_types() -> None:
    own = JsonSchema({"type": "object", "properties": {"command": {}, "restart": {}}})
    bash = ResponsesApiTool(name="bash", description="a shell", parameters=own)
    other = ResponsesApiTool(
        name="bash", description="mine", parameters=JsonSchema({"type": "object", "properties": {}})
    )
    assert sent(ask(tools=(bash,)))["tools"][0].items() >= {"type": "bash_20250124", "name": "bash"}.items()
    assert "input_schema" in sent(ask(tools=(other,)))["tools"][0]
    assert "input_schema" in sent(ask(tools=(bash,)), "messages")["tools"][0]


def test_the_servers_own_search_is_offered_where_it_has_one() -> None:
    where = UserLocation(country="DE")
    search = WebSearch(filters=AllowedDomains(("example.com",)), user_location=where, search_context_size="low")
    body = sent(ask(tools=(search,), tool_choice=ForcedTool("web_search")))
    sought = {"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["example.com"]}
    assert body["tools"] == [sought | {"user_location": {"type": "approximate", "country": "DE"}}]
    assert body["tool_choice"] == {"type": "tool", "name": "web_search"}
    assert "tools" not in sent(ask(tools=(search,)), "messages")


def test_strict_tools_are_strict_where_the_server_knows_that() -> None:
    strict = (function("f", strict=True),)
    assert sent(ask(tools=strict))["tools"][0]["strict"] is True
    assert "strict" not in sent(ask(tools=strict), "messages")["tools"][0]


def test_no_more_than_the_wire_means_anthropic() -> None:
    model = open_model(wire="messages", env={"ANTHROPIC_API_KEY": "k"})
    assert model.server.endpoint.base_url == "https://api.anthropic.com/v1"
    assert model.server.endpoint.headers() == {"x-api-key": "k"}
    preset = open_model(ProviderSettings(name="anthropic"), env={"ANTHROPIC_API_KEY": "k"})
    assert (preset.wire, preset.server.endpoint.name) == ("messages", "Anthropic")
    assert open_model(ProviderSettings(name="anthropic", wire_api="chat"), env={}).wire == "chat"
    with pytest.raises(UsageError, match="Set ANTHROPIC_API_KEY"):
        open_model(wire="messages", env={}).server.endpoint.headers()


@pytest.mark.parametrize("ending", ["", "/v1", "/v1/", "/v1/messages"])
async def test_both_forms_of_the_address_lead_to_the_same_place(ending: str) -> None:
    answer = sse(START, *text(0, "Hi"), stop("end_turn"), END)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    async with raw_server([head + answer]) as server:
        provider = ProviderSettings(
            name="anthropic", base_url=server.base_url.removesuffix("/v1") + ending, env_key="KEY",
            http_headers={"Anthropic-Beta": "mine-1"},
        )  # fmt: skip
        found = await outcome(
            open_model(provider, env={"KEY": "k-1"}),
            ask(model="claude-opus-4-1", settings=ModelSettings(reasoning_effort="low")),
        )
        sent_head = server.requests[0][0].lower()
    assert found.error is None and sent_head.startswith("post /v1/messages http")
    assert "x-api-key: k-1" in sent_head and "authorization" not in sent_head
    assert "anthropic-version: 2023-06-01" in sent_head
    assert "anthropic-beta: mine-1,interleaved-thinking-2025-05-14\r\n" in sent_head


CLOSED: Json = {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False,
}  # fmt: skip


@pytest.mark.parametrize("schema", [CLOSED, {"type": "object"}, None])
def test_the_form_of_the_last_message_is_asked_for(schema: Json | None) -> None:
    body = sent(ask(output_format=OutputFormat(schema=schema)))
    told = body["system"][0]["text"]
    if schema is CLOSED:
        assert body["output_config"]["format"] == {"type": "json_schema", "schema": CLOSED} and "JSON" not in told
    else:
        assert "output_config" not in body and "JSON" in told
        assert schema is None or '{"type":"object"}' in told


async def test_a_form_that_the_server_refuses_is_asked_for_in_words() -> None:
    words = "output_config.format.schema: For 'integer' type, property 'minimum' is not supported"
    with ScriptedModel([http_error(400, words), "{}"]) as server:
        model = open_model(ProviderSettings(name="server", base_url=server.base_url, profile="anthropic"), env={})
        found = await outcome(model, ask(output_format=OutputFormat(schema=CLOSED)))
    assert found.error is None and "output_config" not in server.last_request.body
    assert b"as this JSON Schema describes it" in server.last_request.raw


OVERSIZED = "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-opus-4-6"


@pytest.mark.parametrize(
    ("words", "held"),
    [
        ("messages.1.content.0: Invalid `signature` in `thinking` block", b"c2ln"),
        ("messages.1.content.0: `thinking` blocks in the latest assistant message cannot be modified.", b"c2ln"),
        ("messages.1.content.0: this `thinking` block is bound to a different conversation", b"c2ln"),
        ("messages.2.content.0.tool_result.cache_control: Extra inputs are not permitted", b"cache_control"),
        ("thinking.type: adaptive thinking is not supported on this model", b'"thinking":{'),
        ("thinking.adaptive.display: Extra inputs are not permitted", b'"display"'),
        ("`top_p` is deprecated for this model.", b"top_p"),
        ("output_config.effort: This model does not support the effort parameter.", b'"effort"'),
        (OVERSIZED, b'"max_tokens":64000'),
        ("input length and `max_tokens` exceed context limit: 190000 + 64000 > 200000", b'"max_tokens":64000'),
        ("tools.0.custom.strict: Extra inputs are not permitted", b'"strict"'),
    ],
)  # fmt: skip
async def test_what_a_server_refuses_is_left_out(words: str, held: bytes) -> None:
    def answer(asked: Request) -> Raw | str:
        return http_error(400, words, type="invalid_request_error") if held in asked.raw else "Fine."

    settings = ModelSettings(top_p=0.96, reasoning_effort="high")
    items = [user("go"), thought(provider="server"), asked_for("a"), result("a")]
    with ScriptedModel(answer) as server:
        provider = ProviderSettings(name="server", base_url=server.base_url, profile="anthropic", env_key=None)
        model = open_model(provider, env={})
        own = [ResponseItem(one.raw, one.view, one.origin and Origin(model._provider, "claude", 1)) for one in items]
        found = await outcome(model, ask(*own, tools=(function("f", strict=True),), settings=settings))
    assert found.error is None and len(server.requests) == 2 and len(found.of(LeftOut)) == 1
    assert server.requests[0].status == 400 and server.requests[1].status == 200
    assert b'"thinking":{' in server.requests[1].raw or "thinking.type" in words


async def test_the_first_model_that_the_server_lists_is_the_usual_one() -> None:
    with ScriptedModel(models=("claude-x", "claude-y")) as server:
        model = open_model(ProviderSettings(name="server", base_url=server.base_url), wire="messages", env={})
        assert await choose_model(model, None) == "claude-x"
        assert server.requests[0].headers["anthropic-version"] == "2023-06-01"
        await model.aclose()


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_what_a_switch_of_wires_leaves_out_is_told(wire: Any) -> None:
    block_of_theirs = made(read_item('{"type":"message_block","message_fields":{"type":"server_tool_use"}}').view)
    items = [user("go"), thought(), block_of_theirs, made(Message(role="assistant", content="Hi")), user("on")]
    model = wire_model(wire, Replay([sse({"id": "x", "choices": []})]))
    found = await outcome(model, request(*items))
    told = [event.message for event in found.of(LeftOut)]
    assert len(told) == 1 and "the reasoning of earlier answers, tools that the provider ran" in told[0]
    assert b"c2ln" not in (body := model.body(request(*items))) and b"message_" not in body


async def test_what_other_wires_left_is_told_when_this_one_goes_on() -> None:
    native = make_item(ShellCall(call_id="s", action=ShellAction(("ls",))))
    openly = make_item(Reasoning(content=(), summary=()))
    found = await heard(*text(0, "Hi"), stop("end_turn"), END, asked=request(user("go"), openly, native, user("on")))
    told = [event.message for event in found.of(LeftOut)]
    assert len(told) == 1 and "'shell_call'" in told[0] and "the reasoning of earlier answers" in told[0]
    assert any(isinstance(event, ItemDone) for event in found.events)
