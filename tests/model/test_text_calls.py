"""Calls as text: each family's form, what is no call, and the request without tools."""

import json
import random
from collections.abc import Iterator

import msgspec
import pytest

from ferrule.model.adapt import WireTool
from ferrule.model.http import Server
from ferrule.model.names import Callee, CallNames
from ferrule.model.profiles import load_profiles
from ferrule.model.stream import (
    CallUnreadable,
    ForcedTool,
    ItemAdded,
    ItemDone,
    OutputFormat,
    TextDelta,
    ToolInputDelta,
)
from ferrule.model.text.client import TextModel
from ferrule.model.text.reader import CallFinder, Ending
from ferrule.model.text.tools import KnownTools
from ferrule.protocol.content import InputImage, InputText, OutputText, text_of
from ferrule.protocol.items import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Message,
    make_item,
)
from tests.model.support import Outcome, Replay, outcome, request, sse, user

PARAMETERS = {"cmd": {"type": "string"}, "times": {"type": "integer"}, "quiet": {"type": ["boolean", "null"]}}
NAMES = ("run", "clock", "apply_patch")
CALL = '{"name": "run", "arguments": {"cmd": "ls -l", "times": 2}}'
WANTED = [("run", {"cmd": "ls -l", "times": 2})]


def tools() -> KnownTools:
    declared = CallNames({(None, name): Callee(name) for name in NAMES})
    spec = {"parameters": {"type": "object", "properties": PARAMETERS}}
    wire = [WireTool(json.dumps({"function": {"name": name, **spec}}).encode(), name, "function") for name in NAMES]
    return KnownTools(wire, lambda name: declared.resolve(name) is not None)


def ways(text: str) -> Iterator[list[str]]:
    yield [text]
    yield list(text)
    for seed in range(3):
        chance, way, rest = random.Random(seed), list[str](), text
        while rest:
            size = chance.randint(1, 9)
            way.append(rest[:size])
            rest = rest[size:]
        yield way


def read(text: str, *, cut: bool = False) -> tuple[str, list[tuple[str, object]], Ending]:
    """What an answer holds; the same however it arrives."""
    results = []
    for way in ways(text):
        finder = CallFinder(tools())
        shown = "".join(map(finder.feed, way))
        ending = finder.finish(cut=cut)
        calls = [(call.name.rpartition(".")[2], json.loads(call.arguments)) for call in ending.calls]
        results.append((shown + ending.text, calls, ending.unread))
    assert all(result == results[0] for result in results), "the pieces change what is read"
    return results[0][0], results[0][1], ending


