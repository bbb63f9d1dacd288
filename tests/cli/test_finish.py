"""The last message of a model that ends its turn by a tool is told like any other."""

from ferrule.testing import ScriptedModel, function_call
from tests.cli.command import Place
from tests.cli.test_exec import exec_against

MESSAGE = "Done.\n" + "\n".join(f"- point {number}" for number in range(60))


def test_s25_escape_sequences_are_shown_and_not_obeyed_in_a_pipe_too(place: Place) -> None:
    evil = "a\x1b]0;title\x07b\x1b[2Jc\u202ed\x9be\r"
    call = function_call("finish", {"message": evil})
    with ScriptedModel([call, call, call]) as model:
        people = exec_against(place, model, "-c", 'tools=["finish"]', "Go.")
        raw = exec_against(place, model, "-c", 'tools=["finish"]', "--raw", "Go.")
        programs = exec_against(place, model, "--json", "-c", 'tools=["finish"]', "Go.")
    assert people.out == "a\\x1b]0;title\\x07b\\x1b[2Jc\\u202ed\\x9be\\r\n"
    assert raw.out.rstrip("\n").rstrip("\r") == evil.rstrip("\r")
    assert {"type": "agent_message", "text": evil}.items() <= programs.items()[-1].items()


def test_the_message_of_finish_is_the_last_message(place: Place) -> None:
    call = function_call("finish", {"message": MESSAGE})
    with ScriptedModel([call, call]) as model:
        people = exec_against(place, model, "-c", 'tools=["finish"]', "Go.")
        programs = exec_against(place, model, "--json", "-c", 'tools=["finish"]', "Go.")
        assert len(model.requests) == 2
    assert (people.code, people.out.strip()) == (0, MESSAGE)
    assert all(line in people.err for line in MESSAGE.split("\n"))
    assert {"type": "agent_message", "text": MESSAGE}.items() <= programs.items()[-1].items()
