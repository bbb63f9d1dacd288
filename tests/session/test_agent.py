"""What an agent says about itself, and what of its settings reaches the model."""

from pathlib import Path

from ferrule import Agent, ToolDefinition, tool
from ferrule.testing import ScriptedModel


@tool(read_only=True)
async def look() -> str:
    return "a.txt"


def test_tools_map_names_every_tool_and_what_runs_it(tmp_path: Path) -> None:
    tools = Agent("gpt-5.5", base_url="http://127.0.0.1:9/v1", cwd=tmp_path, tools=[look, "update_plan"]).tools_map
    assert set(tools) == {"look", "update_plan"}
    assert tools["look"] is look
    assert isinstance(tools["update_plan"], ToolDefinition)


async def test_effort_and_the_schema_of_the_answer_are_sent(tmp_path: Path) -> None:
    schema = {
        "type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False,
    }  # fmt: skip
    with ScriptedModel(['{"ok":true}']) as model:
        agent = Agent(
            "gpt-5.5", base_url=model.base_url, wire="responses", cwd=tmp_path, reasoning_effort="low",
            output_schema=schema,
        )  # fmt: skip
        assert (await agent.run("go")).text == '{"ok":true}'
        body = model.requests[0].body
    assert body["reasoning"] == {"effort": "low"}
    assert body["text"]["format"] == {"type": "json_schema", "name": "output", "schema": schema, "strict": True}  # type: ignore[index]
