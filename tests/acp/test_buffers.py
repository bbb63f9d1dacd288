"""Files that are open in the editor: read, changed and refused as they stand there."""

from typing import Any

import pytest

from ferrule.testing import function_call, message
from tests.acp.calls import edit
from tests.acp.editor import WITH_FILES, Door

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_patch_is_a_diff_of_whole_files_with_absolute_paths(door: Door) -> None:
    path = door.place.cwd / "whole.txt"
    path.write_text("one\ntwo\nthree\n")
    patch = "*** Begin Patch\n*** Update File: whole.txt\n@@\n-two\n+2\n*** Add File: fresh.txt\n+new\n*** End Patch"
    door.model.play([function_call("apply_patch", {"input": patch}, call_id="c1")], [message("ok")], when="whole-files")
    session = await door.new()
    await door.say(session, "whole-files")
    call = door.editor.calls()["c1"]
    assert (call["kind"], call["status"]) == ("edit", "completed")
    assert [(part["path"], part.get("oldText"), part["newText"]) for part in call["content"]] == [
        (str(path), "one\ntwo\nthree\n", "one\n2\nthree\n"),
        (str(door.place.cwd / "fresh.txt"), None, "new\n"),
    ]
    assert [place["path"] for place in call["locations"]] == [str(path), str(door.place.cwd / "fresh.txt")]
    assert not door.editor.written and path.read_text() == "one\n2\nthree\n"


async def test_a_patch_reads_and_writes_what_stands_in_the_editor(door: Door) -> None:
    path = door.place.cwd / "buffer.txt"
    path.write_text("saved\n")
    again = {"command": "str_replace", "path": str(path), "old_str": "edited", "new_str": "again"}
    door.model.play(
        [function_call("read_file", {"file_path": str(path)}, call_id="r1")],
        [function_call("apply_patch", {"input": edit(path, "unsaved", "edited")}, call_id="c1")],
        [function_call("file_editor", again, call_id="c2")],
        [message("ok")],
        when="in-the-editor",
    )  # fmt: skip
    session = await door.new(WITH_FILES)
    door.editor.buffers[str(path)] = "unsaved\nmine\n"
    await door.say(session, "in-the-editor")
    assert "unsaved" in str(door.editor.calls()["r1"]["content"])
    (part,) = door.editor.calls()["c1"]["content"]
    assert (part["oldText"], part["newText"]) == ("unsaved\nmine\n", "edited\nmine\n")
    assert door.editor.written == {str(path): "again\nmine\n"} and path.read_text() == "again\nmine\n"
    await door.say(session, "/undo")
    assert path.read_text() == "unsaved\nmine\n" and "taken back" in door.editor.text  # not "saved"


async def test_an_editing_tool_sees_what_stands_in_the_editor(door: Door) -> None:
    path = door.place.cwd / "typed.txt"
    path.write_text("saved\n")
    replace = {"command": "str_replace", "path": str(path), "old_str": "unsaved", "new_str": "edited"}
    door.model.play([function_call("file_editor", replace, call_id="c1")], [message("ok")], when="editing-tool-sees")
    session = await door.new(WITH_FILES)
    door.editor.buffers[str(path)] = "unsaved\nmine\n"
    await door.say(session, "editing-tool-sees")
    assert door.editor.written == {str(path): "edited\nmine\n"} and path.read_text() == "edited\nmine\n"


async def test_what_may_be_written_is_decided_before_the_editor_writes(door: Door) -> None:
    outside = door.place.cwd / "protected.txt"
    door.model.play(
        [function_call("apply_patch", {"input": edit(outside, "a", "b")}, call_id="c1")],
        [message("ok")],
        when="is-decided",
    )
    session = await door.new(WITH_FILES)
    await door.conn.set_session_mode(session_id=session.session_id, mode_id="read-only")
    door.editor.buffers[str(outside)] = "a\n"
    door.editor.choose = lambda options: None
    await door.say(session, "is-decided")
    (asked,) = door.editor.asked
    assert [part.type for part in asked[0].content or []] == ["diff", "content"]
    assert not door.editor.written and not outside.exists()
    assert door.editor.calls()["c1"]["status"] == "failed"


async def test_a_buffer_that_changes_while_the_user_is_asked_is_not_overwritten(door: Door) -> None:
    path = door.place.cwd / "race.txt"
    path.write_text("saved\n")
    door.model.play(
        [function_call("apply_patch", {"input": edit(path, "unsaved", "edited")}, call_id="c1")],
        [message("ok")],
        when="race-of-two",
    )
    session = await door.new(WITH_FILES)
    await door.conn.set_config_option(config_id="approval", session_id=session.session_id, value="untrusted")
    await door.conn.set_session_mode(session_id=session.session_id, mode_id="read-only")
    door.editor.buffers[str(path)] = "unsaved\n"

    def types(options: list[Any]) -> str:
        door.editor.buffers[str(path)] = "unsaved\nand more\n"
        return str(options[0].option_id)

    door.editor.choose = types
    await door.say(session, "race-of-two")
    assert "changed in the user's editor" in str(door.editor.calls()["c1"]["content"])
    assert path.read_text() == "saved\n" and not door.editor.written


async def test_an_editor_that_does_not_take_a_file_is_told_of(door: Door) -> None:
    path = door.place.cwd / "refused.txt"
    path.write_text("a\n")
    door.model.play(
        [function_call("apply_patch", {"input": edit(path, "a", "b")}, call_id="c1")],
        [message("ok")],
        when="does-not-take",
    )
    session = await door.new(WITH_FILES)
    door.editor.write_fault = "it is locked"
    await door.say(session, "does-not-take")
    assert path.read_text() == "b\n" and "it is locked" in door.editor.text
