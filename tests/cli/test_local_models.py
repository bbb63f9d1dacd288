"""Models of one's own: calls as text, and what their servers are asked and told of."""

import json

from ferrule.testing import ScriptedModel
from tests.cli.command import FULL_ACCESS, Place

CALL = '<tool_call>\n{"name": "shell_command", "arguments": {"command": "echo seen"}}\n</tool_call>'


def test_exec_takes_the_key_and_a_resume_remembers_it(place: Place) -> None:
    with ScriptedModel([CALL, "First.", "Second."]) as model:
        flags = [f'model_providers.box={{base_url="{model.base_url}", tool_calls="text"}}', "model_provider=box"]
        configured = [part for flag in flags for part in ("-c", flag)]
        done = place.run("exec", *configured, "-m", "scripted-model", "--json", *FULL_ACCESS, "go")
        assert done.code == 0, done.err
        resumed = place.run("exec", "--json", *FULL_ACCESS, "resume", "--last", "again")
        assert resumed.code == 0, resumed.err
        bodies = [json.loads(request.raw) for request in model.requests]
    items = [line["item"] for line in done.lines if line["type"] == "item.completed"]
    (command,) = [item for item in items if item["type"] == "command_execution"]
    assert command["aggregated_output"] == "seen\n"
    assert all("tools" not in body for body in bodies)
    assert "<tool_response>" in json.dumps(bodies[-1]["messages"][:-1])
