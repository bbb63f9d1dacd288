"""What the Messages API knows nothing of, or not with a model: it goes in another form, or not at all."""

from typing import Any

from ferrule.model.provider import open_model
from ferrule.model.stream import LeftOut
from ferrule.protocol.items import FunctionCallOutput, Origin, make_item, read_item
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.settings import ProviderSettings
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.testing import Raw, Request, ScriptedModel, http_error
from tests.model.support import outcome, request, user

BASH = ResponsesApiTool(
    name="bash",
    description="a shell",
    parameters=JsonSchema({"type": "object", "properties": {"command": {}, "restart": {}}}),
)
FUNCTION_CALL = b'{"type":"function_call","name":"f","arguments":"{}","call_id":"a"}'
TAGS = "found using 'type' does not match any of the expected tags: 'document', 'image', 'text', 'thinking', 'tool_use'"


async def test_a_native_tool_of_another_model_goes_as_a_function() -> None:
    refusals = (
        "tools.0: 'claude-x' does not support tool types: bash_20250124. Did you mean one of bash_20241022?",
        f"tools.0: Input tag 'bash_20250124' {TAGS}",
    )
    for words in refusals:
        with ScriptedModel(lambda asked, words=words: refused_with(asked, b'"bash_20250124"', words)) as server:
            provider = ProviderSettings(name="server", base_url=server.base_url, profile="anthropic", env_key=None)
            model = open_model(provider, env={})
            found = await outcome(model, request(user("go"), model="claude-opus-4-6", tools=(BASH,)))
        first, second = server.requests
        assert found.error is None and len(found.of(LeftOut)) == 1 and first.status == 400
        tools: Any = second.body["tools"]
        assert tools[0]["description"] == "a shell"
        assert second.body["thinking"] == first.body["thinking"]


async def test_blocks_that_the_server_does_not_take_back_are_left_out_together() -> None:
    with ScriptedModel(
        lambda asked: refused_with(asked, b"hologram", f"messages.1.content.1: Input tag 'hologram' {TAGS}")
    ) as server:
        provider = ProviderSettings(name="server", base_url=server.base_url, profile="anthropic", env_key=None)
        model = open_model(provider, env={})
        origin = Origin(model._provider, "claude", 1)
        blocks = (
            b'{"type":"server_tool_use","id":"srvtoolu_1","name":"x","input":{}}',
            b'{"type":"hologram","tool_use_id":"srvtoolu_1"}',
        )
        raws = [b'{"type":"message_block","message_fields":%b}' % block for block in blocks]
        said = [read_item(raw, origin) for raw in (*raws, FUNCTION_CALL)]
        answered = make_item(FunctionCallOutput(call_id="a", output="ok"))
        asked = request(user("go"), *said, answered, model="claude-opus-4-6")
        found = await outcome(model, asked)
    first, second = server.requests
    assert found.error is None and len(found.of(LeftOut)) == 1
    content: Any = second.items[1]["content"]
    assert [block["type"] for block in content] == ["tool_use"]
    assert second.body["thinking"] == first.body["thinking"]


def refused_with(asked: Request, held: bytes, words: str) -> Raw | str:
    return http_error(400, words, type="invalid_request_error") if held in asked.raw else "Fine."
