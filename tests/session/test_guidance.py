"""AGENTS.md files of folders that the model touches, in real sessions with real tools."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ferrule.model.stream import ModelRequest
from ferrule.protocol.events import Event, WarningEvent
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess
from ferrule.protocol.settings import Settings
from ferrule.session.guidance import HEADING, MAX_DEPTH
from ferrule.session.instructions import ENVIRONMENT
from ferrule.session.opening import open_session
from ferrule.session.resuming import resume_settings
from ferrule.session.session import Session
from ferrule.tools.effects import CommandEffect
from ferrule.tools.events import ToolEvent
from ferrule.tools.touched import MOST, Touched, touched_by
from tests.session.conversations import ALL_GIVEN
from tests.session.models import InProcessModel, Step, calls, said_in, says

TOOLS = ["read_file", "list_dir", "grep_files", "file_editor", "exec_command", "apply_patch"]
PATCH = "*** Begin Patch\n*** Add File: a/b/new.py\n+x = 1\n*** End Patch\n"


class Project:
    """A repository whose folders `a/b` and `c` have a file each; `model` is the last session's."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "repo"
        (self.top / ".git").mkdir(parents=True)
        self.write("AGENTS.md", "FOR ALL")
        self.write("a/AGENTS.md", "FOR A")
        self.write("a/b/AGENTS.md", "FOR B")
        self.write("a/b/x.py", "x")
        self.write("c/AGENTS.md", "FOR C")
        self.write("c/y.py", "y")
        self.home = folder / "home"
        self.warnings: list[str] = []
        self.model = InProcessModel()

    can_answer = False

    def on_event(self, event: Event | ToolEvent) -> None:
        if isinstance(event, WarningEvent):
            self.warnings.append(event.message)

    def write(self, path: str, text: str) -> Path:
        file = self.top / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def call(self, name: str, call_id: str = "call_1", **arguments: Any) -> Any:
        return calls(name, json.dumps(arguments), call_id)

    def read(self, path: str, call_id: str = "call_1") -> Any:
        return self.call("read_file", call_id, file_path=str(self.top / path))

    async def open(self, *steps: Step, cwd: str = ".", resume: bool = False, **fields: Any) -> Session:
        self.model = InProcessModel(*steps)
        settings = Settings(
            cwd=str(self.top / cwd), home=str(self.home), sandbox_policy=DangerFullAccess(),
            approval_policy=AskForApproval.NEVER, **fields,
        )  # fmt: skip
        stored = None
        if resume:
            settings, stored = resume_settings(settings, None, ALL_GIVEN)
        return await open_session(settings, self, model=self.model, tools=TOOLS, stored=stored)

    def told(self, number: int = -1) -> list[str]:
        """What the request tells of AGENTS.md: each folder and its text, in one line."""
        return told_in(self.model.requests[number], self.top)


def told_in(request: ModelRequest, top: Path) -> list[str]:
    texts = said_in(request)
    told = [text.removeprefix(HEADING).split("\n\n", 1) for text in texts if text.startswith(HEADING)]
    return [f"{os.path.relpath(folder, top)}: {' '.join(text.split())}" for folder, text in told]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {"file_path": "{top}/a/b/x.py"}),
        ("list_dir", {"dir_path": "{top}/a/b"}),
        ("grep_files", {"pattern": "x", "path": "a/b"}),
        ("file_editor", {"command": "create", "path": "{top}/a/b/new.py", "file_text": "x"}),
        ("apply_patch", {"input": PATCH}),
        ("exec_command", {"cmd": "true", "workdir": "a/b"}),
        ("exec_command", {"cmd": "cat 'a/b/x.py'|head -n1"}),
        ("exec_command", {"cmd": "cd a/b && ls"}),
        ("exec_command", {"cmd": f"apply_patch <<'EOF'\n{PATCH}EOF"}),
    ],
)
async def test_f24_the_file_of_a_deeper_folder_is_told_once(
    project: Project, tool: str, arguments: dict[str, str]
) -> None:
    given = {name: text.replace("{top}", str(project.top)) for name, text in arguments.items()}
    touch = project.call(tool, **given)
    again = project.call("read_file", "call_2", file_path=str(project.top / "a/b/x.py"))
    async with await project.open([touch], [again], [says("done")]) as session:
        await session.run("go")
    assert project.told(0) == [".: FOR ALL"]
    assert project.told(1) == project.told(2) == [".: FOR ALL", "a: FOR A", "a/b: FOR B"]


async def test_a_folder_beside_the_working_directory_is_told_and_one_above_not_again(project: Project) -> None:
    async with await project.open([project.read("c/y.py")], [says("done")], cwd="a/b") as session:
        await session.run("go")
    assert project.told() == ["a/b: FOR ALL FOR A FOR B", "c: FOR C"]


