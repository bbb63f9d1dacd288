"""A tool made of a spec and a handler: registered, shown, looked up and run, with no definition around it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule import (
    FreeformTool,
    FreeformToolFormat,
    JsonSchema,
    ResponsesApiTool,
    ReviewDecision,
    ShellToolCallParams,
    ToolContext,
    ToolHandler,
    ToolInvocation,
    ToolKind,
    ToolOutput,
    ToolPayload,
    ToolRegistryBuilder,
    Toolset,
)
from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.items import CustomToolCall, FunctionCall
from ferrule.protocol.payload import CustomPayload, FunctionPayload, LocalShellPayload, McpPayload
from ferrule.tools.effects import ToolEffect
from tests.tools.contexts import RecordingHost, context

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
    kind = ToolKind.MCP


def test_building_gives_what_is_sent_and_what_runs() -> None:
    builder, clock = ToolRegistryBuilder(), Clock()
    builder.push_spec(TIME)
    builder.push_spec_with_parallel_support(DIFF, True)
    builder.register_handler("time", clock)
    builder.register_handler("diff", Clock())
    specs, registry = builder.build()
    assert [(entry.spec, entry.supports_parallel_tool_calls) for entry in specs] == [(TIME, False), (DIFF, True)]
    assert registry.handler("time") is clock
    assert registry.handler("none") is None
    assert list(registry) == [(None, "time"), (None, "diff")]
    assert [found and found.parallel for found in map(registry.find, ("time", "diff", "none"))] == [False, True, None]


def test_a_freeform_format_may_be_plain_text_of_a_syntax() -> None:
    assert DIFF.to_responses() == {
        "type": "custom",
        "name": "diff",
        "description": "Takes a diff.",
        "format": {"type": "text", "syntax": "diff", "definition": "a unified diff"},
    }
    taught = "Takes a diff.\n\nThe format of `input` (diff):\na unified diff"
    chat = {"name": "diff", "description": taught, "format": {"type": "text"}}
    assert DIFF.to_chat() == {"type": "custom", "custom": chat}


async def test_a_bare_handler_runs_functions_and_freeform_calls_and_changes_nothing_unless_it_says_so() -> None:
    builder, clock = ToolRegistryBuilder(), Clock()
    for name in ("time", "diff"):
        builder.register_handler(name, clock)
    ctx = context()
    dispatcher = Dispatcher(builder.build()[1], lambda invocation, caller: ctx)
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
    answer = await Dispatcher(builder.build()[1], lambda invocation, caller: ctx).respond(
        CustomToolCall(call_id="1", name="time", input="now")
    )
    assert answer is not None
    assert "time takes JSON arguments" in answer.raw.decode()


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


@pytest.mark.parametrize("body", ["", " \n", (), (InputText(""), InputText("\t"))])
def test_m055_an_output_without_a_word_says_so(body: Any) -> None:
    for payload in PAYLOADS:
        item = msgspec.json.decode(ToolOutput(body, True).into_response("c", payload).raw)
        assert item["output"] == "(no output)"


def test_m055_a_blank_text_beside_an_image_is_left_out() -> None:
    image = InputImage(image_url="data:image/png;base64,AAAA")
    answer = ToolOutput((InputText(""), image), True).into_response("c", FunctionPayload(""))
    assert [part["type"] for part in msgspec.json.decode(answer.raw)["output"]] == ["input_image"]


class Setter(Clock):
    """Says that it changes things."""

    def __init__(self) -> None:
        self.ran = 0

    async def is_mutating(self, invocation: ToolInvocation) -> bool:
        return '"read"' not in getattr(invocation.payload, "arguments", "")

    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        self.ran += 1
        return ToolOutput("set", True)


class OneTool:
    """A source with one bare handler."""

    revision = 0

    def __init__(self, handler: ToolHandler) -> None:
        self.handler = handler

    def register(self, builder: ToolRegistryBuilder) -> None:
        builder.push_spec(TIME)
        builder.register_handler("time", self.handler)


@pytest.mark.parametrize(
    ("policy", "decision", "asked", "ran"),
    [
        ("untrusted", ReviewDecision.DENIED, 1, 1),
        ("untrusted", ReviewDecision.APPROVED, 1, 2),
        ("never", ReviewDecision.DENIED, 0, 2),
    ],
)
async def test_a_call_that_changes_things_is_approved_before_it_runs(
    policy: str, decision: ReviewDecision, asked: int, ran: int, tmp_path: Path
) -> None:
    questions: list[str] = []

    def decide(question: ExecApproval) -> ReviewDecision:
        questions.append(question.text)
        return decision

    handler = Setter()
    toolset = Toolset.for_model("m", cwd=tmp_path, tools=[], approval_policy=policy, on_approval=decide)
    toolset.add_source(OneTool(handler))
    async with toolset:
        calls = [
            {"type": "function_call", "call_id": str(n), "name": "time", "arguments": raw}
            for n, raw in enumerate(['{"do":"read"}', '{"do":"write"}'])
        ]
        assert [spec["name"] for spec in toolset.specs()] == ["time"]
        read, written = await toolset.run(calls)
    assert read["output"] == "set"
    assert (len(questions), handler.ran) == (asked, ran)
    assert all('{"do":"write"}' in text for text in questions)
    assert ("rejected" in str(written["output"])) is (ran == 1)


async def test_a_handler_that_acts_through_the_context_is_not_asked_for_twice() -> None:
    class Careful(Setter):
        acts_through_context = True

    host = RecordingHost()
    for handler in (Setter(), Careful()):
        builder = ToolRegistryBuilder()
        builder.register_handler("time", handler)
        ctx = context(host)
        await Dispatcher(builder.build()[1], lambda invocation, caller, ctx=ctx: ctx).respond(
            FunctionCall(call_id="1", name="time", arguments="{}")
        )
        assert handler.ran == 1
    [effect] = host.effects
    assert isinstance(effect, ToolEffect)
    assert (effect.name, effect.arguments) == ("time", "{}")
