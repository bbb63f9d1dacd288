"""A few kills of `scripts/crash`, and proof that its checks see what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule.protocol.specs import Wire
from ferrule.testing import Request
from tests.cli.conftest import forker
from tests.cli.warm import Warm, WarmPlace
from tests.crash.files import Files
from tests.crash.scene import Moment, Scene, at_change, at_request, folder_of, kill
from tests.crash.wires import refusals

__all__ = ["forker"]


@pytest.mark.parametrize(
    ("wire", "confined", "moment", "again"),
    [
        ("responses", False, at_change(25, "half"), None),
        ("responses", True, at_request(3, 0.05), None),
        ("chat", False, at_request(8, 0.0), at_request(11, 0.02)),
        ("chat", True, at_change(60, "after"), None),
    ],
)
def test_a_killed_session_goes_on_and_does_nothing_twice(
    tmp_path: Path, forker: Warm, wire: Wire, confined: bool, moment: Moment, again: Moment | None
) -> None:
    place = folder_of(tmp_path, 0)
    with Scene(WarmPlace(place.cwd, place.home, forker), wire, confined) as scene:
        begun, problems = kill(scene, moment, again, last=not confined)
        assert begun and problems == []
        assert scene.story.answers


def asked(wire: Wire, items: list[Any]) -> Request:
    body = {"messages" if wire == "chat" else "input": items}
    return Request(wire, "POST", "/v1", {}, json.dumps(body).encode(), body, 0)


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


def output(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "x"}


def calls(*call_ids: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": call_id} for call_id in call_ids]}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


USER = {"role": "user", "content": "go"}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([USER, call("a"), call("b"), output("b"), output("a")], []),
        ([call("a")], ["no output found for the call a"]),
        ([output("a"), call("a")], ["no call found for the output of a"]),
        ([call("a"), output("a"), output("a")], ["two outputs of a"]),
        ([call("a"), output("a"), call("a")], ["two calls have the id a"]),
        ([call("a"), USER, output("a")], ["the user speaks before the outputs of ['a']"]),
    ],
)
def test_what_the_responses_wire_refuses_is_seen(items: list[Any], words: list[str]) -> None:
    assert refusals(asked("responses", items)) == words


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([USER, calls("a", "b"), result("b"), result("a"), USER], []),
        ([calls("a")], ["no outputs found for ['a']"]),
        ([calls("a", "b"), result("a"), USER, result("b")], ["user speaks before the outputs of ['b']", "follows"]),
        ([calls("a"), result("a"), result("a")], ["the output of a follows no message with its call"]),
        ([calls("a"), result("a"), calls("a"), result("a")], ["two calls have the id a"]),
        ([{"role": "assistant", "content": None}], ["an assistant says nothing"]),
    ],
)
def test_what_the_chat_wire_refuses_is_seen(items: list[Any], words: list[str]) -> None:
    found = refusals(asked("chat", items))
    assert len(found) == len(words) and all(word in one for word, one in zip(words, found, strict=True))


def test_half_a_file_and_a_file_of_ours_are_seen(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.lay_out("one.txt")
    files.add("new")
    files.update("one.txt")
    assert files.problems() == []
    (tmp_path / "one.txt").write_text("first 1\n")
    (tmp_path / "new").write_text("first")
    (tmp_path / ".ferrule-1").touch()
    assert [one.split()[0] for one in files.problems()] == ["one.txt", "new", "left"]