async def test_the_users_own_file_is_not_told_again_where_it_lies_in_the_project(project: Project) -> None:
    project.home = project.top / "home"
    project.write("home/AGENTS.md", "MY OWN")
    project.write("home/skills/saw/notes.md", "notes")
    async with await project.open([project.read("home/skills/saw/notes.md")], [says("done")]) as session:
        await session.run("go")
    assert project.told() == [".: MY OWN FOR ALL"]


async def test_nothing_is_told_of_places_outside_or_behind_links(project: Project) -> None:
    outside = project.top.parent / "outside"
    outside.mkdir()
    (outside / "AGENTS.md").write_text("FOREIGN")
    (outside / "z.py").write_text("z")
    (project.top / "way_out").symlink_to(outside)
    project.write("d/w.py", "w")
    (project.top / "d" / "AGENTS.md").symlink_to(outside / "AGENTS.md")
    (project.top / "way_in").symlink_to("c")
    touches = [
        project.read("../outside/z.py", "call_1"), project.read("way_out/z.py", "call_2"),
        project.read("d/w.py", "call_3"), project.read("way_in/y.py", "call_4"),
    ]  # fmt: skip
    async with await project.open(touches, [says("done")]) as session:
        await session.run("go")
    assert project.told() == [".: FOR ALL", "c: FOR C"]
    [warning] = project.warnings
    assert "d/AGENTS.md leads out of" in warning


async def test_other_names_count_in_deeper_folders_too(project: Project) -> None:
    project.write("c/AGENTS.override.md", "INSTEAD")
    project.write("d/CLAUDE.md", "CLAUDE")
    steps = [[project.read("c/y.py", "call_1")], [project.call("list_dir", "call_2", dir_path=str(project.top / "d"))]]
    async with await project.open(*steps, [says("done")], project_doc_fallback_filenames=("CLAUDE.md",)) as session:
        await session.run("go")
    assert project.told() == [".: FOR ALL", "c: INSTEAD", "d: CLAUDE"]


async def test_all_files_share_the_limit_and_reaching_it_is_told(project: Project) -> None:
    steps = [[project.read("a/b/x.py", "call_1")], [project.read("c/y.py", "call_2")]]
    async with await project.open(*steps, [says("done")], project_doc_max_bytes=15) as session:
        await session.run("go")
    assert project.told() == [".: FOR ALL", "a: FOR A", "a/b: FOR"]
    assert [warning.split(" is ")[1].split(":")[0] for warning in project.warnings] == [
        "told only as far as its first 3 bytes", "not told",
    ]  # fmt: skip
    assert all("project_doc_max_bytes" in warning for warning in project.warnings)
    async with await project.open([project.read("c/y.py")], [says("done")], project_doc_max_bytes=0) as session:
        await session.run("go")
    assert project.told() == [] and len(project.warnings) == 2


async def test_a_resumed_session_does_not_tell_again(project: Project) -> None:
    async with await project.open([project.read("c/y.py")], [says("done")]) as session:
        await session.run("go")
    steps = [[project.read("c/y.py", "call_2")], [project.read("a/b/x.py", "call_3")]]
    async with await project.open(*steps, [says("done")], resume=True) as session:
        await session.run("go on")
    assert project.told() == [".: FOR ALL", "c: FOR C", "a: FOR A", "a/b: FOR B"]


async def test_a_compaction_tells_anew_what_was_touched_since_the_last(project: Project) -> None:
    steps: list[Step] = [[project.read("c/y.py", "call_1")], [project.read("a/b/x.py", "call_2")], [says("done")]]
    steps += [[says("SUMMARY 1")], [project.read("c/y.py", "call_3")], [says("done")]]
    steps += [[says("SUMMARY 2")], [says("done")], [project.read("a/b/x.py", "call_4")], [says("done")]]
    async with await project.open(*steps) as session:
        await session.run("go")
        project.write("c/AGENTS.md", "FOR C, CHANGED")
        await session.compact()
        await session.run("go on")
        first = len(project.model.requests) - 2
        assert project.told(first) == [".: FOR ALL", "c: FOR C, CHANGED", "a: FOR A", "a/b: FOR B"]
        assert project.told() == project.told(first)
        await session.compact()
        await session.run("go on")
        assert project.told() == [".: FOR ALL", "c: FOR C, CHANGED"]
        await session.run("go on")
        assert project.told() == [".: FOR ALL", "c: FOR C, CHANGED", "a: FOR A", "a/b: FOR B"]


