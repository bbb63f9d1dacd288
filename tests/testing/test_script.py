"""Scripts: steps in order, expectations, lanes, what is recorded, what is refused."""

import re
from collections.abc import Iterator

import pytest

from ferrule.testing import Request, Script, ScriptedModel, ScriptError, function_call, message, step
from ferrule.testing.steps import StepLike
from tests.testing.client import USER, Client, call, output


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as running:
        yield running


def test_the_same_script_over_both_wires() -> None:
    script = Script((function_call("f", {"a": 1}), "done"))
    with ScriptedModel(script) as model, Client(model) as client:
        first = client.responses([USER])
        last = client.responses([USER, *first["output"], output("call_1", "one")])
        model.check()
        assert last["output"][0]["content"][0]["text"] == "done"
        assert model.outputs() == {"call_1": "one"}
    with ScriptedModel(script) as model, Client(model) as client:
        said = client.chat([USER])["choices"][0]
        assert said["finish_reason"] == "tool_calls"
        tool = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "one"}]}
        last = client.chat([USER, said["message"], tool])["choices"][0]
        model.check()
        assert (last["message"]["content"], last["finish_reason"]) == ("done", "stop")
        assert model.outputs() == {"call_1": "one"}


def test_what_is_recorded(model: ScriptedModel) -> None:
    model.add("a", "b")
    with Client(model) as client:
        client.responses("first")
        client.responses([USER], tools=[{"type": "function", "name": "f"}, {"type": "web_search"}])
    first, second = model.requests
    assert first.finished_ns is not None and first.arrived_ns < first.finished_ns < second.arrived_ns
    assert model.latencies_ns() == [second.arrived_ns - first.finished_ns]
    assert (first.path, first.status, first.step, first.user_text) == ("/v1/responses", 200, 0, "first")
    assert second.tool_names == ["f", "web_search"]
    assert second.headers["content-type"] == "application/json"
    assert model.last_request is second and second.body["model"] == "m"


@pytest.mark.parametrize(
    ("expect", "fits", "reason"),
    [
        ("2 passed", "== 2 passed ==", "expected an output with this text:\n    2 passed"),
        (re.compile(r"^\d+ passed", re.MULTILINE), "ok\n12 passed", r"matches '^\\d+ passed'"),
        (["2", "passed"], "2 passed", "expected an output with this text:\n    2"),
        ({"c1": "2 passed"}, "2 passed", "expected an output with this text"),
        ({"c9": "2 passed"}, None, "expected an output for call 'c9'"),
        (lambda outputs: outputs["c1"] == "yes", "yes", "<lambda> said no"),
    ],
)
def test_expectations(model: ScriptedModel, expect: object, fits: str | None, reason: str) -> None:
    model.add(function_call("f", call_id="c1"), step("done", expect=expect))  # type: ignore[arg-type]
    with Client(model) as client:
        client.responses([USER])
        refused = client.responses([USER, call("c1"), output("c1", "== 1 failed ==")])
        assert refused["error"]["code"] == "script_failed"
        assert reason in refused["error"]["message"]
        assert "== 1 failed ==" in refused["error"]["message"]
        if fits is not None:
            assert client.responses([USER, call("c1"), output("c1", fits)])["status"] == "completed"
    with pytest.raises(AssertionError, match="step 2: "):
        model.check(complete=False)


def test_an_assertion_in_an_expectation_is_reported(model: ScriptedModel) -> None:
    def exactly_one(outputs: object) -> None:
        assert len(outputs) == 1, "one output, please"  # type: ignore[arg-type]

    model.add(step("done", expect=exactly_one))
    with Client(model) as client:
        assert "exactly_one: one output, please" in client.responses()["error"]["message"]


def test_the_failure_shows_the_nearest_lines(model: ScriptedModel) -> None:
    model.add(step("x", expect="Exit code: 0\nOutput:\nhello"))
    with Client(model) as client:
        client.responses([USER, call("c1"), output("c1", "Wall time: 1\nExit code: 1\nOutput:\nhello\n")])
    with pytest.raises(AssertionError) as caught:
        model.check()
    assert "nearest:" in str(caught.value)
    assert "    - Exit code: 0" in str(caught.value) and "    + Exit code: 1" in str(caught.value)


def test_expectations_look_at_new_outputs_only(model: ScriptedModel) -> None:
    model.add(function_call("f", call_id="c1"), function_call("f", call_id="c2"), step("end", expect="one"))
    with Client(model) as client:
        client.responses([USER])
        history = [USER, call("c1"), output("c1", "one")]
        client.responses(history)
        refused = client.responses([*history, call("c2"), output("c2", "two")])
    assert "but" not in refused["error"]["message"]
    assert "c2:" in refused["error"]["message"] and "c1:" not in refused["error"]["message"]


def test_a_retry_after_a_cut_response_sees_the_same_outputs(model: ScriptedModel) -> None:
    model.add(function_call("f", call_id="c1"), step("lost", cut_after=10), step("end", expect="one"))
    history = [USER, call("c1"), output("c1", "one")]
    with Client(model) as client:
        client.responses([USER])
    with Client(model) as client, pytest.raises(Exception, match="IncompleteRead"):
        client.responses(history)
    with Client(model) as client:
        client.responses(history)
    model.check()


