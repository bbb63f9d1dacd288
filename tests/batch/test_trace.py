"""What was said in a task, from the file of its session."""

from pathlib import Path

import msgspec

from ferrule.batch.trace import conversation, last_words, messages_of, rollout_name
from ferrule.history.compaction import user_message
from ferrule.model.profiles import load_profiles
from ferrule.protocol.content import OutputText
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, Message, ResponseItem, make_item
from ferrule.session.rollout import Rollout


def said(text: str) -> ResponseItem:
    return make_item(Message(role="assistant", content=(OutputText(text),)))


def call(name: str) -> ResponseItem:
    return make_item(FunctionCall(name="shell_command", arguments='{"command":"ls"}', call_id=name))


def output(name: str) -> ResponseItem:
    return make_item(FunctionCallOutput(call_id=name, output="files"))


def written(path: Path, *, whole: bool = True) -> None:
    """A session that was compacted, and whose last call was not answered."""
    rollout = Rollout(path, new=True)
    for item in (user_message("<environment_context>"), user_message("do it"), call("one"), output("one")):
        rollout.item(item)
    rollout.response_end(TokenUsage())
    rollout.item(said("half of it"))
    rollout.response_end(TokenUsage())
    rollout.compacted([user_message("do it"), user_message("summary: half of it")], "half of it")
    rollout.response_end(TokenUsage())
    rollout.item(call("two"))
    if whole:
        rollout.event("error", "it broke off")
    rollout.close()


def test_a_compaction_hides_nothing_and_every_call_has_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    written(path)
    items, whole = conversation(path, "do it")
    assert whole
    assert last_words(items) == "half of it"
    messages = msgspec.json.decode(messages_of(items, load_profiles()))
    assert [(message["role"], message["content"]) for message in messages] == [
        ("user", "do it"), ("assistant", None), ("tool", "files"), ("assistant", "half of it"), ("tool", "aborted"),
    ]  # fmt: skip
    assert [len(message.get("tool_calls", ())) for message in messages] == [0, 1, 0, 1, 0]


def test_a_file_that_was_not_written_to_its_end_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    written(path, whole=False)
    assert not conversation(path, "do it")[1]


def test_every_id_has_a_file_of_its_own() -> None:
    keys = ['"a/b"', '"a-b"', '"../../etc"', '"1"', "1", '"ü"', '"' + "x" * 5000 + '"', '" "', "1.5"]
    names = [rollout_name(key) for key in keys]
    assert len(set(names)) == len(keys)
    assert all("/" not in name and not name.startswith(".") and len(name) < 100 for name in names)
    assert rollout_name("17").startswith("17-")
