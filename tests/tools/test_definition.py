"""Action -> Observation tools, in each way in which one can be made."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import Field
from rich.console import Console

from ferrule import (
    Action,
    Observation,
    RespondToModel,
    ToolAnnotations,
    ToolContext,
    ToolDefinition,
    ToolExecutor,
    ToolInvocation,
)
from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.protocol.content import ContentPart, InputText
from ferrule.protocol.items import FunctionCall
from ferrule.protocol.payload import CustomPayload, FunctionPayload, ToolOutput
from ferrule.protocol.specs import FreeformTool, FreeformToolFormat, ResponsesApiTool
from ferrule.tools.definition import ToolBase
from ferrule.tools.effects import ToolEffect
from ferrule.tools.events import ActionEvent, ObservationEvent
from ferrule.tools.registry import ToolRegistryBuilder
from tests.tools.contexts import RecordingHost, context


class CountWords(Action):
    """Count the words of a text."""

    text: str = Field(description="The text")
    unique: bool = False


class WordCount(Observation):
    words: int


class Counter(ToolExecutor[CountWords, WordCount]):
    async def __call__(self, action: CountWords, ctx: ToolContext) -> WordCount:
        words = action.text.split()
        return WordCount(words=len(set(words) if action.unique else words))


def invoke(arguments: str, **more: Any) -> ToolInvocation:
    return ToolInvocation("call_1", "count_words", FunctionPayload(arguments), **more)


async def test_what_is_not_given_is_taken_from_what_is() -> None:
    tool = ToolDefinition[CountWords, WordCount](executor=Counter(), annotations=ToolAnnotations(readOnlyHint=True))
    assert tool.name == "count_words"
    assert tool.description == "Count the words of a text."
    assert tool.observation_type is WordCount
    assert tool.parallel
    spec = tool.spec
    assert isinstance(spec, ResponsesApiTool)
    assert dict(spec.parameters.mapping) == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "The text"},
            "unique": {"type": "boolean", "default": False},
        },
        "required": ["text"],
        "additionalProperties": False,
    }
    assert tool.to_openai_tool()["function"]["name"] == "count_words"
    assert tool.to_responses_tool()["strict"] is False


async def test_a_call_is_validated_run_and_told() -> None:
    tool = ToolDefinition(executor=Counter())
    host = RecordingHost()
    output = await tool.handle(invoke('{"text":"a b a","unique":true,"surplus":1}'), context(host))
    assert output == ToolOutput('{"words":2}', True)
    action, observation = host.events
    assert isinstance(action, ActionEvent)
    assert action.action == CountWords(text="a b a", unique=True)
    assert isinstance(observation, ObservationEvent)
    assert observation.observation == WordCount(words=2)
    assert host.effects == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"unique":false}', "text"),
        ('{"text":1}', "text"),
        ('{"text":"a","unique":"yes"}', "unique"),
        ("nonsense", "parse"),
    ],
)
async def test_wrong_arguments_are_the_models_mistake(arguments: str, problem: str) -> None:
    with pytest.raises(RespondToModel, match=problem):
        await ToolDefinition(executor=Counter()).handle(invoke(arguments), context())


async def test_rewritten_input_is_what_runs() -> None:
    tool = ToolDefinition(executor=Counter())
    output = await tool.handle(invoke('{"text":"a b"}', decoded={"text": "one two three"}), context())
    assert output.text == '{"words":3}'


def test_action_from_arguments() -> None:
    tool = ToolDefinition(executor=Counter())
    assert tool.action_from_arguments({"text": "x"}) == CountWords(text="x")
    with pytest.raises(RespondToModel):
        tool.action_from_arguments({})


async def test_an_executor_without_context_is_one_effect_unless_it_only_reads() -> None:
    class Plain(ToolExecutor[CountWords, WordCount]):
        async def __call__(self, action: CountWords) -> WordCount:
            return WordCount(words=0)

    host = RecordingHost()

    async def run(tool: ToolDefinition[CountWords, WordCount], arguments: str) -> ToolOutput:
        builder = ToolRegistryBuilder()
        builder.register_handler(tool.name, tool)
        dispatcher = Dispatcher(builder.build()[1], lambda invocation, caller: context(host))
        routed = dispatcher.route(FunctionCall(call_id="c", name=tool.name, arguments=arguments))
        assert routed is not None
        return await dispatcher.run(routed)

    assert not (await run(ToolDefinition(executor=Plain()), "{}")).success
    assert host.effects == []
    await run(ToolDefinition(executor=Plain()), '{"text":""}')
    [effect] = host.effects
    assert isinstance(effect, ToolEffect)
    assert (effect.name, effect.arguments) == ("count_words", '{"text":""}')
    reading = ToolDefinition(executor=Plain(), annotations=ToolAnnotations(readOnlyHint=True))
    await run(reading, '{"text":""}')
    assert len(host.effects) == 1


async def test_a_tool_is_called_with_an_action_and_without_a_context_where_it_needs_none() -> None:
    class Plain(ToolExecutor[CountWords, WordCount]):
        def __call__(self, action: CountWords) -> WordCount:
            return WordCount(words=len(action.text.split()))

    reads = ToolDefinition[CountWords, WordCount](executor=Plain(), annotations=ToolAnnotations(readOnlyHint=True))
    assert await reads(CountWords(text="a b")) == WordCount(words=2)
    writes = ToolDefinition[CountWords, WordCount](executor=Plain())
    host = RecordingHost()
    assert await writes(CountWords(text="a"), context(host)) == WordCount(words=1)
    assert [type(effect) for effect in host.effects] == [ToolEffect]
    for tool in (writes, ToolDefinition[CountWords, WordCount](executor=Counter())):
        assert await tool(CountWords(text="a")) == WordCount(words=1)


async def test_a_plain_executor_runs_on_a_thread_unless_it_says_it_does_not_block() -> None:
    class Blocking(ToolExecutor[CountWords, WordCount]):
        def __call__(self, action: CountWords) -> WordCount:
            seen.append(threading.current_thread())
            return WordCount(words=0)

    class Instant(Blocking):
        blocking = False

    seen: list[threading.Thread] = []
    await ToolDefinition(executor=Blocking()).handle(invoke('{"text":""}'), context())
    await ToolDefinition(executor=Instant()).handle(invoke('{"text":""}'), context())
    assert [thread is threading.current_thread() for thread in seen] == [False, True]


async def test_a_subclass_with_create_makes_configured_tools(tmp_path: Path) -> None:
    from tests.builtin.states import conversation

    class Tally(ToolExecutor[CountWords, WordCount]):
        def __init__(self, start: int) -> None:
            self.total = start
            self.closed = 0

        async def __call__(self, action: CountWords, ctx: ToolContext) -> WordCount:
            self.total += 1
            return WordCount(words=self.total)

        async def close(self) -> None:
            self.closed += 1

    class TallyTool(ToolDefinition[CountWords, WordCount]):
        @classmethod
        def create(cls, conv_state: Any, start: int = 0, **params: Any) -> Sequence[ToolDefinition[Any, Any]]:
            return [cls(name=name, executor=Tally(start)) for name in ("tally", "count")]

    tool, other = TallyTool.create(conversation(tmp_path), start=5)
    assert (tool.name, other.name) == ("tally", "count")
    assert tool.action_type is CountWords
    assert (await tool(CountWords(text=""), context())).words == 6
    await tool.close()
    assert tool.executor.closed == 1  # type: ignore[union-attr]


async def test_a_freeform_tool_takes_the_raw_input() -> None:
    form = FreeformToolFormat(type="grammar", syntax="regex", definition=".*")
    tool = ToolDefinition(executor=Counter(), freeform=form)
    assert isinstance(tool.spec, FreeformTool)
    invocation = ToolInvocation("c", "count_words", CustomPayload('{"not": json'))
    assert tool.matches_kind(invocation.payload)
    assert (await tool.handle(invocation, context())).text == '{"words":2}'
    assert (await tool.handle(invoke('{"text":"as json"}'), context())).text == '{"words":2}'
    assert tool.to_openai_tool()["function"]["parameters"]["required"] == ["input"]


async def test_freeform_input_is_checked_against_its_grammar() -> None:
    form = FreeformToolFormat(type="grammar", syntax="lark", definition='start: "a" "b"+')
    tool = ToolDefinition(executor=Counter(), freeform=form)
    assert (await tool.handle(ToolInvocation("c", "count_words", CustomPayload("abb")), context())).success
    with pytest.raises(RespondToModel, match="does not follow the tool's grammar"):
        await tool.handle(ToolInvocation("c", "count_words", CustomPayload("ba")), context())
    free = ToolDefinition(executor=Counter(), freeform=form, own_parser=True)
    assert (await free.handle(ToolInvocation("c", "count_words", CustomPayload("ba")), context())).success


async def test_strict_mode_is_in_the_schema_or_not_claimed() -> None:
    strict = ToolDefinition(executor=Counter(), strict=True).to_responses_tool()
    assert strict["strict"] is True
    assert strict["parameters"]["required"] == ["text", "unique"]

    class Free(Action):
        headers: dict[str, str]

    loose = ToolDefinition[Free, WordCount](action_type=Free, strict=True).to_responses_tool()
    assert loose["strict"] is False


async def test_an_observation_says_what_the_model_reads() -> None:
    class Seen(Observation):
        text: str

        @property
        def to_llm_content(self) -> Sequence[ContentPart]:
            return [InputText(self.text), InputText("more")]

        @property
        def success(self) -> bool:
            return False

    class Look(ToolExecutor[CountWords, Seen]):
        async def __call__(self, action: CountWords, ctx: ToolContext) -> Seen:
            return Seen(text="\ud800")

    output = await ToolDefinition(executor=Look()).handle(invoke('{"text":""}'), context())
    assert output.body == (InputText("\ud800"), InputText("more"))
    assert output.success is False


def test_actions_are_shown_to_people() -> None:
    console = Console(width=60)
    with console.capture() as captured:
        console.print(CountWords(text="[red]hi").visualize)
    assert captured.get() == "text: [red]hi\nunique: False\n"


def test_a_class_of_tools_has_to_create_them() -> None:
    class Unfinished(ToolBase[CountWords, WordCount]):
        pass

    with pytest.raises(TypeError, match="create"):
        Unfinished()  # type: ignore[abstract]


def test_a_definition_without_types_is_refused() -> None:
    with pytest.raises(TypeError, match="needs an action_type"):
        ToolDefinition()


async def test_a_tool_without_executor_says_so() -> None:
    with pytest.raises(RespondToModel, match="has no executor"):
        await ToolDefinition(action_type=CountWords).handle(invoke('{"text":""}'), context())


def test_annotations_are_those_of_the_protocol() -> None:
    said = {
        "title": "T",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert msgspec.to_builtins(msgspec.convert(said, ToolAnnotations)) == said
    unsaid = ToolAnnotations()
    assert (unsaid.readOnlyHint, unsaid.destructiveHint, unsaid.idempotentHint, unsaid.openWorldHint) == (
        False, None, False, True,
    )  # fmt: skip
