"""What every state of the screen looks like: its text and, behind each row, where its styles begin.

`SHOW_STATES=DIR` also saves each as a picture there; `WRITE_STATES=1` writes the files in `states/` anew: look at them.
"""

import io
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.text import Text
from textual import events

from ferrule._version import __version__
from ferrule.doors.terminal.conversation import Conversation
from ferrule.doors.terminal.pickers import Item, Picker, session_item
from ferrule.doors.terminal.plain import Plain
from ferrule.protocol.content import InputImage
from ferrule.protocol.events import (
    ContextCompacted,
    ElicitationRequest,
    ErrorEvent,
    Event,
    ExecApproval,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    FileChange,
    ItemCompleted,
    ItemStarted,
    McpToolCallProgress,
    PatchApplyBegin,
    PlanStep,
    PlanUpdate,
    SandboxStatus,
    TokenUsage,
    TurnAborted,
    TurnCompleted,
    TurnStarted,
    UserInputRequest,
    ViewImage,
    WarningEvent,
)
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.permissions import ReviewDecision
from ferrule.session.index import SessionEntry
from ferrule.session.talk import Opening
from ferrule.tools.action import Action
from ferrule.tools.events import ActionEvent, ChildEvent, ToolEvent
from ferrule.tools.questions import Question
from tests.terminal.screen import Screen, asking, shown
from tests.terminal.test_cells import call, delta

STATES = Path(__file__).parent / "states"
SMALL, USUAL = (40, 12), (80, 24)
MARKDOWN = """\
# A plan

Use **bold**, *light* and `code`, and a [link](https://a.example/p).

- one
- two

| name | size |
|---|---|
| a | 1 |

```python
def f(x: int) -> int:
    return x + 1  # one more
```
"""
DIFF = "@@ -1,3 +1,4 @@\n import os\n-old = 1\n+new = 1\n+more = 2\n end\n"
CHANGE = FileChange("update", "src/a.py", added=2, deleted=1, unified_diff=DIFF)
GONE = FileChange("delete", "old.py", deleted=9)
STEPS = (PlanStep("Look", "completed"), PlanStep("Write", "in_progress"), PlanStep("Test", "pending"))
ALL = tuple(ReviewDecision)
OFFERED = tuple(one for one in ALL if one is not ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT)


class Weigh(Action):
    """A user's action."""

    grams: int

    @property
    def visualize(self) -> Text:
        """In words."""
        return Text(f"weighs {self.grams} g", style="green")


def command(words: str, *, output: str = "", code: int | None = None, call_id: str = "c") -> list[Event]:
    """The events of a command."""
    told: list[Event] = [ExecCommandBegin(call_id=call_id, command=("/bin/sh", "-c", words), cwd="/work")]
    if output:
        told.append(ExecCommandOutputDelta(call_id=call_id, stream="stdout", chunk=output.encode()))
    if code is not None:
        told.append(ExecCommandEnd(call_id=call_id, exit_code=code, output=output, duration_ms=1500))
    return told


def numbers(count: int) -> str:
    """So many lines."""
    return "".join(f"line {number}\n" for number in range(1, count + 1))


def asked(text: str, kind: str = "command", **more: object) -> ExecApproval:
    """A question about a call."""
    decisions = ALL if kind in ("command", "network") else OFFERED
    fields: dict[str, object] = {"decisions": decisions, "cwd": "/work", "reason": "it leaves the sandbox"} | more
    return ExecApproval(request_id="1", call_id="2", kind=kind, text=text, **fields)  # type: ignore[arg-type]


