"""Tools that the client of a response runs: told upstream, echoed, and called as they should be."""

import json

import pytest

from ferrule.responses.errors import ApiError
from ferrule.store import Paging
from ferrule.testing import custom_tool_call, function_call, message
from tests.responses.serving import WEATHER, Json, Served, asked, check_stream, events_of

SCREENSHOT = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}


async def test_a_call_without_output_and_an_output_without_call_are_refused(here: Served) -> None:
    here.model.add([function_call("get_weather", {"city": "Rome"})])
    first = await here.ask(tools=[WEATHER])
    with pytest.raises(ApiError, match="has no output"):
        await here.ask(previous_response_id=first.id)
    with pytest.raises(ApiError, match="no call 'c9' precedes") as raised:
        await here.ask(input=[{"type": "function_call_output", "call_id": "c9", "output": ""}])
    assert raised.value.param == "input[0]"


async def test_tools_are_told_upstream_and_echoed_whole(here: Served) -> None:
    here.model.add([custom_tool_call("sql", "select 1")])
    tools: list[Json] = [
        WEATHER,
        {"type": "custom", "name": "sql", "description": "Run it."},
        {"type": "namespace", "name": "crm", "description": "CRM", "tools": [{"type": "function", "name": "find"}]},
        {"type": "web_search", "search_context_size": "low"},
        {"type": "tool_of_the_future", "depth": 3},
    ]
    ledger = await here.ask(tools=tools, text={"format": {"type": "json_object"}})
    assert ledger.not_run == ("web_search", "tool_of_the_future")
    assert ledger.object["tools"][0] == {"description": None, **WEATHER, "strict": False}
    assert ledger.object["tools"][3:] == tools[3:]
    call = ledger.object["output"][0]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "sql", "select 1")
    assert {"get_weather", "sql"} <= set(here.model.last_request.tool_names)


async def test_a_freeform_tool_may_be_called_so(here: Served) -> None:
    here.model.add([custom_tool_call("sql", "select 1")])
    ledger = await here.ask(tools=[{"type": "freeform_tool", "name": "sql", "description": "Run it."}])
    assert (ledger.object["output"][0]["type"], ledger.not_run) == ("custom_tool_call", ())
    assert ledger.object["tools"][0]["type"] == "custom"


@pytest.mark.parametrize(
    ("tool", "arguments", "call", "output", "seen"),
    [
        (
            {"type": "apply_patch"},
            {"type": "create_file", "path": "a", "diff": "+x"},
            {"type": "apply_patch_call", "operation": {"type": "create_file", "path": "a", "diff": "+x"}},
            {"type": "apply_patch_call_output", "status": "failed", "output": "no room"},
            "no room",
        ),
        (
            {"type": "shell", "environment": {"type": "local"}},
            {"commands": ["ls", "pwd"], "timeout_ms": 9},
            {
                "type": "shell_call",
                "action": {"commands": ["ls", "pwd"], "timeout_ms": 9, "max_output_length": None},
                "environment": {"type": "local"},
            },
            {
                "type": "shell_call_output",
                "output": [
                    {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 2}},
                    {"stdout": "", "stderr": "late", "outcome": {"type": "timeout"}},
                ],
            },
            "a\n[exit code 2]\n\nlate\n[timed out]",
        ),
        (
            {"type": "local_shell"},
            {"command": ["ls"], "working_directory": "/"},
            {
                "type": "local_shell_call",
                "action": {"type": "exec", "env": {}, "command": ["ls"], "working_directory": "/"},
            },
            {"type": "local_shell_call_output", "output": "bin"},
            "bin",
        ),
        (
            {"type": "computer"},
            {"actions": [{"type": "click", "x": 1, "y": 2}]},
            {
                "type": "computer_call",
                "actions": [{"button": "left", "type": "click", "x": 1, "y": 2}],
                "pending_safety_checks": [],
            },
            {"type": "computer_call_output", "output": SCREENSHOT},
            "The screen after the actions:",
        ),
        (
            {"type": "computer_use_preview", "display_width": 8, "display_height": 9, "environment": "browser"},
            {"type": "wait"},
            {"type": "computer_call", "action": {"type": "wait"}, "pending_safety_checks": []},
            {"type": "computer_call_output", "output": SCREENSHOT},
            "The screen after the actions:",
        ),
    ],
)  # fmt: skip
async def test_tools_that_the_client_runs_are_functions_upstream(
    here: Served, tool: Json, arguments: Json, call: Json, output: Json, seen: str
) -> None:
    name = "computer" if tool["type"].startswith("computer") else tool["type"]
    here.model.add([function_call(name, arguments)], "Done.")
    first = await here.engine.open(asked(tools=[tool]))
    check_stream(await events_of(first), first.object)
    said = first.object["output"][0]
    assert {key: said[key] for key in call} == call
    if "display_width" in tool:
        assert "8 x 9 pixels (browser)" in json.dumps(here.model.last_request.body["tools"])
    sent_back = {key: said[key] for key in said if key != "status"}
    answer = {**output, "call_id": said["call_id"], "id": said["call_id"]}
    for form in (
        {"input": [answer], "previous_response_id": first.id},
        {"input": [{"role": "user", "content": "hi"}, sent_back, answer], "store": False},
    ):
        here.model.add("Done.")
        await here.ask(tools=[tool], **form)
        (result,) = here.model.last_request.outputs
        assert result.text.startswith(seen)
    if tool["type"].startswith("computer"):
        assert "data:image/png;base64,AA" in json.dumps(here.model.last_request.body)


