"""The one path of a call: gates, hooks, errors, bounds."""

import asyncio
import logging

import msgspec
import pytest

from ferrule import Fatal, RespondToModel, ToolContext, ToolHandler, ToolInvocation, ToolOutput
from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.dispatch.gate import Gate
from ferrule.dispatch.hooks import AfterTool, BeforeTool
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.items import (
    ApplyPatchCall,
    ApplyPatchCallOutput,
    CustomToolCall,
    DeleteFile,
    FunctionCall,
    FunctionCallOutput,
    LocalShellAction,
    LocalShellCall,
    LocalShellCallOutput,
    Message,
    Reasoning,
    ShellAction,
    ShellCall,
    ShellCallOutput,
    ShellCommandOutput,
    ShellExit,
)
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.payload import FunctionPayload, NativePayload, ToolPayload
from ferrule.protocol.specs import FREEFORM_PARAMETERS, ResponsesApiTool
from ferrule.tools.events import AgentErrorEvent
from ferrule.tools.handler import DeferredHandler
from ferrule.tools.registry import NATIVE, ToolRegistry, ToolRegistryBuilder
from tests.tools.contexts import RecordingHost, context


class Echo(ToolHandler):
    """Answers with its input; `result` may be an error to raise or an output."""

    def __init__(self, result: ToolOutput | BaseException | None = None) -> None:
        self.result = result
        self.seen: list[ToolInvocation] = []

    def matches_kind(self, payload: ToolPayload) -> bool:
        return super().matches_kind(payload) or isinstance(payload, NativePayload)

    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        self.seen.append(invocation)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result or ToolOutput(getattr(invocation.payload, "arguments", "?"), True)


def registry(name: str, handler: ToolHandler, *, parallel: bool = False, namespace: str | None = None) -> ToolRegistry:
    builder = ToolRegistryBuilder()
    spec = ResponsesApiTool(name=name, description="", parameters=FREEFORM_PARAMETERS)
    builder.push_spec_with_parallel_support(spec, parallel)
    builder.register_handler(name, handler, namespace=namespace)
    return builder.build()[1]


def dispatcher(
    handler: ToolHandler, host: RecordingHost | None = None, tokens: int = 10_000, **more: object
) -> Dispatcher:
    ctx = context(host, tokens=tokens)
    return Dispatcher(registry("echo", handler), lambda invocation, caller: ctx, **more)  # type: ignore[arg-type]


def call(arguments: str = "{}", name: str = "echo") -> FunctionCall:
    return FunctionCall(call_id="c", name=name, arguments=arguments)


async def text_of(dispatcher: Dispatcher, view: FunctionCall | CustomToolCall) -> str:
    response = await dispatcher.respond(view)
    assert response is not None
    output = response.view.output  # type: ignore[union-attr]
    assert isinstance(output, str)
    return output


async def test_an_item_that_is_no_call_needs_no_answer() -> None:
    for item in (Message(role="assistant", content="hi"), Reasoning(id="rs", summary=())):
        assert await dispatcher(Echo()).respond(item) is None


async def test_unknown_tools_are_answered_with_near_names() -> None:
    known = dispatcher(Echo())
    assert await text_of(known, call(name="ehco")) == "unsupported call: ehco (did you mean echo?)"
    custom = CustomToolCall(call_id="c", name="nothing", input="")
    assert await text_of(known, custom) == "unsupported custom tool call: nothing"


async def test_an_exception_is_an_answer_and_its_traceback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    host = RecordingHost()
    with caplog.at_level(logging.ERROR, "ferrule.tools"):
        assert await text_of(dispatcher(Echo(KeyError("k")), host), call()) == "echo failed: KeyError: 'k'"
    assert caplog.records[0].exc_info
    [event] = host.events
    assert isinstance(event, AgentErrorEvent)
    assert event.error == "echo failed: KeyError: 'k'"


async def test_a_refusal_is_an_answer_and_fatal_is_not() -> None:
    assert await text_of(dispatcher(Echo(RespondToModel("no such file"))), call()) == "no such file"
    with pytest.raises(Fatal, match="broken"):
        await dispatcher(Echo(Fatal("broken"))).respond(call())


