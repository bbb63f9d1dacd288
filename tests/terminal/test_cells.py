"""What each event of a session looks like, without a screen."""

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from ferrule.doors.terminal.cell import Cell
from ferrule.doors.terminal.conversation import Conversation
from ferrule.doors.terminal.images import Picture
from ferrule.doors.terminal.output import HEAD_BYTES, TAIL_BYTES, Output
from ferrule.doors.terminal.patches import DiffLine, diff_lines
from ferrule.doors.terminal.plan import plan_rows
from ferrule.doors.terminal.signals import BELL, notification, title
from ferrule.protocol.events import (
    ContextCompacted,
    ErrorEvent,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    FileChange,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    LeftAlone,
    McpToolCallProgress,
    PatchApplyBegin,
    PlanStep,
    SandboxStatus,
    TokenUsage,
    TurnCompleted,
    TurnStarted,
    UndoCompleted,
    ViewImage,
    WarningEvent,
)
from ferrule.protocol.items import ResponseItem, read_item
from ferrule.protocol.payload import ToolOutput
from ferrule.tools.action import Action
from ferrule.tools.events import ActionEvent, ChildEvent, ToolEvent


class Told:
    """A conversation that is told events."""

    def __init__(self, place: Callable[[str], Picture | None] = lambda url: None) -> None:
        self.cells: list[Cell] = []
        self.conversation = Conversation(self.cells.append, lambda cell: None, place)

    def hear(self, *events: Event | ToolEvent) -> "Told":
        """Take events."""
        for event in events:
            self.conversation.on_event(event)
        return self

    def text(self, width: int = 60) -> str:
        """All rows."""
        return "\n".join(strip.text.rstrip() for cell in self.cells for strip in cell.rows(width)).strip("\n")


def call(name: str, arguments: object, call_id: str = "c") -> ResponseItem:
    """A function call."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    fields = {"type": "function_call", "name": name, "arguments": text, "call_id": call_id}
    return read_item(json.dumps(fields).encode())


def delta(text: str, kind: str = "text", call_id: str | None = None) -> ItemUpdated:
    """Something that arrives."""
    return ItemUpdated(item_id="i", kind=kind, delta=text, call_id=call_id)


def test_a_command_shows_its_last_lines_live_and_then_its_verdict() -> None:
    told = Told().hear(
        ItemStarted(item=call("shell_command", {"command": "make all"})),
        ExecCommandBegin(call_id="c", command=("bash", "-lc", "make all"), cwd="/"),
        ExecCommandOutputDelta(call_id="c", stream="stdout", chunk="".join(f"{n}\n" for n in range(30)).encode()),
    )
    assert told.text() == "command\n$ make all\n  25\n  26\n  27\n  28\n  29\n  … 0 s"
    output = "".join(f"{number}\n" for number in range(30))
    told.hear(ExecCommandEnd(call_id="c", exit_code=2, output=output, duration_ms=1234))
    assert told.text().startswith("command\n$ make all\n  0\n  1\n") and "… 18 more lines …" in told.text()
    assert told.text().endswith("  29\n  ✗ exit 2 · 1.2 s")
    told.cells[0].toggle()
    assert told.text().count("\n") == 32
    styles = {segment.text: segment.style for strip in told.cells[0].rows(60)[:2] for segment in strip}
    assert styles["command"].bold and styles["command"].color.name == "bright_magenta" and styles["$ "].dim  # type: ignore[union-attr]


def test_a_call_that_cannot_be_read_is_red() -> None:
    told = Told().hear(ItemStarted(item=call("shell_command", "{no json")))
    head = told.cells[0].rows(60)[0]
    assert head.text == "Invalid tool call"
    assert [segment.style.color.name for segment in head if segment.style and segment.style.color] == ["red"]


PATCH = '*** Begin Patch\n*** Add File: a.txt\n+one\n+\u00e9 "two"\n*** End Patch'


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_patch_grows_while_it_arrives(form: str) -> None:
    sent = PATCH if form == "text" else json.dumps({"input": PATCH})
    told = Told()
    for place in range(0, len(sent) - 4, 3):
        told.hear(delta(sent[place : place + 3], "input", "c"))
        assert "\\n" not in told.text() and "\\u" not in told.text()
    assert 'edit …\n  *** Begin Patch\n  *** Add File: a.txt\n  +one\n  +é "two"' in told.text()
    change = FileChange(kind="add", path="a.txt", added=2, unified_diff='@@ -0,0 +1,2 @@\n+one\n+é "two"\n')
    told.hear(ItemStarted(item=call("apply_patch", {"input": PATCH})), PatchApplyBegin(call_id="c", changes=(change,)))
    told.hear(ItemCompleted(item=call("apply_patch", {"input": PATCH}), output=ToolOutput("Done!", True)))
    assert told.text() == 'edit a.txt\n  add a.txt +2 -0\n  1 + one\n  2 + é "two"\n  ✓ done'
    assert len(told.cells) == 1


def test_a_patch_of_ten_thousand_lines_is_folded_and_its_end_is_in_sight_while_it_arrives() -> None:
    told, lines = Told(), [f"+line {number}\n" for number in range(10_000)]
    told.hear(delta("*** Begin Patch\n*** Add File: big\n", "input", "c"))
    for line in lines:
        told.hear(delta(line, "input", "c"))
    assert "line 9999" in told.text() and len(told.text()) < 1000
    change = FileChange(kind="add", path="big", added=10_000, unified_diff="@@ -0,0 +1,10000 @@\n" + "".join(lines))
    told.hear(PatchApplyBegin(call_id="c", changes=(change,)))
    assert "9,960 more lines" in told.text() and told.text().count("\n") < 60


def test_line_numbers_of_a_diff() -> None:
    diff = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -10,2 +10,1 @@\n-x\n y\n\\ No newline at end of file\n"
    assert list(diff_lines(diff)) == [
        DiffLine(1, " ", "a"), DiffLine(2, "-", "b"), DiffLine(2, "+", "B"), DiffLine(3, " ", "c"),
        DiffLine(None, " ", "⋮"), DiffLine(10, "-", "x"), DiffLine(10, " ", "y"),
    ]  # fmt: skip


class Weigh(Action):
    """A user's action that shows itself."""

    grams: int

    @property
    def visualize(self) -> Text:
        """In words."""
        return Text(f"weighs {self.grams} g\x1b[2J")