def test_b082_repeated_call_ids_are_told_apart(model: ScriptedModel) -> None:
    model.add(function_call("f", call_id="s:0"), function_call("f", call_id="s:0"), step("end", expect="two"))
    with Client(model) as client:
        client.responses([USER])
        history = [USER, call("s:0"), output("s:0", "one")]
        client.responses(history)
        client.responses([*history, call("s:0"), output("s:0", "two")])
    model.check()


def test_steps_left_over_and_requests_too_many(model: ScriptedModel) -> None:
    model.add("a", "b")
    with Client(model) as client:
        client.responses()
        with pytest.raises(AssertionError, match="step 2 of 2 was never asked for"):
            model.check()
        model.check(complete=False)
        client.responses()
        model.check()
        assert "the script has only 2 steps" in client.responses()["error"]["message"]
    assert len(model.failures) == 1


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([USER, call("c1")], "No tool output found for the call c1."),
        ([USER, output("c1", "x")], "No tool call found for the output with call_id c1."),
        ([USER, output("c1", "x"), call("c1")], "No tool call found"),
        ([USER, call("c1"), output("c1", "x"), output("c1", "x")], "No tool call found"),
        ([USER, call("c1"), call("c1"), output("c1", "x")], "No tool output found"),
        (
            [USER, {"type": "local_shell_call", "id": "l", "call_id": "c"}, {"type": "local_shell_call_output"}],
            "for the call c",
        ),
    ],
)
def test_a_history_that_real_servers_refuse(history: list[dict[str, object]], reason: str) -> None:
    with ScriptedModel("a") as model, Client(model) as client:
        assert reason in client.responses(history)["error"]["message"]
    with ScriptedModel("a", strict=False) as model, Client(model) as client:
        assert client.responses(history)["status"] == "completed"


def test_a_local_shell_output_may_name_the_item_or_the_call(model: ScriptedModel) -> None:
    model.add("a", "b")
    shell = {"type": "local_shell_call", "id": "lsh_1", "call_id": "c1"}
    with Client(model) as client:
        for answer in ({"id": "lsh_1"}, {"call_id": "c1"}):
            client.responses([USER, shell, {"type": "local_shell_call_output", "output": "x", **answer}])
    model.check()


def test_b080_an_empty_assistant_turn_is_refused(model: ScriptedModel) -> None:
    model.add("a")
    with Client(model) as client:
        refused = client.chat([USER, {"role": "assistant", "content": None}])
    assert "messages.1: an assistant message without content needs tool_calls" in refused["error"]["message"]


def test_a_function_as_a_step(model: ScriptedModel) -> None:
    def echo(request: Request) -> str:
        return f"you said {request.user_text}"

    model.add(echo, lambda _request: step(message("x"), expect="never"))
    with Client(model) as client:
        assert client.responses("hi")["output"][0]["content"][0]["text"] == "you said hi"
        assert "but no tool output arrived" in client.responses("hi")["error"]["message"]


@pytest.mark.parametrize(
    "failing",
    [
        lambda request: str(1 // 0),
        step("x", expect=lambda outputs: 1 // 0),
        step("x", edits=lambda events: [events[1 // 0]]),
    ],
)
def test_a_function_that_fails_is_reported(failing: StepLike) -> None:
    with ScriptedModel(["first", failing]) as model, Client(model) as client:
        client.responses()
        assert "ZeroDivisionError" in client.responses(stream=True)["error"]["message"]
        with pytest.raises(AssertionError, match=r"step 2: Traceback(.|\n)*1 // 0"):
            model.check()


def test_a_function_alone_answers_every_request() -> None:
    with ScriptedModel(lambda request: str(len(request.items))) as model, Client(model) as client:
        assert [client.responses([USER] * n)["output"][0]["content"][0]["text"] for n in (1, 2, 3)] == ["1", "2", "3"]
        model.check()


def test_a_repeating_script_gives_new_ids() -> None:
    with ScriptedModel(Script((function_call("f"),), repeat=True)) as model, Client(model) as client:
        ids = [client.responses()["output"][0]["call_id"] for _ in range(3)]
    assert ids == ["call_1", "call_2", "call_3"]


def test_conversations_with_scripts_of_their_own(model: ScriptedModel) -> None:
    model.add("main")
    model.play("child one", "child two", when="explore")
    with Client(model) as client:
        texts = [client.responses(ask)["output"][0]["content"][0]["text"] for ask in ("explore x", "go", "explore y")]
        assert texts == ["child one", "main", "child two"]
        model.check()
        assert "lane 'explore', step 3" in client.responses("explore")["error"]["message"]


@pytest.mark.parametrize("bad", [[1], [{"name": "f"}], [[{"type": 3}]], [None]])
def test_a_wrong_script_is_refused_where_it_is_written(bad: list[object]) -> None:
    with pytest.raises(ScriptError):
        ScriptedModel(bad)  # type: ignore[arg-type]


def test_what_the_server_does_not_know(model: ScriptedModel) -> None:
    with Client(model) as client:
        assert client.post("embeddings", {}).status == 404
    with Client(model) as client:
        assert client.post("responses", b"{nope").status == 400
