"""A tool made of a spec and a handler: registered, shown, looked up and run, with no definition around it."""

import msgspec
import pytest

from ferrule import (
    FreeformTool,
    FreeformToolFormat,
    JsonSchema,
    ResponsesApiTool,
    ShellToolCallParams,
    ToolContext,
    ToolHandler,
    ToolInvocation,
    ToolKind,
    ToolOutput,
    ToolPayload,
    ToolRegistryBuilder,
)
from ferrule.protocol.items import CustomToolCall, FunctionCall
from ferrule.protocol.payload import CustomPayload, FunctionPayload, LocalShellPayload, McpPayload
from ferrule.tools.dispatch import Dispatcher
from tests.tools.contexts import context

EMPTY = JsonSchema({"type": "object", "properties": {}, "required": [], "additionalProperties": False})
TIME = ResponsesApiTool(name="time", description="Tells the time.", parameters=EMPTY)
DIFF = FreeformTool(
    name="diff",
    description="Takes a diff.",
    format=FreeformToolFormat(type="text", syntax="diff", definition="a unified diff"),
)


class Clock(ToolHandler):
    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        return ToolOutput(f"{invocation.tool_name}: {type(invocation.payload).__name__}", True)


class Remote(Clock):
    @property
    def kind(self) -> ToolKind:
        return ToolKind.MCP


def test_building_gives_what_is_sent_and_what_runs() -> None:
    builder, clock = ToolRegistryBuilder(), Clock()
    builder.push_spec(TIME)
    builder.push_spec_with_parallel_support(DIFF, True)
    builder.register_handler("time", clock)
    specs, registry = builder.build()
    assert [(entry.spec, entry.supports_parallel_tool_calls) for entry in specs] == [(TIME, False), (DIFF, True)]
    assert registry.handler("time") is clock
    assert registry.handler("diff") is None
    assert list(registry) == [(None, "time")]
    assert (registry.supports_parallel(None, "time"), registry.supports_parallel(None, "diff")) == (False, True)


def test_a_freeform_format_may_be_plain_text_of_a_syntax() -> None:
    assert DIFF.to_responses() == {
        "type": "custom",
        "name": "diff",
        "description": "Takes a diff.",
        "format": {"type": "text", "syntax": "diff", "definition": "a unified diff"},
    }


async def test_a_bare_handler_runs_functions_and_freeform_calls_and_changes_nothing_unless_it_says_so() -> None:
    builder, clock = ToolRegistryBuilder(), Clock()
    for name in ("time", "diff"):
        builder.register_handler(name, clock)
    ctx = context()
    dispatcher = Dispatcher(builder.build()[1], lambda invocation: ctx)
    function = await dispatcher.respond(FunctionCall(call_id="1", name="time", arguments="{}"))
    custom = await dispatcher.respond(CustomToolCall(call_id="2", name="diff", input="+a"))
    assert function is not None
    assert custom is not None
    assert msgspec.json.decode(function.raw) == {
        "type": "function_call_output", "call_id": "1", "output": "time: FunctionPayload",
    }  # fmt: skip
    assert msgspec.json.decode(custom.raw) == {
        "type": "custom_tool_call_output", "call_id": "2", "output": "diff: CustomPayload",
    }  # fmt: skip
    assert not await clock.is_mutating(ToolInvocation("1", "time", FunctionPayload("{}")))


PAYLOADS: list[ToolPayload] = [
    FunctionPayload("{}"),
    CustomPayload(""),
    LocalShellPayload(ShellToolCallParams(command=("ls",))),
    McpPayload("server", "tool", "{}"),
]


@pytest.mark.parametrize(
    ("handler", "served"), [(Clock(), [True, True, False, False]), (Remote(), [False, False, False, True])]
)
def test_a_handler_serves_the_payloads_of_its_kind(handler: ToolHandler, served: list[bool]) -> None:
    assert [handler.matches_kind(payload) for payload in PAYLOADS] == served


async def test_a_payload_of_another_kind_is_answered_and_not_run() -> None:
    builder = ToolRegistryBuilder()
    builder.register_handler("time", Remote())
    ctx = context()
    answer = await Dispatcher(builder.build()[1], lambda invocation: ctx).respond(
        FunctionCall(call_id="1", name="time", arguments="{}")
    )
    assert answer is not None
    assert "time cannot be called with a FunctionPayload" in answer.raw.decode()


@pytest.mark.parametrize(
    ("payload", "kind"),
    list(
        zip(
            PAYLOADS,
            ["function_call_output", "custom_tool_call_output", "local_shell_call_output", "function_call_output"],
            strict=True,
        )
    ),
)
def test_an_output_answers_in_the_form_of_its_payload(payload: ToolPayload, kind: str) -> None:
    item = msgspec.json.decode(ToolOutput("out", False).into_response("c", payload).raw)
    assert (item["type"], item["call_id"], item["output"]) == (kind, "c", "out")
    assert "success" not in item