def test_a_users_tool_is_shown_as_it_wants_and_no_control_character_of_it_is() -> None:
    item = call("weigh", {"grams": 5})
    told = Told().hear(ItemStarted(item=item), ActionEvent("c", "weigh", Weigh(grams=5)))
    assert "weigh(grams=5)" in told.text() and "  weighs 5 g" in told.text() and "\x1b" not in told.text()
    told.hear(ItemCompleted(item=item, output=ToolOutput("all well", True)))
    assert told.text().endswith("  all well\n  ✓ done")


class Faulty(Action):
    """A user's action whose own code fails."""

    @property
    def visualize(self) -> Text:
        """Fail."""
        raise ValueError("no\x1bthing")


def test_a_users_tool_that_cannot_show_itself_says_so_and_the_screen_goes_on() -> None:
    told = Told().hear(ItemStarted(item=call("weigh", {})), ActionEvent("c", "weigh", Faulty()))
    assert "Faulty.visualize failed: ValueError('no" in told.text() and "\x1b" not in told.text()


def test_an_mcp_call_tells_its_progress() -> None:
    told = Told().hear(
        ItemStarted(item=call("mcp__files__find", {"name": "x"})),
        McpToolCallProgress(call_id="c", progress=3, total=8, message="folders"),
    )
    assert told.text().startswith('files.find(name="x")\n  3 of 8 folders')


def test_a_child_is_a_folded_conversation() -> None:
    told = Told().hear(
        ChildEvent("child-1", "parent", TurnStarted(turn_id="t")),
        ChildEvent("child-1", "parent", delta("I **look**.")),
        ChildEvent("child-1", "parent", ExecCommandBegin(call_id="c", command=("ls",), cwd="/")),
    )
    assert told.text() == "sub-agent child-1 works\n│ command\n│ $ ls"
    told.hear(ChildEvent("child-1", "parent", TurnCompleted(turn_id="t", usage=TokenUsage())))
    told.cells[0].toggle()
    assert told.text().startswith("sub-agent child-1 is done\n│ I look.\n│\n│ command\n│ $ ls") and len(told.cells) == 1


def test_what_the_session_itself_tells() -> None:
    told = Told().hear(
        WarningEvent(message="a\x1b[31mb"),
        ErrorEvent(message="broken"),
        ContextCompacted(turn_id="t", tokens_before=90_000, tokens_after=4_000),
        UndoCompleted(turn_id="t", restored=("a.py",), left=(LeftAlone("b.py", "changed since"),), with_commands=True),
        ViewImage(call_id="c", path="/work/p.png"),
    )
    assert told.text(80) == (
        "warning: a\\x1b[31mb\n\nerror: broken\n\nconversation compacted: 90,000 -> 4,000 tokens\n\n"
        "taken back: a.py\nleft alone: b.py: changed since\n\nimage /work/p.png"
    )


def test_the_line_of_the_sandbox_says_what_confines_and_unfolds_to_what_does_not() -> None:
    told = Told()
    told.conversation.begin("m", "/w", SandboxStatus(level="Landlock", not_stopped=("reading files " * 9,)))
    first = told.cells[1].rows(60)
    assert first[0].text.startswith("sandbox: commands are confined by Landlock; not stopped") and len(first) == 2
    told.cells[1].toggle()
    assert len(told.cells[1].rows(60)) > 2


@given(st.lists(st.binary(max_size=5000), max_size=60))
def test_an_output_keeps_its_beginning_and_its_end(chunks: Sequence[bytes]) -> None:
    output, whole = Output(), b"".join(chunks)
    for chunk in chunks:
        output.add(chunk)
    assert output.size <= HEAD_BYTES + 2 * TAIL_BYTES + 5000
    if len(whole) <= HEAD_BYTES + TAIL_BYTES:
        assert output.size == len(whole)


def test_a_flood_is_bounded_and_says_what_is_missing() -> None:
    output = Output()
    for number in range(100_000):
        output.add(b"line %d\n" % number)
    lines = output.all_lines()
    assert lines[0] == "line 0" and lines[-1] == "line 99999" and output.size < HEAD_BYTES + 2 * TAIL_BYTES + 100
    assert any("bytes that are not kept" in line for line in lines)


def test_a_plan_shows_the_steps_around_the_current_one() -> None:
    steps = [PlanStep(f"step {n}", "completed" if n < 6 else "pending") for n in range(12)]
    assert [strip.text for strip in plan_rows(tuple(steps), 40, 4)] == [
        "Plan 6 of 12", "✓ step 5", "· step 6", "· step 7",
    ]  # fmt: skip
    assert plan_rows(tuple(steps[:6]), 40, 4) == []


def test_what_the_terminal_is_told_holds_no_sequence_of_others() -> None:
    assert title("a\x1b]0;evil\x07b") == "\x1b]2;a]0;evilb\a"
    assert notification("done", {"TERM_PROGRAM": "WezTerm"}) == "\x1b]9;done\a"
    assert notification("done", {"TERM": "xterm"}) == BELL
