"""The patch tool in its three forms, through the whole dispatch."""

import json
import os
import re
from pathlib import Path

import pytest

from ferrule import Toolset
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import PatchApplyBegin, PatchApplyEnd, PatchApplyProgress, TurnDiff
from ferrule.protocol.items import (
    ApplyPatchCall,
    ApplyPatchCallOutput,
    CreateFile,
    CustomToolCall,
    DeleteFile,
    FunctionCall,
    ItemView,
    PatchOperation,
    UpdateFile,
)
from ferrule.protocol.payload import FunctionPayload
from ferrule.protocol.permissions import SandboxPolicy, WorkspaceWrite
from ferrule.tools.context import ToolInvocation


class FrontEnd:
    can_answer = False

    def __init__(self) -> None:
        self.events: list[object] = []

    def on_event(self, event: object) -> None:
        self.events.append(event)


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


class Tools:
    """A toolset in a folder of its own, and the text of its answers."""

    def __init__(self, folder: Path, model: str, sandbox: str | SandboxPolicy = "workspace-write") -> None:
        self.front_end = FrontEnd()
        self.toolset = Toolset.for_model(
            model, cwd=folder, sandbox=sandbox, tools=["*apply_patch"], on_event=self.front_end.on_event
        )
        self.dispatcher = self.toolset.dispatcher("turn")

    async def answer(self, view: ItemView) -> str:
        response = await self.dispatcher.respond(view)
        assert response is not None
        return str(response.view.output)  # type: ignore[union-attr]

    async def native(self, operation: PatchOperation) -> ApplyPatchCallOutput:
        response = await self.dispatcher.respond(ApplyPatchCall(call_id="n", operation=operation))
        assert response is not None
        assert isinstance(response.view, ApplyPatchCallOutput)
        return response.view