FAMILIES = {
    "hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "hermes without its end": f"<tool_call>\n{CALL}\n",
    "qwen coder": "<tool_call>\n<function=run>\n<parameter=cmd>\nls -l\n</parameter>\n<parameter=times>\n2\n"
    "</parameter>\n</function>\n</tool_call>",
    "qwen coder without its mark": "<function=run>\n<parameter=cmd>\nls -l\n</parameter>\n<parameter=times>\n2\n"
    "</function>\n</tool_call>",
    "glm": "<tool_call>run\n<arg_key>cmd</arg_key>\n<arg_value>ls -l</arg_value>\n<arg_key>times</arg_key>\n"
    "<arg_value>2</arg_value>\n</tool_call>",
    "invoke": '<function_calls>\n<invoke name="run">\n<parameter name="cmd">ls -l</parameter>\n'
    '<parameter name="times">2</parameter>\n</invoke>\n</function_calls>',
    "minimax": '<minimax:tool_call><invoke name="run"><parameter name="cmd">ls -l</parameter>'
    '<parameter name="times">2</parameter></invoke></minimax:tool_call>',
    "mistral list": f"[TOOL_CALLS] [{CALL}]",
    "mistral": '[TOOL_CALLS]run[CALL_ID]abc123456[ARGS]{"cmd": "ls -l", "times": 2}',
    "llama json": CALL.replace("arguments", "parameters"),
    "llama tag": f"<|python_tag|>{CALL.replace('arguments', 'parameters')}",
    "llama function": '<function=run>{"cmd": "ls -l", "times": 2}</function>',
    "llama 4": "<|python_start|>[run(cmd='ls -l', times=2)]<|python_end|>",
    "python list": '[run(cmd="ls -l", times=2)]',
    "python": 'run("ls -l", times=2)',
    "deepseek 3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>run\n```json\n"
    '{"cmd": "ls -l", "times": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek 3.1": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>run<｜tool▁sep｜>{"cmd": "ls -l", "times": 2}'
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek dsml": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="run">\n<｜DSML｜parameter name="cmd" '
    'string="true">ls -l</｜DSML｜parameter>\n<｜DSML｜parameter name="times" string="false">2</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.run:0<|tool_call_argument_begin|>"
    '{"cmd": "ls -l", "times": 2}<|tool_call_end|><|tool_calls_section_end|>',
    "kimi 3": '<|open|>tools<|sep|><|open|>call tool="run" index="1"<|sep|>'
    '<|open|>argument key="cmd" type="string"<|sep|>ls -l<|close|>argument<|sep|>'
    '<|open|>argument key="times" type="number"<|sep|>2<|close|>argument<|sep|>'
    "<|close|>call<|sep|><|close|>tools<|sep|>",
    "gemma 4": '<|tool_call>call:run{cmd:<|"|>ls -l<|"|>,times:2}<tool_call|>',
    "gemma 3": "```tool_code\nprint(default_api.run(cmd='ls -l', times=2))\n```",
    "gpt-oss": " to=functions.run<|channel|>commentary <|constrain|>json<|message|>"
    '{"cmd": "ls -l", "times": 2}<|call|>',
    "lm studio": f"[TOOL_REQUEST]{CALL}[END_TOOL_REQUEST]",
    "fenced": f"```json\n{CALL}\n```",
    "fenced mark": f"```\n<tool_call>\n{CALL}\n</tool_call>\n```",
    "openai": json.dumps({"tool_calls": [{"id": "1", "type": "function", "function": json.loads(CALL)}]}),
    "name as key": '{"run": {"cmd": "ls -l", "times": 2}}',
    "python quotes": "<tool_call>{'name': 'run', 'arguments': {'cmd': 'ls -l', 'times': 2,}}</tool_call>",
    "last brace missing": f"<tool_call>\n{CALL[:-1]}\n</tool_call>",
}


@pytest.mark.parametrize("form", FAMILIES)
def test_each_familys_form_is_read(form: str) -> None:
    text, calls, ending = read(FAMILIES[form])
    assert (calls, text.strip(), ending.unread) == (WANTED, "", ())


@pytest.mark.parametrize(
    "form", ["hermes", "qwen coder", "glm", "invoke", "mistral", "kimi", "gemma 4", "fenced", "deepseek 3.1"]
)
def test_text_before_a_call_is_shown_and_parallel_calls_are_all_read(form: str) -> None:
    text, calls, _ = read(f"I look first.\n{FAMILIES[form]}\n{FAMILIES[form]}")
    assert (calls, text.rstrip()) == (WANTED * 2, "I look first.")