async def test_an_opening_that_does_not_replace_history_changes_nothing(project: Project) -> None:
    """A compaction makes its opening before it is known whether it helps."""
    steps: list[Step] = [[project.read("c/y.py")], [says("done")]]
    async with await project.open(*steps, [project.read("c/y.py", "call_2")], [says("done")]) as session:
        await session.run("go")
        assert len(list(session._opening())) == 3
        await session.run("go on")
    assert project.told() == [".: FOR ALL", "c: FOR C"]


async def test_what_waits_for_an_answer_is_told_once_by_a_compaction(project: Project) -> None:
    """A turn was interrupted after its call; what its folder says stands behind the next words of the user."""
    async with await project.open([says("done")], [says("SUMMARY")], [says("done")]) as session:
        await session.run("go")
        session.toolset.touched.add([str(project.top / "c")])
        session._dialogue.say("and now this")
        session._dialogue.tell_guidance()
        await session.compact()
        await session.run("go on")
    assert project.told() == [".: FOR ALL", "c: FOR C"]


async def test_a_sub_agent_is_told_by_itself(project: Project) -> None:
    async def child(request: ModelRequest) -> Any:
        told.append(told_in(request, project.top))
        async for event in inner.stream(request):
            yield event

    told: list[list[str]] = []
    inner = InProcessModel([project.read("c/y.py")], [says("done")])
    async with await project.open(child, child) as session:
        await (await session.spawn("look")).wait()
    assert told == [[".: FOR ALL"], [".: FOR ALL", "c: FOR C"]]


async def test_a_session_that_goes_on_elsewhere_is_told_where_and_what_counts_there(project: Project) -> None:
    async with await project.open([says("done")], cwd="a/b") as session:
        await session.run("go")
    async with await project.open([says("done")], cwd="c", resume=True) as session:
        await session.run("go on")
    assert project.told() == ["a/b: FOR ALL FOR A FOR B", "c: FOR C"]
    places = [text for text in said_in(project.model.requests[-1]) if text.startswith(ENVIRONMENT)]
    assert [place.split("</cwd>")[0].split("/repo/")[1] for place in places] == ["a/b", "c"]
    async with await project.open([says("done")], cwd="c", resume=True) as session:
        await session.run("go on")
    assert project.told() == ["a/b: FOR ALL FOR A FOR B", "c: FOR C"]
    assert sum(text.startswith(ENVIRONMENT) for text in said_in(project.model.requests[-1])) == 2


@pytest.mark.parametrize("name", ["two\nlines", os.fsdecode(b"caf\xe9")])
async def test_a_folder_of_any_name_is_told_once(project: Project, name: str) -> None:
    project.write(f"{name}/AGENTS.md", "ODD")
    touched = [str(project.top / name)]
    steps: list[Step] = [[says("done")], [says("SUMMARY")], [says("done")]]
    async with await project.open(*steps) as session:
        session.toolset.touched.add(touched)
        await session.run("go")
        await session.compact()
        session.toolset.touched.add(touched)
        await session.run("go on")
    async with await project.open([says("done")], resume=True) as session:
        session.toolset.touched.add(touched)
        await session.run("go on")
    told = [text for text in said_in(project.model.requests[-1]) if text.startswith(HEADING)]
    assert [text.split("\n")[2] for text in told] == ["FOR ALL", "ODD"]


async def test_a_tree_of_endless_depth_is_looked_into_as_far_as_people_go(project: Project) -> None:
    """Each file of a deep folder takes as many steps as the folder is deep, and 1,000 open folders are too many."""
    project.write(f"{'d/' * MAX_DEPTH}AGENTS.md", "DEEP")
    project.write(f"{'d/' * (MAX_DEPTH + 1)}AGENTS.md", "DEEPER")
    async with await project.open([says("done")]) as session:
        session.toolset.touched.add([str(project.top / ("d/" * (MAX_DEPTH + 1)))])
        await session.run("go")
    assert [told.split(": ")[1] for told in project.told()] == ["FOR ALL", "DEEP"]


def test_the_order_of_calls_that_run_in_any_order_does_not_count() -> None:
    touched = Touched()
    touched.add(["/c/y.py"])
    touched.add(["/a/x.py"])
    assert touched.take() == ["/a/x.py", "/c/y.py"]
    assert touched.take() == []


def test_what_a_command_names_is_bounded() -> None:
    script = "cat " + " ".join(f"d{n}/f" for n in range(1_000))
    effect = CommandEffect(argv=("/bin/sh", "-c", script), cwd="/w")
    assert "/w/d0/f" in touched_by(effect) and len(touched_by(effect)) < 100
    touched = Touched()
    for n in range(2 * MOST):
        touched.add([f"/w/{n}"])
    assert len(touched.take()) == MOST and touched.take() == []