async def test_a_function_of_the_client_keeps_its_name_beside_ours(here: Served) -> None:
    here.model.add([function_call("apply_patch_2", {"type": "delete_file", "path": "x"})])
    ledger = await here.ask(tools=[{"type": "function", "name": "apply_patch"}, {"type": "apply_patch"}])
    assert ledger.object["output"][0]["type"] == "apply_patch_call"


async def test_a_wrong_call_is_never_shown_and_asked_again(here: Served) -> None:
    grammar = {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}
    tools: list[Json] = [{"type": "custom", "name": "number", "format": grammar}, {"type": "apply_patch"}]
    here.model.add(
        [message("I try."), custom_tool_call("number", "many"), function_call("apply_patch", {"type": "update_file"})],
        [custom_tool_call("number", "42")],
    )
    ledger = await here.engine.open(asked(tools=tools))
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    assert [item["type"] for item in ledger.object["output"]] == ["message", "custom_tool_call"]
    assert ledger.object["output"][1]["input"] == "42"
    assert "many" not in json.dumps(events)
    assert "does not follow the tool's grammar" in here.model.last_request.outputs[0].text
    here.model.add("Thanks.")
    call_id = ledger.object["output"][1]["call_id"]
    output = {"type": "custom_tool_call_output", "call_id": call_id, "output": "ok"}
    await here.ask(tools=tools, input=[output], previous_response_id=ledger.id)
    assert "many" not in json.dumps(here.model.last_request.body)


async def test_a_call_that_stays_wrong_ends_the_response(here: Served) -> None:
    grammar = {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}
    here.model.add(*[[custom_tool_call("number", "many")]] * 9)
    ledger = await here.ask(tools=[{"type": "custom", "name": "number", "format": grammar}])
    assert ledger.object["status"] == "failed"
    assert ledger.object["output"] == []
    assert "after 8 corrections" in ledger.object["error"]["message"]
    assert len(here.model.requests) == 9


async def test_a_tool_choice_reaches_the_model(here: Served) -> None:
    here.model.add("a", "b", "c", "d")
    await here.ask(tools=[WEATHER], tool_choice={"type": "function", "name": "get_weather"})
    assert "get_weather" in json.dumps(here.model.last_request.body["tool_choice"])
    await here.ask(tools=[WEATHER], tool_choice="required")
    assert here.model.last_request.body["tool_choice"] == "required"
    other = {"type": "function", "name": "other"}
    await here.ask(tools=[WEATHER, other], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [other]})
    assert here.model.last_request.tool_names == ["other"]
    await here.ask(tools=[WEATHER, {"type": "web_search"}], tool_choice={"type": "web_search"})
    assert here.model.last_request.body.get("tool_choice", "auto") == "auto"
    with pytest.raises(ApiError, match="no tool 'nope'"):
        await here.ask(tools=[WEATHER], tool_choice={"type": "function", "name": "nope"})


@pytest.mark.parametrize(
    ("call", "output"),
    [
        ({"type": "function_call", "name": "f", "arguments": "{}"}, {"output": "a"}),
        ({"type": "custom_tool_call", "name": "f", "input": "x"}, {"output": "a", "status": None}),
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, {"output": []}),
        ({"type": "computer_call", "actions": [], "pending_safety_checks": []}, {"output": {"type": "x"}}),
    ],
)
async def test_listed_calls_and_outputs_have_a_status(here: Served, call: Json, output: Json) -> None:
    here.model.add("Hello.")
    ledger = await here.ask(
        input=[call | {"call_id": "c"}, {"type": f"{call['type']}_output", "call_id": "c"} | output]
    )
    page = await here.engine.input_items(ledger.id, "", Paging())
    assert [json.loads(item)["status"] for item in page.data] == ["completed"] * 2