EXAMPLES = {
    "backquotes": f"Write `<tool_call>{CALL}</tool_call>` to run it.",
    "two backquotes": f"Write ``<tool_call>{CALL}</tool_call>``.",
    "a block beside words": f"```\nA call:\n<tool_call>\n{CALL}\n</tool_call>\n```",
    "a block before words": f"A call looks like this:\n```json\n{CALL}\n```\nI have not run it.",
    "a block of another language": "```python\nrun(cmd='ls -l')\n```",
    "a quotation": f"> <tool_call>{CALL}</tool_call>",
    "indented code": f"The form:\n\n    <tool_call>{CALL}</tool_call>\n",
    "words behind an object": f"{CALL} is the form.",
    "a function in a sentence": 'Call run(cmd="ls") to list.',
    "words behind a function": 'run(cmd="ls")\nwould list the files.',
    "a tool that is none": '{"name": "Ada", "arguments": {"born": 1815}}',
    "an answer in JSON": '{"name": "run", "colour": "red"}\n',
    "the mark alone": "Wrap it in <tool_call> and </tool_call>; [TOOL_CALLS] is Mistral's.",
    "reasoning": f"<think>I could write <tool_call>{CALL}</tool_call>.</think>No need.",
    "reasoning that the prompt opens": f"Perhaps <tool_call>{CALL}</tool_call></think>No need.",
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_call_that_is_shown_is_not_run(example: str) -> None:
    text, calls, ending = read(EXAMPLES[example])
    assert (calls, ending.unread) == ([], ())
    assert text == EXAMPLES[example]


def test_a_mark_within_arguments_is_text() -> None:
    inner = "</parameter> and </function>; <tool_call>x</tool_call>"
    tags = f"<tool_call>\n<function=run>\n<parameter=cmd>\n{inner}\n</parameter>\n</function>\n</tool_call>"
    assert read(tags)[1] == [("run", {"cmd": inner})]
    quoted = json.dumps({"name": "run", "arguments": {"cmd": inner}})
    assert read(f"<tool_call>{quoted}</tool_call>")[1] == [("run", {"cmd": inner})]


def test_the_schema_says_what_a_text_means() -> None:
    lines = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in
                    {"cmd": "12", "times": "12", "quiet": "null"}.items())  # fmt: skip
    assert read(f"<function=run>\n{lines}</function>")[1] == [("run", {"cmd": "12", "times": 12, "quiet": None})]


@pytest.mark.parametrize(
    "rest", ['{"name": "run", "arguments": {"cmd": "rm -r', "", '{"name": "run"', "<function=run>\n<parameter=cmd>\nrm"]
)
def test_a_call_that_a_limit_cuts_is_text(rest: str) -> None:
    whole = f"<tool_call>{CALL}</tool_call>"
    text, calls, ending = read(f"{whole}<tool_call>{rest}", cut=True)
    assert (calls, ending.unread) == (WANTED, ()) and text.endswith(f"<tool_call>{rest}")
    assert read(f"```json\n{CALL}", cut=True)[1] == []


@pytest.mark.parametrize(
    "body", ['{"name": "run", "arguments": {"cmd": "ls" -l}}', '{"name": "run", "arguments": {"cmd": "ls"']
)
def test_a_call_that_cannot_be_read_is_neither_run_nor_completed(body: str) -> None:
    text, calls, ending = read(f"<tool_call>{body}</tool_call>")
    assert (text, calls) == ("", []) and len(ending.unread) == 1


def test_an_answer_with_code_is_shown_as_it_comes() -> None:
    finder = CallFinder(tools())
    shown = [finder.feed(piece) for piece in ("See:\n```python\n", "a = {1: [2]}\n", "```\n", "Done, if a < b.")]
    assert "".join(shown[:3]) == "See:\n```python\na = {1: [2]}\n```\n" and shown[0] and shown[1]


def test_reading_a_long_call_in_small_pieces_takes_linear_time() -> None:
    finder, body = CallFinder(tools()), json.dumps({"name": "run", "arguments": {"cmd": "x = {}\n" * 30_000}})
    text = f"<tool_call>{body}"
    for at in range(0, len(text), 6):
        finder.feed(text[at : at + 6])
    assert len(finder.finish().calls) == 1  # the suite's own limit of time is the bound


@pytest.mark.parametrize(
    "text",
    [" " * 60_000, '{"name": \n' * 9_000, "<tool_call>{a" + " " * 60_000, "<tool_call>[" + CALL * 1_000, "[" * 60_000],
)
def test_no_answer_takes_long_to_read(text: str) -> None:
    for step in (7, len(text)):
        finder = CallFinder(tools())
        for at in range(0, len(text), step):
            finder.feed(text[at : at + step])
        assert not finder.finish().calls  # the suite's own limit of time is the bound


# --- on the wire