WEIGH, BAD, FIND = (
    call("weigh", {"grams": 5}),
    call("exec_command", "{not json", "b"),
    call("mcp__files__find", {"name": "x"}, "m"),
)
PATCH_CALL = call("apply_patch", {"input": "*** Begin Patch\n*** Add File: b.txt\n+one\n*** End Patch"}, "p")
CONVERSATIONS: dict[str, Sequence[Event | ToolEvent]] = {
    "markdown_streams": [delta(MARKDOWN[:150])],
    "markdown": [delta(MARKDOWN)],
    "reasoning_folded": [delta("**Looking** at it\n\nand further.", "reasoning"), delta("So.")],
    "command_runs": command("make all", output=numbers(9)),
    "command_ended": command("make all", output=numbers(40), code=0),
    "command_failed": command("make all\nmake test", output="no rule\n", code=2),
    "call_invalid": [ItemStarted(item=BAD), ItemCompleted(item=BAD, output=ToolOutput("not valid JSON", False))],
    "tool_of_the_user": [
        ItemStarted(item=WEIGH), ActionEvent("c", "weigh", Weigh(grams=5)),
        ItemCompleted(item=WEIGH, output=ToolOutput("5 g", True)),
    ],
    "mcp_call_runs": [ItemStarted(item=FIND), McpToolCallProgress(call_id="m", progress=3, total=8, message="folders")],
    "patch_grows": [delta("*** Begin Patch\n*** Add File: b.txt\n+one\n+two\n", "input", "p")],
    "patch_written": [
        ItemStarted(item=PATCH_CALL), PatchApplyBegin(call_id="p", changes=(CHANGE, GONE)),
        ItemCompleted(item=PATCH_CALL, output=ToolOutput("Done", True)),
    ],
    "plan": [PlanUpdate(plan=STEPS)],
    "child": [
        ChildEvent("child-1", "parent", TurnStarted(turn_id="t")),
        ChildEvent("child-1", "parent", delta("I **look**.")),
        *(ChildEvent("child-1", "parent", event) for event in command("ls", output="a\nb\n", code=0)),
        ChildEvent("child-1", "parent", TurnCompleted(turn_id="t", usage=TokenUsage())),
    ],
    "image_line": [ViewImage(call_id="c", path="/work/picture.png")],
    "told_by_the_session": [
        WarningEvent(message="the record is slow"), ErrorEvent(message="the server is gone"),
        ContextCompacted(turn_id="t", tokens_before=90_000, tokens_after=4_000), TurnAborted(turn_id="t"),
    ],
}  # fmt: skip
UNFOLDED = ("reasoning_folded", "command_ended", "child")
LONG = "rm -rf /begin " + "x" * 1200 + " /end"
OPTIONS = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "title": "Your name"}}, "required": ["name"]}
QUESTIONS: dict[str, Question] = {
    "approval_of_a_command": asked(
        "git push origin main", justification="The tests pass.", proposed_execpolicy_amendment=("git", "push")
    ),
    "approval_of_a_long_command": asked(LONG, justification="It must be.", proposed_execpolicy_amendment=("rm",)),
    "approval_of_a_patch": asked("*** Begin Patch", "patch", changes=(CHANGE,), reason=None),
    "approval_of_an_mcp_call": asked("files/delete {}", "mcp", agent_id="child-1"),
    "approval_of_a_host": asked("https://a.example/", "network", proposed_network_host="a.example", cwd=None),
    "question_of_the_model": UserInputRequest(
        request_id="1", call_id="2",
        questions=[
            {"id": "c", "question": "Which color?", "options": OPTIONS, "is_other": True},
            {"id": "n", "question": "Why?"},
        ],
    ),
    "elicitation": ElicitationRequest(request_id="1", server="files", message="Who are you?", schema=SCHEMA),
}  # fmt: skip
SESSIONS = [
    SessionEntry(f"0000{n}aaa", "", "/work", "", n * 10**18, "", f"{n} words", turns=n, parent="", archived=False)
    for n in (1, 2)
]


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time goes by on the screen, and its colours are those of a terminal."""
    monkeypatch.setattr("ferrule.doors.terminal.cells.duration", lambda seconds: "7 s")
    monkeypatch.setattr("ferrule.doors.terminal.status.duration", lambda seconds: "7 s")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TZ", "UTC")


@asynccontextmanager
async def session(folder: Path, size: tuple[int, int] = USUAL) -> AsyncIterator[Screen]:
    """A screen whose session is open, for conversations that did not take place."""
    async with shown(folder, size=size) as screen:
        screen.app.composer.cursor_blink = False
        yield screen


async def show(screen: Screen, told: Sequence[Event | ToolEvent], *, unfolded: bool = False) -> None:
    """Show another conversation in its place."""
    app, desk = screen.app, screen.app.desk
    assert desk is not None
    app.transcript.clear()
    app.plan.show(())
    desk.conversation = Conversation(app.transcript.add, app.transcript.touch)
    desk.conversation.begin("gpt-5.5", "/work", SandboxStatus(level="Landlock and seccomp"))
    desk.conversation.say("Do it.")
    app.status.about = "gpt-5.5 · workspace-write · on-request"
    for event in told:
        desk.show_event(event)
    desk.do("" if any(isinstance(event, TurnAborted) for event in told) else "Thinking")
    if unfolded:
        app.transcript.toggle_all()
    await settled(screen)


def ask(screen: Screen, question: Question | None) -> None:
    """Let this be what waits for an answer."""
    desk = screen.app.desk
    assert desk is not None
    desk._answered.clear()
    desk.talk.questions = lambda: [] if question is None else [question]  # type: ignore[method-assign]
    screen.app.close_panel()
    desk.look_for_questions()


async def settled(screen: Screen) -> None:
    """Wait until all is drawn."""
    transcript = screen.app.transcript
    transcript._settle()
    await screen.pilot.pause()
    while transcript._settling or transcript._changed or transcript._unmeasured:
        await screen.pilot.pause(0.01)
    await screen.pilot.pause()


def rows_of(screen: Screen) -> list[str]:
    """The rows, and behind each the styles that are not plain."""
    rows = []
    for strip in screen.app.screen._compositor.render_strips():
        at, styles = 0, []
        for segment in strip:
            style = (
                "" if segment.style is None else re.sub(r"not \w+ ?|on default|none", "", str(segment.style)).strip()
            )
            if style and segment.text.strip():
                styles.append(f"{at} {style}")
            at += segment.cell_length
        text = strip.text.rstrip().replace(f"ferrule {__version__}", "ferrule X.Y.Z")
        rows.append(f"{text}    ⟦{'; '.join(styles)}⟧" if styles else text)
    return rows


def compare(name: str, rows: Sequence[str]) -> None:
    """Compare with the file of this state."""
    file, text = STATES / f"{name}.txt", "\n".join(row.rstrip() for row in rows) + "\n"
    if os.environ.get("WRITE_STATES"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def look(name: str, screen: Screen) -> None:
    """Compare what is shown now."""
    if folder := os.environ.get("SHOW_STATES"):
        Path(folder, f"{name}.svg").write_text(screen.app.export_screenshot(title=name))
    compare(name, rows_of(screen))


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("size", [USUAL, SMALL])
async def test_conversations(tmp_path: Path, size: tuple[int, int]) -> None:
    prefix = "small_" if size == SMALL else ""
    async with session(tmp_path, size) as screen:
        await show(screen, [])
        look(f"{prefix}beginning", screen)
        for name, told in CONVERSATIONS.items():
            await show(screen, told)
            look(f"{prefix}{name}", screen)
        for name in () if prefix else UNFOLDED:
            await show(screen, CONVERSATIONS[name], unfolded=True)
            look(f"{name}_unfolded", screen)


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("size", [USUAL, SMALL])
async def test_dialogs(tmp_path: Path, size: tuple[int, int]) -> None:
    prefix = "small_" if size == SMALL else ""
    async with session(tmp_path, size) as screen:
        await show(screen, CONVERSATIONS["command_ended"])
        for name, question in QUESTIONS.items():
            ask(screen, question)
            await settled(screen)
            look(f"{prefix}{name}", screen)
            if name == "approval_of_a_command":
                await screen.press("t", *"not now")
                look(f"{prefix}approval_with_words", screen)
            if name == "question_of_the_model":
                await screen.press("2", *"Why not")
                look(f"{prefix}question_in_words", screen)
            ask(screen, None)
            await screen.pilot.pause()
        for name, items in {
            "sessions": [session_item(entry) for entry in SESSIONS],
            "models": [Item("gpt-5.5", "gpt-5.5"), Item("other-model", "other-model")],
        }.items():
            screen.app.open_panel(Picker(name.capitalize(), items, lambda value: None))
            await settled(screen)
            look(f"{prefix}pick_{name}", screen)


@pytest.mark.usefixtures("still")
async def test_the_composer(tmp_path: Path) -> None:
    for name in ("main.py", "module.py", "other.txt"):
        (tmp_path / name).touch()
    async with session(tmp_path) as screen:
        await show(screen, [])
        composer = screen.app.composer
        states: dict[str, Callable[[], Awaitable[None]]] = {
            "lines": lambda: screen.press(*"two", "ctrl+j", *"lines"),
            "chip": lambda: composer._on_paste(events.Paste(numbers(30))),
            "file": lambda: screen.press("@", "m"),
            "command": lambda: screen.press("/", "m"),
        }
        for name, write in states.items():
            composer.clear()
            await write()
            if name == "file":
                await screen.until("module.py")
            await settled(screen)
            look(f"composer_{name}", screen)
        composer.clear()
        assert screen.app.desk is not None
        screen.app.desk.conversation.say("And this, meanwhile.", [InputImage("data:,")])
        await settled(screen)
        look("composer_steer", screen)


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("how", ["light", "dark", "no_color"])
async def test_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "no_color":
        monkeypatch.setenv("NO_COLOR", "1")
    async with session(tmp_path) as screen:
        if how != "no_color":
            assert screen.app.set_theme(f"textual-{how}")
        await show(screen, [*CONVERSATIONS["markdown"], *CONVERSATIONS["patch_written"]])
        look(f"colours_{how}", screen)
        ask(screen, QUESTIONS["approval_of_a_patch"])
        await settled(screen)
        look(f"colours_{how}_asked", screen)


@pytest.mark.usefixtures("still")
async def test_lines_only(tmp_path: Path) -> None:
    out = io.StringIO()
    read, write = os.pipe()
    os.close(write)
    with os.fdopen(read) as source:
        plain = Plain(Opening(settings=asking(tmp_path, "http://127.0.0.1:9/v1")), source, out, 60)
        plain._conversation.begin("gpt-5.5", "/work", SandboxStatus(level="Landlock and seccomp"))
        for name, told in CONVERSATIONS.items():
            plain._conversation.say("next")
            out.write(f"--- {name}\n")
            for event in told:
                plain._show_event(event)
            plain._end_text()
        for name, question in QUESTIONS.items():
            out.write(f"\n--- {name}\n")
            plain._at_end = True
            await plain._ask(question)
    compare("lines_only", out.getvalue().replace(f"ferrule {__version__}", "ferrule X.Y.Z").split("\n"))