async def test_the_gate_is_left_after_every_failure() -> None:
    failing = dispatcher(Echo(ValueError("x")))
    for _ in range(3):
        await asyncio.wait_for(failing.respond(call()), 30)


async def test_outputs_are_cut_exactly_once() -> None:
    long = "0123456789" * 1000
    text = await text_of(dispatcher(Echo(ToolOutput(long, True)), tokens=100), call())
    assert text == f"{long[:200]}…2400 tokens truncated…{long[-200:]}"
    bounded = ToolOutput(long, True, bounded=True)
    assert await text_of(dispatcher(Echo(bounded), tokens=100), call()) == long
    parts = (InputText(long), InputImage(image_url="data:x"))
    response = await dispatcher(Echo(ToolOutput(parts, True)), tokens=100).respond(call())
    assert response is not None
    assert isinstance(response.view, FunctionCallOutput)
    assert [type(part) for part in response.view.output] == [InputText, InputImage]


async def test_native_calls_answer_with_items_of_their_own() -> None:
    builder = ToolRegistryBuilder()
    for name in ("shell", "local_shell", "apply_patch"):
        builder.register_handler(name, Shellish(), namespace=NATIVE)
    native = Dispatcher(builder.build()[1], lambda invocation, caller: context())
    shell = await native.respond(ShellCall(call_id="a", action=ShellAction(("ls",), timeout_ms=5)))
    assert shell is not None
    assert shell.view == ShellCallOutput(
        call_id="a", output=(ShellCommandOutput("", '{"commands":["ls"],"timeout_ms":5}', ShellExit(0)),)
    )
    local = await native.respond(LocalShellCall(id="b", action=LocalShellAction(("ls", "-l"))))
    assert local is not None
    assert local.view == LocalShellCallOutput(id="b", call_id="b", output="?")
    patch = await native.respond(ApplyPatchCall(call_id="c", operation=DeleteFile("gone.txt")))
    assert patch is not None
    assert patch.view == ApplyPatchCallOutput(
        call_id="c", status="completed", output='{"type":"delete_file","path":"gone.txt"}'
    )


class Shellish(Echo):
    def matches_kind(self, payload: ToolPayload) -> bool:
        return True


class Hooks:
    def __init__(self, before: BeforeTool = BeforeTool(), after: AfterTool = AfterTool()) -> None:  # noqa: B008
        self._before, self._after = before, after
        self.inputs: list[JsonValue] = []

    async def before(self, invocation: ToolInvocation, tool_input: JsonValue, ctx: ToolContext) -> BeforeTool:
        self.inputs.append(tool_input)
        return self._before

    async def after(
        self, invocation: ToolInvocation, tool_input: JsonValue, output: ToolOutput, ctx: ToolContext
    ) -> AfterTool:
        self.inputs.append(tool_input)
        return self._after


async def test_a_hook_blocks() -> None:
    handler = Echo()
    blocked = dispatcher(handler, hooks=Hooks(BeforeTool(block="not today")))
    assert await text_of(blocked, call()) == "not today"
    assert handler.seen == []


async def test_a_hook_rewrites_what_runs_and_another_what_is_read() -> None:
    handler = Echo()
    hooks = Hooks(BeforeTool(tool_input={"a": 2}), AfterTool(output="replaced"))
    assert await text_of(dispatcher(handler, hooks=hooks), call('{"a":1}')) == "replaced"
    assert hooks.inputs == [{"a": 1}, {"a": 2}]
    assert handler.seen[0].decoded == {"a": 2}


async def test_after_hooks_see_successes_only() -> None:
    hooks = Hooks(after=AfterTool(output="replaced"))
    assert await text_of(dispatcher(Echo(ToolOutput("failed", False)), hooks=hooks), call()) == "failed"


