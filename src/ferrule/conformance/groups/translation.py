"""Tools that the client runs: the model's call has the item of its tool, and the output goes back."""

from functools import partial

import msgspec

from ferrule.conformance.checks import add, check
from ferrule.conformance.failures import expect, expect_equal
from ferrule.conformance.server import FORCED, WEATHER, Json, Server
from ferrule.conformance.shapes import check_item

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAA"
    "AfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SCREEN: Json = {"type": "computer_screenshot", "image_url": PIXEL}
YES = 'start: "yes" | "no"'


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the client. `exactly`: what the model is to write. `call`: what the call's item holds, beside its ids.
    `output`: the client's answer, without `call_id`."""

    name: str
    about: str
    tool: Json
    exactly: str
    call: Json
    output: Json
    choice: str | Json = "required"


def _custom(name: str, about: str, form: Json | None, text: str) -> Tool:
    return Tool(
        name=name,
        about=about,
        tool={"type": "custom", "name": "write", "description": "Write a text."} | ({"format": form} if form else {}),
        choice={"type": "custom", "name": "write"},
        exactly=text,
        call={"type": "custom_tool_call", "name": "write", "input": text},
        output={"type": "custom_tool_call_output", "output": "written"},
    )


TOOLS = (
    Tool(
        name="function",
        about="A function's call, and its output.",
        tool=WEATHER,
        choice=FORCED["tool_choice"],
        exactly='{"city": "Rome"}',
        call={"type": "function_call", "name": "get_weather"},
        output={"type": "function_call_output", "output": "sunny"},
    ),
    _custom("custom", "A freeform tool's call holds plain text.", None, "two words"),
    _custom(
        "grammar",
        "A freeform tool's input fits its Lark grammar.",
        {"type": "grammar", "syntax": "lark", "definition": YES},
        "yes",
    ),
    _custom(
        "pattern",
        "A freeform tool's input fits its regular expression.",
        {"type": "grammar", "syntax": "regex", "definition": "[0-9]{4}"},
        "1984",
    ),
    Tool(
        name="namespace",
        about="A function of a namespace is called by both names.",
        tool={"type": "namespace", "name": "crm", "description": "Customers.", "tools": [WEATHER]},
        exactly='{"city": "Rome"}',
        call={"type": "function_call", "name": "get_weather", "namespace": "crm"},
        output={"type": "function_call_output", "output": "sunny"},
    ),
    Tool(
        name="tool_search",
        about="A search of tools that the client makes.",
        tool={
            "type": "tool_search",
            "execution": "client",
            "description": "Find tools by words.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
        exactly='{"query": "weather"}',
        call={"type": "tool_search_call", "execution": "client"},
        output={"type": "tool_search_output", "execution": "client", "status": "completed", "tools": [WEATHER]},
    ),
    Tool(
        name="apply_patch",
        about="A change of a file is an operation of its own item.",
        tool={"type": "apply_patch"},
        choice={"type": "apply_patch"},
        exactly='{"type": "create_file", "path": "a.txt", "diff": "+hello"}',
        call={"type": "apply_patch_call", "operation": {"type": "create_file", "path": "a.txt", "diff": "+hello"}},
        output={"type": "apply_patch_call_output", "status": "completed", "output": "done"},
    ),
    Tool(
        name="shell",
        about="Commands that the client runs.",
        tool={"type": "shell", "environment": {"type": "local"}},
        choice={"type": "shell"},
        exactly='{"commands": ["echo hi"]}',
        call={"type": "shell_call"},
        output={
            "type": "shell_call_output",
            "output": [{"stdout": "hi\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ),
    Tool(
        name="local_shell",
        about="A command that the client runs, the older way.",
        tool={"type": "local_shell"},
        exactly='{"command": ["echo", "hi"]}',
        call={"type": "local_shell_call"},
        output={"type": "local_shell_call_output", "output": "hi"},
    ),
    Tool(
        name="computer",
        about="Actions on a screen, several a call.",
        tool={"type": "computer"},
        choice={"type": "computer"},
        exactly='{"actions": [{"type": "screenshot"}]}',
        call={"type": "computer_call", "actions": [{"type": "screenshot"}]},
        output={"type": "computer_call_output", "output": SCREEN},
    ),
    Tool(
        name="computer_use_preview",
        about="Actions on a screen, one a call.",
        tool={"type": "computer_use_preview", "display_width": 800, "display_height": 600, "environment": "linux"},
        choice={"type": "computer_use_preview"},
        exactly='{"type": "screenshot"}',
        call={"type": "computer_call", "action": {"type": "screenshot"}},
        output={"type": "computer_call_output", "output": SCREEN},
    ),
)


def _translated(tool: Tool, server: Server) -> None:
    """Force a call, streamed; look at its item; send the output back, once by id and once with all items."""
    asked = f"Call the tool with exactly: {tool.exactly}"
    stream = server.stream(input=asked, tools=[tool.tool], tool_choice=tool.choice)
    calls = [item for item in stream.final["output"] if item["type"] not in ("message", "reasoning")]
    expect_equal(len(calls), 1, "the number of calls")
    check_item(calls[0], "the call")
    expect_equal({name: calls[0].get(name) for name in tool.call}, tool.call, "the call")
    told = [data["item"] for data in stream.of("response.output_item.done")]
    expect_equal(told, stream.final["output"], "the streamed items")
    ids = {"call_id": calls[0]["call_id"]}
    output = tool.output | (ids | {"id": ids["call_id"]} if tool.name == "local_shell" else ids)
    going_on = {"tools": [tool.tool], "previous_response_id": stream.final["id"], "input": [output]}
    expect_equal(server.create(**going_on)["status"], "completed", "the status after the output")
    items = [{"role": "user", "content": asked}, *stream.final["output"], output]
    again = server.create(tools=[tool.tool], input=items, store=False)
    expect_equal(again["status"], "completed", "the status with all items sent again")


for _tool in TOOLS:
    add(__name__, _tool.name, _tool.about, partial(_translated, _tool))


@check
def wrong_grammar(server: Server) -> None:
    """A grammar that cannot be read is a 400 that names it."""
    form = {"type": "grammar", "syntax": "lark", "definition": "start: ((("}
    answer = server.ask(tools=[{"type": "custom", "name": "write", "format": form}])
    expect_equal(answer.status, 400, "the status")
    expect(str(answer.error.get("param")).startswith("tools"), f"the param is {answer.error.get('param')}")


@check
def no_choice(server: Server) -> None:
    """With tool_choice none no tool is called."""
    made = server.create(tools=[WEATHER], tool_choice="none")
    expect([item["type"] for item in made["output"]].count("function_call") == 0, "a function is called")
