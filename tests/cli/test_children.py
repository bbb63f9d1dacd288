"""`ferrule exec` with sub-agents: a parent with three children; one crashes, one asks, one is ended."""

import json
from typing import Any

import pytest

from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel, function_call, http_error
from tests.cli.command import FULL_ACCESS, Place


def ids(request: Any) -> list[str]:
    answers = [json.loads(output.text) for output in request.outputs if output.text.startswith("{")]
    return [str(answer["agent_id"]) for answer in answers if "agent_id" in answer]


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_lines_of_children_name_them(place: Place, wire: Wire) -> None:
    spawns = [function_call("spawn_agent", {"message": text}) for text in ("CRASH", "ASKS", "SLEEPS")]
    script: list[Any] = [
        spawns,
        lambda request: [function_call("wait", {"ids": ids(request)[:1]})],
        lambda request: [function_call("wait", {"ids": ids(request)[1:2]})],
        lambda request: [function_call("close_agent", {"id": ids(request)[2]})],
        "all done",
    ]
    with ScriptedModel(script) as server:
        server.play(http_error(400, "it does not work"), when="CRASH")
        question = {"questions": [{"id": "q", "question": "Which way?"}]}
        server.play([function_call("request_user_input", question)], "nobody told me", when="ASKS")
        server.play([function_call("shell_command", {"command": "sleep 600"})], when="SLEEPS")
        done = place.run(
            "exec", "--json", *FULL_ACCESS, "--base-url", server.base_url, "--wire", wire,
            "-c", "features.multi_agent=true", "go",
        )  # fmt: skip
        assert done.code == 0, done.err
        assert not server.failures
    lines = done.lines
    root = lines[0]["thread_id"]
    children = [line for line in lines if "parent_thread_id" in line]
    assert {line["parent_thread_id"] for line in children} == {root}
    assert len({line["thread_id"] for line in children}) == 3
    kinds = [line["type"] for line in children]
    assert kinds.count("thread.started") == kinds.count("turn.started") == 3
    assert kinds.count("turn.completed") == 1 and kinds.count("turn.failed") == 2
    assert any(line.get("item", {}).get("text") == "nobody told me" for line in children)
    assert lines[-1]["type"] == "turn.completed" and "thread_id" not in lines[-1]
    spent = sum(line["usage"]["input_tokens"] for line in children if line["type"] == "turn.completed")
    assert 0 < spent < lines[-1]["usage"]["input_tokens"]
    took = sum(len(request.raw) // 4 for request in server.requests if request.status == 200)
    assert lines[-1]["usage"]["input_tokens"] == took, "the parent's tokens include those of its descendants"
    crashed, asks, _ = ids(server.last_request)
    answers = [json.loads(output.text) for output in server.last_request.outputs]
    assert [answer.get("status") for answer in answers[3:5]] == [
        {crashed: {"errored": "server answered 400 (scripted_error): it does not work."}},
        {asks: {"completed": "nobody told me"}},
    ]
    assert answers[5] == {"previous_status": "running"}
    notices = server.last_request.user_text.split("<subagent_notification>")[1:]
    assert len(notices) == 2, "each end is told once"
    assert {(crashed in text, "errored" in text, asks in text, "nobody told me" in text) for text in notices} == {
        (True, True, False, False),
        (False, False, True, True),
    }


def test_a_childs_command_that_outlives_its_turn_is_shown_to_its_end(place: Place) -> None:
    """The command ends after the child's turn, when the parent writes the file it waits for."""
    waits = "until test -e go-on; do sleep 0.05; done; echo went-on"
    script: list[Any] = [
        [function_call("spawn_agent", {"message": "START IT"})],
        lambda request: [function_call("wait", {"ids": ids(request)})],
        [function_call("exec_command", {"cmd": "touch go-on; until test -e gone; do sleep 0.05; done"})],
        "all done",
    ]
    with ScriptedModel(script) as server:
        server.play(
            [function_call("exec_command", {"cmd": f"{waits}; touch gone", "yield_time_ms": 250})],
            "it runs",
            when="START IT",
        )
        done = place.run(
            "exec", "--json", *FULL_ACCESS, "--base-url", server.base_url, "-c", "features.multi_agent=true",
            "-c", 'tools=["spawn_agent", "wait", "exec_command"]', "go",
        )  # fmt: skip
    assert done.code == 0, done.err
    completed = [line for line in done.lines if "parent_thread_id" in line and line["type"] == "item.completed"]
    [ended] = [line["item"] for line in completed if "went-on" in line["item"].get("command", "")]
    assert (ended["exit_code"], ended["aggregated_output"]) == (0, "went-on\n")
    assert done.lines[-1]["type"] == "turn.completed" and "thread_id" not in done.lines[-1]