async def test_parallel_calls_run_together_and_a_serial_call_alone() -> None:
    order: list[str] = []
    both = asyncio.Barrier(2)

    class Together(ToolHandler):
        async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
            await asyncio.wait_for(both.wait(), 30)
            order.append("parallel")
            return ToolOutput("", True)

    class Alone(ToolHandler):
        async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
            order.append("serial begins")
            await asyncio.sleep(0)
            order.append("serial ends")
            return ToolOutput("", True)

    builder = ToolRegistryBuilder()
    for name, handler, parallel in (("p", Together(), True), ("s", Alone(), False)):
        builder.push_spec_with_parallel_support(
            ResponsesApiTool(name=name, description="", parameters=FREEFORM_PARAMETERS), parallel
        )
        builder.register_handler(name, handler)
    runs = Dispatcher(builder.build()[1], lambda invocation, caller: context())
    await asyncio.gather(*(runs.respond(call(name=name)) for name in "ppsspp"))
    assert order == ["parallel"] * 2 + ["serial begins", "serial ends"] * 2 + ["parallel"] * 2


async def test_a_cancelled_wait_leaves_the_gate_usable() -> None:
    gate = Gate()
    await gate.enter(False)
    waiting = asyncio.create_task(gate.enter(False))
    behind = asyncio.create_task(gate.enter(True))
    await asyncio.sleep(0)
    waiting.cancel()
    gate.leave(False)
    await asyncio.wait_for(behind, 30)
    gate.leave(True)
    assert gate.try_enter(False)


@pytest.mark.parametrize("shared", [True, False])
async def test_who_was_cancelled_in_the_queue_does_not_leave_for_another(shared: bool) -> None:
    gate = Gate()
    await gate.enter(False)
    waiting = asyncio.create_task(gate.enter(shared))
    behind = asyncio.create_task(gate.enter(not shared))
    await asyncio.sleep(0)
    waiting.cancel()
    gate.leave(False)
    await asyncio.wait([waiting, behind])
    assert not gate.try_enter(False), "the one behind is inside"
    gate.leave(not shared)
    assert gate.try_enter(False)


async def test_a_tool_calls_a_tool_under_its_own_gate() -> None:
    class Outer(ToolHandler):
        async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
            inner = ToolInvocation("inner", "echo", FunctionPayload('{"n":1}'))
            return await ctx.call(inner)

    builder = ToolRegistryBuilder()
    builder.register_handler("echo", Echo())
    builder.register_handler("outer", Outer())
    runs = Dispatcher(builder.build()[1], lambda invocation, caller: msgspec.structs.replace(context(), caller=caller))
    assert await asyncio.wait_for(text_of(runs, call(name="outer")), 30) == '{"n":1}'
    with pytest.raises(RespondToModel, match="unsupported call: no"):
        await runs.call(ToolInvocation("x", "no", FunctionPayload("{}")), context())


async def test_a_deferred_handler_is_made_once() -> None:
    made: list[Echo] = []

    def make() -> Echo:
        made.append(Echo())
        return made[-1]

    builder = ToolRegistryBuilder()
    builder.register_handler("echo", DeferredHandler(make))
    runs = Dispatcher(builder.build()[1], lambda invocation, caller: context())
    assert made == []
    await runs.respond(call())
    await runs.respond(call())
    runs.registry.load_all()
    assert len(made) == 1
    assert runs.registry.loaded() == made


def test_the_first_registration_of_a_name_stays() -> None:
    first, second = Echo(), Echo()
    builder = ToolRegistryBuilder()
    builder.register_handler("echo", first)
    builder.register_handler("echo", second)
    builder.register_handler("echo", second, namespace="mcp__x")
    _, built = builder.build()
    assert built.handler("echo") is first
    assert built.handler("echo", "mcp__x") is second
    assert built.handler("other") is None


def test_an_invocation_is_frozen() -> None:
    invocation = ToolInvocation("c", "t", FunctionPayload("{}"))
    with pytest.raises(AttributeError):
        invocation.call_id = "other"  # type: ignore[misc]
    assert msgspec.structs.replace(invocation, call_id="d").key == (None, "t")