@pytest.fixture(params=["freeform", "input", "patch", "command"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def call(form: str, text: str) -> ItemView:
    if form == "freeform":
        return CustomToolCall(call_id="c", name="apply_patch", input=text)
    arguments = {"command": ["apply_patch", text]} if form == "command" else {form: text}
    return FunctionCall(call_id="c", name="apply_patch", arguments=json.dumps(arguments))


async def test_every_form_applies(form: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    tools = Tools(tmp_path, "gpt-5.5")
    text = patch("*** Update File: a.txt", "@@", " one", "-two", "+TWO", "*** Add File: sub/b.txt", "+new")
    answer = await tools.answer(call(form, text))
    assert re.sub(r"Wall time: [\d.]+ ", "Wall time: 0 ", answer) == (
        "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess. Updated the following files:\nA sub/b.txt\nM a.txt\n"
    )
    assert (tmp_path / "a.txt").read_text() == "one\nTWO\n"
    begin, end, diff = [
        event for event in tools.front_end.events if isinstance(event, PatchApplyBegin | PatchApplyEnd | TurnDiff)
    ]
    assert isinstance(begin, PatchApplyBegin)
    assert [(change.kind, change.path, change.added, change.deleted) for change in begin.changes] == [
        ("update", "a.txt", 1, 1),
        ("add", "sub/b.txt", 1, 0),
    ]
    assert isinstance(end, PatchApplyEnd)
    assert end.success
    assert isinstance(diff, TurnDiff)
    assert "diff --git a/a.txt b/a.txt" in diff.unified_diff
    await tools.toolset.aclose()


async def test_a_patch_that_does_not_fit_changes_nothing_and_says_why(form: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    tools = Tools(tmp_path, "gpt-5.5")
    text = patch("*** Add File: new.txt", "+x", "*** Update File: a.txt", "@@", "-three", "+THREE")
    answer = await tools.answer(call(form, text))
    assert answer.startswith("apply_patch verification failed: ")
    assert "a.txt" in answer
    assert os.listdir(tmp_path) == ["a.txt"]
    assert await tools.answer(call(form, patch())) == "patch rejected: empty patch"
    await tools.toolset.aclose()


async def test_the_native_form(tmp_path: Path) -> None:
    tools = Tools(tmp_path, "gpt-5.5")
    created = await tools.native(CreateFile("n.txt", "+one\n+two"))
    assert created == ApplyPatchCallOutput(
        call_id="n", status="completed", output="Success. Updated the following files:\nA n.txt\n"
    )
    assert (await tools.native(UpdateFile("n.txt", "@@\n one\n-two\n+2"))).status == "completed"
    assert (tmp_path / "n.txt").read_text() == "one\n2\n"
    failed = await tools.native(UpdateFile("lib/baz.py", "@@\n-a\n+b"))
    assert failed.status == "failed"
    assert failed.output is not None
    assert "lib/baz.py" in failed.output
    assert (await tools.native(DeleteFile("n.txt"))).status == "completed"
    assert os.listdir(tmp_path) == []
    await tools.toolset.aclose()


async def test_the_net_diff_of_a_turn(tmp_path: Path) -> None:
    tools = Tools(tmp_path, "gpt-5.5")
    await tools.answer(call("freeform", patch("*** Add File: a.txt", "+one")))
    await tools.answer(call("freeform", patch("*** Update File: a.txt", "*** Move to: b.txt", "@@", "-one", "+two")))
    last = [event for event in tools.front_end.events if isinstance(event, TurnDiff)][-1]
    assert "b/b.txt" in last.unified_diff
    assert "+two" in last.unified_diff
    assert "one" not in last.unified_diff
    await tools.toolset.aclose()


OUTSIDE = "patch rejected: writing outside of the project; rejected by user approval settings"
ONLY_THE_PROJECT = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)


async def test_writing_is_confined_to_the_workspace(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    tools = Tools(tmp_path, "gpt-5.5", ONLY_THE_PROJECT)
    for name in (".git/config", ".git/hooks/pre-commit", ".codex/x", "/etc/ferrule", "../beside"):
        assert await tools.answer(call("freeform", patch(f"*** Add File: {name}", "+x"))) == OUTSIDE
    assert os.listdir(tmp_path / ".git") == []
    await tools.toolset.aclose()
    reading = Tools(tmp_path, "gpt-5.5", "read-only")
    blocked = "patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings"
    assert await reading.answer(call("freeform", patch("*** Add File: x", "+x"))) == blocked
    await reading.toolset.aclose()


async def test_b008_b134_links_are_resolved_before_anything_is_decided(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / ".git").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text("old\n")
    (project / "inside.txt").write_text("old\n")
    (project / ".env").symlink_to("../outside/secret")
    (project / "folder").symlink_to(outside)
    (project / "metadata").symlink_to(".git")
    (project / "link.txt").symlink_to("inside.txt")
    tools = Tools(project, "gpt-5.5", ONLY_THE_PROJECT)
    change = ("@@", "-old", "+new")
    assert await tools.answer(call("freeform", patch("*** Update File: .env", *change))) == OUTSIDE
    for name in ("folder/x", "metadata/config"):
        assert await tools.answer(call("freeform", patch(f"*** Add File: {name}", "+x"))) == OUTSIDE
    assert "M link.txt" in await tools.answer(call("freeform", patch("*** Update File: link.txt", *change)))
    assert (outside / "secret").read_text() == "old\n"
    assert os.listdir(outside) == ["secret"]
    assert os.listdir(project / ".git") == []
    assert (project / "link.txt").is_symlink()
    assert (project / "inside.txt").read_text() == "new\n"
    await tools.toolset.aclose()


async def test_b134_a_link_put_in_between_leads_nowhere(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / "sub").mkdir(parents=True)
    outside.mkdir()
    tools = Tools(project, "gpt-5.5", ONLY_THE_PROJECT)
    files = tools.toolset.workspace.access(str(project)).files.layer
    with pytest.MonkeyPatch.context() as patcher:
        # Between the check and the write: what was resolved to project/sub is now a link to the outside.
        patcher.setattr("ferrule.sandbox.files.os.path.realpath", lambda path: path)
        (project / "sub").rmdir()
        (project / "sub").symlink_to(outside)
        with pytest.raises(OSError):  # noqa: PT011 - ELOOP or ENOTDIR, as the kernel says it
            files.create(f"{project}/sub/x", b"x")
    assert os.listdir(outside) == []
    await tools.toolset.aclose()


@pytest.mark.parametrize("sandbox", ["workspace-write", "danger-full-access"])
async def test_b007_b010_what_would_be_lost_is_not_overwritten(sandbox: str, tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("old\n")
    (tmp_path / "s.txt").write_text("s\n")
    tools = Tools(tmp_path, "gpt-5.5", sandbox)
    add = await tools.answer(call("freeform", patch("*** Add File: e.txt", "+new")))
    assert add.startswith("e.txt already exists, and the patch would destroy its content.")
    move = patch("*** Update File: s.txt", "*** Move to: e.txt", "@@", "-s", "+s2")
    assert (await tools.answer(call("freeform", move))).startswith("e.txt already exists")
    assert (tmp_path / "e.txt").read_text() == "old\n"
    assert (tmp_path / "s.txt").read_text() == "s\n"
    meant = patch("*** Delete File: e.txt", "*** Add File: e.txt", "+new")
    assert "e.txt" in await tools.answer(call("freeform", meant))
    assert (tmp_path / "e.txt").read_text() == "new\n"
    await tools.toolset.aclose()


async def test_hard_links_are_asked_about(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    os.link(tmp_path / "a", tmp_path / "b")
    tools = Tools(tmp_path, "gpt-5.5")
    answer = await tools.answer(call("freeform", patch("*** Update File: a", "@@", "-one", "+two")))
    assert "a has 2 hard links, and all of them would change" in answer
    assert (tmp_path / "b").read_text() == "one\n"
    await tools.toolset.aclose()


async def test_the_files_of_a_patch_are_told_while_it_arrives(tmp_path: Path) -> None:
    tools = Tools(tmp_path, "gpt-5.5")
    handler = tools.dispatcher.registry.handler("apply_patch")
    assert handler is not None
    watcher = handler.input_watcher("c")
    assert watcher is not None
    text = patch("*** Add File: a.txt", "+x", "+y", "*** Delete File: b.txt")
    events = [event for character in text if (event := watcher.feed(character)) is not None]
    assert all(isinstance(event, PatchApplyProgress) for event in events)
    changes = [change for event in events for change in event.changes]  # type: ignore[union-attr]
    seen = [(change.kind, change.path, change.added) for change in changes]
    assert ("add", "a.txt", 2) in seen
    assert seen[-1] == ("delete", "b.txt", 0)
    assert handler.input_watcher("d").feed("no patch\nat all\n") is None  # type: ignore[union-attr]
    await tools.toolset.aclose()


async def test_json_without_a_patch_is_the_models_mistake(tmp_path: Path) -> None:
    tools = Tools(tmp_path, "gpt-4.1")
    handler = tools.dispatcher.registry.handler("apply_patch")
    assert handler is not None
    invocation = ToolInvocation("c", "apply_patch", FunctionPayload('{"text":"x"}'))
    with pytest.raises(RespondToModel, match="input"):
        await handler.handle(invocation, tools.dispatcher.context(invocation, tools.dispatcher))
    await tools.toolset.aclose()