def chunks(*texts: str, finish: str = "stop") -> bytes:
    deltas = [{"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    return sse(*deltas, {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}, "[DONE]")


def model(server: Server) -> TextModel:
    profiles = load_profiles()
    knows_custom_tools = msgspec.structs.replace(profiles.providers["generic"], custom_tools=True)
    return TextModel(server, knows_custom_tools, profiles, max_retries=0)


async def answered(*texts: str, finish: str = "stop") -> Outcome:
    return await outcome(model(Replay([chunks(*texts, finish=finish)])), request())


async def test_a_call_in_a_stream_becomes_an_item_and_its_text_is_not_shown() -> None:
    found = await answered(
        "I ", "look.\n", "<tool", '_call>{"name": "exec_command", "arguments": {"cmd": "ls"}}</tool_call>'
    )
    assert "".join(event.delta for event in found.of(TextDelta)) == "I look.\n"
    message, call = found.views
    assert isinstance(message, Message) and text_of(message.content) == "I look."
    assert isinstance(call, FunctionCall) and (call.name, call.arguments) == ("exec_command", '{"cmd": "ls"}')
    assert [event.kind for event in found.of(ItemAdded)] == ["message", "function_call"]
    assert [event.place for event in found.of(ItemDone)] == [1, 2]


async def test_a_freeform_tool_is_called_with_plain_text() -> None:
    patch = '*** Begin Patch\n*** Add File: a\n+"x"\n*** End Patch'
    found = await answered(
        f"<tool_call>\n<function=apply_patch>\n<parameter=input>\n{patch}\n</parameter>\n</function>"
    )
    (call,) = found.views
    assert isinstance(call, CustomToolCall) and call.input == patch
    assert "".join(event.delta for event in found.of(ToolInputDelta)) == patch


async def test_a_call_that_cannot_be_read_is_an_error_that_shows_the_form() -> None:
    found = await answered('Now.\n<tool_call>{"name": "exec_command", "arguments": {"cmd": }}</tool_call>')
    assert isinstance(found.error, CallUnreadable)
    assert "<tool_call>" in found.error.said and '"arguments": {"cmd": }' in found.error.generation
    assert found.error.partial is not None and not found.of(ItemDone)


async def test_a_call_of_the_server_itself_is_still_read() -> None:
    call = {"index": 0, "id": "x", "function": {"name": "exec_command", "arguments": "{}"}}
    stream = sse(
        {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}, "[DONE]"
    )
    found = await outcome(model(Replay([stream])), request())
    assert [type(view) for view in found.views] == [FunctionCall]


async def test_the_request_has_no_tools_and_tells_of_them_in_words() -> None:
    client = model(Replay([]))
    history = (
        user("go"),
        make_item(Message(role="assistant", content=(OutputText("I look."),))),
        make_item(FunctionCall(name="exec_command", arguments='{"cmd": "ls"}', call_id="a")),
        make_item(CustomToolCall(name="apply_patch", input="*** Begin Patch", call_id="b")),
        make_item(FunctionCallOutput(call_id="a", output="one\ntwo")),
        make_item(
            CustomToolCallOutput(
                call_id="b", output=(InputText("seen"), InputImage(image_url="data:image/png;base64,A"))
            )
        ),
    )
    form = OutputFormat(schema={"type": "object"})
    asked = request(*history, output_format=form, tool_choice=ForcedTool("exec_command"))
    body = json.loads(client.body(asked))
    assert not {"tools", "tool_choice", "response_format", "parallel_tool_calls"} & body.keys()
    system, first, said, outputs = body["messages"]
    for words in (
        "<tool_call>",
        '"exec_command"',
        '{"name": "apply_patch"',
        "<parameter=input>",
        "must be a call of `exec_command`",
        "JSON",
    ):
        assert words in system["content"]
    assert first == {"role": "user", "content": "go"}
    assert said["role"] == "assistant" and "tool_calls" not in said
    assert said["content"].startswith('I look.\n<tool_call>\n{"name": "exec_command", "arguments": {"cmd": "ls"}}\n')
    assert "<parameter=input>\n*** Begin Patch\n</parameter>" in said["content"]
    texts = [part["text"] for part in outputs["content"] if part["type"] == "text"]
    assert texts[:2] == ["<tool_response>\none\ntwo\n</tool_response>", "<tool_response>\nseen\n</tool_response>"]
    again = json.loads(client.body(request(*history, user("more"))))
    assert again["messages"][2] == said, "what was written once is not written again"
