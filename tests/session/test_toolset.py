"""A toolset in somebody else's loop."""

import asyncio
import json
from pathlib import Path

import pytest

from ferrule import Action, Observation, Tool, ToolAnnotations, ToolDefinition, ToolExecutor, Toolset, tool
from ferrule.protocol.errors import UsageError
from ferrule.protocol.specs import ApplyPatchTool, LocalShell, ShellTool
from ferrule.session.sources import split_tools
from ferrule.sync import call_async_from_sync
from ferrule.tools.conversation import ConversationState
from tests.builtin.states import conversation

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch"
AS_JSON = json.dumps({"input": PATCH})


@tool(annotations=ToolAnnotations(readOnlyHint=True))
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


def open_toolset(tmp_path: Path, model: str = "gpt-4.1", **more: object) -> Toolset:
    return Toolset.for_model(model, cwd=tmp_path, sandbox="danger-full-access", **more)  # type: ignore[arg-type]


def test_responses_calls_are_answered_in_call_order(tmp_path: Path) -> None:
    with open_toolset(tmp_path, tools=["shell_command", "apply_patch", shout]) as tools:
        names = [spec["name"] for spec in tools.specs()]
        assert names == ["shell_command", "apply_patch", "shout"]
        answers = tools.run_sync(
            [
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "a", "name": "shout", "arguments": '{"text":"hi"}'},
                {
                    "type": "function_call",
                    "call_id": "b",
                    "name": "apply_patch",
                    "arguments": AS_JSON,
                },
            ]
        )
    assert answers[0] == {"type": "function_call_output", "call_id": "a", "output": "HI"}
    assert answers[1]["call_id"] == "b"
    assert "A new.txt" in answers[1]["output"]
    assert (tmp_path / "new.txt").read_text() == "hello\n"


def test_a_freeform_patch_is_taken_as_text_and_over_chat_as_json(tmp_path: Path) -> None:
    with open_toolset(tmp_path, "gpt-5.5", tools=["apply_patch"]) as tools:
        assert tools.specs()[0]["type"] == "custom"
        [chat] = tools.specs("chat")
        assert chat["type"] == "function"
        assert chat["function"]["parameters"]["required"] == ["input"]
        [answer] = tools.run_sync([{"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": PATCH}])
        assert answer["type"] == "custom_tool_call_output"
        (tmp_path / "new.txt").unlink()
        call = {
            "id": "d",
            "type": "function",
            "function": {"name": "apply_patch", "arguments": AS_JSON},
        }
        [message] = tools.run_sync([call])
    assert message["role"] == "tool"
    assert message["tool_call_id"] == "d"
    assert (tmp_path / "new.txt").exists()


def test_the_objects_of_the_sdk_are_taken_as_they_are(tmp_path: Path) -> None:
    from openai.types.chat import ChatCompletionMessageFunctionToolCall
    from openai.types.chat.chat_completion_message_function_tool_call import Function
    from openai.types.responses import ResponseFunctionToolCall

    with open_toolset(tmp_path, tools=[shout]) as tools:
        call = ResponseFunctionToolCall(type="function_call", call_id="a", name="shout", arguments='{"text":"x"}')
        assert tools.run_sync([call])[0]["output"] == "X"
        function = Function(name="shout", arguments='{"text":"y"}')
        chat = ChatCompletionMessageFunctionToolCall(id="b", type="function", function=function)
        assert tools.run_sync([chat]) == [{"role": "tool", "tool_call_id": "b", "content": "Y"}]


def test_calls_that_fail_are_answers(tmp_path: Path) -> None:
    with open_toolset(tmp_path, tools=[shout]) as tools:
        answers = tools.run_sync(
            [
                {"type": "function_call", "call_id": "a", "name": "shuot", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "shout", "arguments": '{"text'},
                {"type": "custom_tool_call", "call_id": "c", "name": "shout", "input": "hi"},
            ]
        )
    assert answers[0]["output"] == "unsupported call: shuot (did you mean shout?)"
    assert answers[1]["output"].startswith("failed to parse function arguments: ")
    assert answers[2] == {
        "type": "custom_tool_call_output",
        "call_id": "c",
        "output": "shout takes JSON arguments; call it as a function, not with freeform input",
    }


def test_a_toolset_belongs_to_one_loop(tmp_path: Path) -> None:
    tools = open_toolset(tmp_path, tools=[shout])
    tools.run_sync([])
    with pytest.raises(RuntimeError, match="belongs to another event loop"):
        asyncio.run(tools.run([]))
    tools.close()


def test_tools_are_chosen_by_name_glob_and_expression(tmp_path: Path) -> None:
    async def chosen(*patterns: str) -> list[str]:
        return split_tools(patterns, conversation(tmp_path))[0]

    assert call_async_from_sync(chosen, "update_plan") == ["update_plan"]
    assert "apply_patch" in call_async_from_sync(chosen, "apply_*")
    assert call_async_from_sync(chosen, "/^update/") == ["update_plan"]
    with pytest.raises(UsageError, match=r"unknown tool 'aply_patch'; did you mean apply_patch"):
        call_async_from_sync(chosen, "aply_patch")


def test_a_spec_means_a_built_in_tool_too(tmp_path: Path) -> None:
    tools = open_toolset(tmp_path, tools=[Tool("glob"), "grep", Tool("glob")])
    assert [spec["name"] for spec in tools.specs()] == ["glob", "grep"]
    tools.close()
    with pytest.raises(UsageError, match="'glob' takes no params"):
        open_toolset(tmp_path, tools=[Tool("glob", {"working_dir": "/"})])
    with pytest.raises(UsageError, match="unknown tool 'glop'; did you mean glob"):
        open_toolset(tmp_path, tools=[Tool("glop")])


def test_native_specs_and_classes_are_tools(tmp_path: Path) -> None:
    class Note(Action):
        text: str

    class Write(ToolExecutor[Note, Observation]):
        def __call__(self, action: Note) -> Observation:
            return Observation()

    class Notes(ToolDefinition[Note, Observation]):
        @classmethod
        def create(cls, conv_state: ConversationState, **params: object) -> "list[Notes]":
            return [cls(name=name, executor=Write()) for name in ("note", conv_state.cwd[-4:])]

    tools = open_toolset(tmp_path, tools=[LocalShell(), ShellTool(), ApplyPatchTool(), Notes])
    shown = [spec.get("name", spec["type"]) for spec in tools.specs()]
    assert shown == ["local_shell", "shell", "apply_patch", "note", str(tmp_path)[-4:]]
    tools.close()
    with pytest.raises(UsageError, match="dict is not a tool: give a name"):
        open_toolset(tmp_path, tools=[{"type": "web_search"}])


def test_wrong_words_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown sandbox mode 'yolo'; it is one of read-only"):
        Toolset.for_model("m", cwd=tmp_path, sandbox="yolo")
    with pytest.raises(UsageError, match=r"the working directory .*/nowhere does not exist"):
        Toolset.for_model("m", cwd=tmp_path / "nowhere")


def test_two_tools_of_one_name_are_refused(tmp_path: Path) -> None:
    tools = open_toolset(tmp_path, tools=[shout, shout])
    with pytest.raises(UsageError, match="two tools are named 'shout'"):
        tools.specs()
    tools.close()
