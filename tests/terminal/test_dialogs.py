"""Dialogs: whatever a model, a tool or a server says, they show what will happen, and how to answer."""

import asyncio
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.strip import Strip

from ferrule.doors.terminal.dialogs import ApprovalPanel, approval_rows, choices_of
from ferrule.doors.terminal.forms import FormPanel, form_of, form_rows, menu
from ferrule.doors.terminal.panel import PAUSE
from ferrule.protocol.events import ElicitationRequest, ExecApproval, FileChange, UserInputRequest
from ferrule.protocol.permissions import AskForApproval, ReviewDecision, WorkspaceWrite
from ferrule.rendering.lookalikes import unmistakable
from ferrule.testing import Gate, Stall, custom_tool_call, function_call, step
from ferrule.testing.steps import StepLike
from ferrule.tools.questions import Elicited
from tests.cli.played import execute
from tests.terminal.screen import shown

NASTY = st.one_of(
    st.text(max_size=300),
    st.text("ab \n\t\x1b\x07\r\x9b\u202e\u2066\u200b\u200d\u0301\u20dd\u3164аеο；／Ａ日😀\ufe0f", max_size=400),
    st.builds(lambda part, count: part * count, st.text(max_size=8), st.integers(1, 500)),
)
ALL = tuple(ReviewDecision)
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def asked(text: str, **more: object) -> ExecApproval:
    """A question about a command."""
    fields: dict[str, object] = {"kind": "command", "decisions": ALL, "cwd": "/work", "reason": "it may"} | more
    return ExecApproval(request_id="1", call_id="2", text=text, **fields)  # type: ignore[arg-type]


def check(rows: list[Strip], width: int, height: int) -> list[str]:
    """The rows fit, and nothing in them acts on a terminal. Return their texts."""
    assert len(rows) <= height
    for strip in rows:
        assert strip.cell_length <= width
        assert not [char for char in strip.text if unicodedata.category(char) in HIDDEN]
    return [strip.text for strip in rows]


def choice_keys(texts: list[str]) -> list[str]:
    """The keys of the choices: in their column is nothing else, from the first choice on."""
    choices = texts[max(place for place, line in enumerate(texts) if line.startswith(" y yes, once")) :]
    return [line[1] for line in choices if line[:3].strip()]


@given(
    NASTY, NASTY, NASTY, st.lists(st.text(max_size=40), max_size=4), st.integers(20, 120), st.integers(11, 40),
    st.sampled_from(["command", "patch", "mcp", "tool", "network"]),
)  # fmt: skip
def test_nothing_that_is_said_changes_what_an_approval_shows(
    text: str, reason: str, cwd: str, prefix: list[str], width: int, height: int, kind: str
) -> None:
    question = asked(text, reason=reason, cwd=cwd, kind=kind, proposed_execpolicy_amendment=tuple(prefix))
    texts = check(approval_rows(question, 0, width, height), width, height)
    assert choice_keys(texts) == [choice.key for choice in choices_of(question)] == ["y", "s", "a", "n", "t"]
    assert texts[-2].strip() == "n no"


@given(NASTY, NASTY, st.integers(20, 120), st.integers(11, 40))
def test_nothing_in_a_patch_gets_into_the_column_of_its_line_numbers(
    path: str, text: str, width: int, height: int
) -> None:
    lines = text.split("\n")
    diff = f"@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)
    change = FileChange("add", path, added=len(lines), unified_diff=diff)
    texts = check(approval_rows(asked("", kind="patch", changes=(change,)), 0, width, height), width, height)
    assert choice_keys(texts) == ["y", "s", "a", "n", "t"]
    digits = len(str(len(lines)))
    numbered = [line for line in texts[1:-5] if line[digits : digits + 3] == " + "]
    assert len({line[:digits] for line in numbered}) == len(numbered)


def test_a_patch_is_asked_about_with_line_numbers_and_what_is_hidden_is_counted() -> None:
    diff = "@@ -9,3 +9,3 @@\n a\n-b\n+B\n c\n" + "@@ -90,0 +91,60 @@\n" + "+more\n" * 60
    change = FileChange("update", "a.py", "b.py", added=61, deleted=1, unified_diff=diff)
    question = asked("*** Begin Patch", kind="patch", changes=(change,), reason=None)
    texts = check(approval_rows(question, 0, 60, 23), 60, 23)
    assert texts[1:8] == [
        "change a.py -> b.py +61 -1", "  9   a", " 10 - b", " 10 + B", " 11   c", "      ⋮", " 91 + more",
    ]  # fmt: skip
    assert [line for line in texts if "not shown" in line] == ["… 51 lines are not shown …"]
    assert texts[-7:-5] == ["150 + more", "in /work"]


def test_of_a_file_whose_content_nobody_knows_yet_the_words_are_shown() -> None:
    text = f"image_generation: a map of {'x' * 200}\nA new file: a-map.png"
    question = asked(text, kind="patch", changes=(FileChange("add", "a-map.png"),), reason=None)
    shown = "".join(line.strip() for line in check(approval_rows(question, 0, 60, 23), 60, 23))
    assert f"image_generation: a map of {'x' * 200}" in shown and "A new file: a-map.png" in shown


async def test_the_diff_of_a_patch_that_waits_has_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{number}\n" for number in range(1, 13)))
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n 10\n-11\n+eleven\n*** End Patch"
    async with shown(tmp_path, [custom_tool_call("apply_patch", patch), "Ended."]) as screen:
        await screen.say("go")
        text = await screen.until("Write this patch")
        assert " change a.txt +1 -1\n" in text and " 11 - 11\n" in text and " 11 + eleven\n" in text
        await screen.press("n")
        await screen.until("Ended.")


async def test_a_long_patch_that_waits_can_be_read_whole_above_the_dialog(tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Add File: a.txt\n" + "".join(f"+line {n}\n" for n in range(50)) + "*** End Patch"
    async with shown(tmp_path, [custom_tool_call("apply_patch", patch), "Ended."]) as screen:
        await screen.say("go")
        await screen.until("Write this patch")
        await screen.until("lines are not shown")
        await screen.press("ctrl+o")
        seen = set(re.findall(r"\+ line (\d+)$", screen.text, re.MULTILINE))
        for _ in range(14):
            await screen.press("pageup")
            await screen.pilot.pause()
            seen |= set(re.findall(r"\+ line (\d+)\b", screen.text))
        assert seen == set(map(str, range(50))) and " y yes, once" in screen.text
        await screen.press("n")
        await screen.until("Write this patch", gone=True)


@given(NASTY, NASTY, st.lists(NASTY, max_size=3), st.integers(20, 120), st.integers(11, 40))
def test_nothing_that_is_said_changes_what_a_form_shows(
    text: str, server: str, labels: list[str], width: int, height: int
) -> None:
    options = [{"label": label, "description": text} for label in labels]
    questions = [{"id": "a", "question": text, "options": options, "is_other": True}]
    schema = {"type": "object", "properties": {text: {"type": "string", "enum": labels or [text]}}}
    for form in (
        form_of(UserInputRequest(request_id="1", call_id="2", questions=questions)),
        form_of(ElicitationRequest(request_id="1", server=server, message=text, schema=schema)),
    ):
        texts = check(form_rows(form, 0, 0, width, height), width, height)
        choices = menu(form, 0)
        assert [line[1] for line in texts[-len(choices) :]] == [key for key, _ in choices]


def elicited(**properties: Any) -> ElicitationRequest:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ElicitationRequest(request_id="1", server="server", message="Which one?", schema=schema)


async def test_a_dialog_that_needs_few_rows_says_all_of_it(tmp_path: Path) -> None:
    message = "Is it right that " + "many " * 30 + "files will go?"
    asked_twice = ElicitationRequest(request_id="1", server="s", message=message, schema={"type": "object"})
    call = asked("evil/danger", kind="mcp", cwd="", reason="the tool danger may change things")
    async with shown(tmp_path) as screen:
        for panel in (FormPanel("", form_of(asked_twice)), ApprovalPanel(call)):
            panel.request_id = ""
            screen.app.open_panel(panel)
            if isinstance(panel, FormPanel):
                await screen.until("The MCP server s asks: Is(.|\n)* go.$\n  y accept")
            else:
                await screen.until("^   evil/danger$\n the tool danger may change things$\n  y yes, once")


def test_of_many_options_those_around_the_chosen_one_are_shown_and_the_question_stays() -> None:
    form = form_of(elicited(c={"type": "string", "title": "Colour", "enum": [f"value{n}" for n in range(5000)]}))
    for chosen in (0, 7, 2500, 4999):
        texts = check(form_rows(form, 0, chosen, 40, 11), 40, 11)
        assert texts[0].endswith("asks: Which one?") and texts[1] == "Colour" and texts[-1] == " n decline"
        assert any(text[3:] == f"value{chosen}" for text in texts) and "more: " in texts[-2]
    assert check(form_rows(form, 0, 5000, 40, 11), 40, 11)[-1] == " n decline"
    assert form_rows(form, 0, -1, 80, 24)[-2].text == " 5000 value4999", "in lines, each has a number"


async def test_the_arrows_reach_every_option_and_a_default_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    answered: list[Any] = []
    many = {"type": "string", "enum": [f"value{n}" for n in range(40)]}
    async with shown(tmp_path) as screen:
        panel = FormPanel("", form_of(elicited(c=many, d={"type": "string", "default": "a\x1b[2J\u202e\nb"})))
        panel.give = answered.append  # type: ignore[assignment,method-assign]
        screen.app.open_panel(panel)
        await screen.until("asks: Which one.(.|\n)* value0")
        await screen.press("right", "right", "down")
        await screen.until("value21")
        await screen.press("enter")
        await screen.until("› a.2J b")
        await screen.press("enter")
    assert answered == [Elicited("accept", {"c": "value21", "d": "a[2J b"})]


@pytest.mark.parametrize(
    ("about", "typed", "value"),
    [
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}, "a, c", ["a", "c"]),
        ({"type": "array", "items": {"anyOf": [{"const": 1, "title": "One"}]}}, "One", [1]),
        ({"type": "array"}, "x,,y ", ["x", "y"]),
        ({"type": ["null", "integer"]}, "12", 12),
        ({"type": "number"}, "1e3", 1000.0),
    ],
)
def test_a_typed_answer_has_the_type_that_is_asked_for(about: dict[str, Any], typed: str, value: object) -> None:
    [field] = form_of(elicited(a=about)).fields
    assert field.read is not None and field.read(typed) == value
    for wrong in ("", "nan" if about["type"] == "number" else ","):
        with pytest.raises(ValueError, match="needed here"):
            field.read(wrong)


def test_an_unknown_one_of_several_is_told() -> None:
    [field] = form_of(elicited(a={"type": "array", "items": {"enum": ["a", "b"]}})).fields
    assert field.title == "a (several, with commas between them: a, b)" and field.read is not None
    with pytest.raises(ValueError, match="z is none of a, b"):
        field.read("a,z")


@pytest.mark.parametrize(("width", "height"), [(40, 11), (80, 23), (20, 11)])
def test_of_a_long_command_the_beginning_the_end_and_what_is_hidden_are_shown(width: int, height: int) -> None:
    command = "rm -rf /begin " + "x" * 5000 + " /end"
    texts = check(approval_rows(asked(command, reason="it asks (the model says: I must)"), 0, width, height), 80, 99)
    whole = "\n".join(texts)
    assert "rm -rf /begin" in whole.replace("\n  ", "") and re.search(r"… [3-5],\d\d\d char", whole)
    assert "y yes, once" in whole and " n no" in whole


def test_what_will_be_remembered_is_named() -> None:
    question = asked("git push", proposed_execpolicy_amendment=("git", "push"))
    assert "commands that begin with `git push`" in approval_rows(question, 0, 80, 20)[-3].text
    exact = asked("touch a", proposed_execpolicy_amendment=("touch", "a"), proposes_exact=True)
    assert "always: exactly `touch a`" in approval_rows(exact, 0, 80, 20)[-3].text
    host = asked("x", kind="network", proposed_execpolicy_amendment=None, proposed_network_host="a.example")
    assert "the host a.example" in approval_rows(host, 0, 80, 20)[-3].text


@pytest.mark.parametrize(
    ("prefix", "shown"),
    [
        ("git push origin", [" a always: commands that begin with", "   `git push origin`"]),
        ("git push " + "x" * 90, [" a always: commands that begin with `g", "   it push xxxxxxxxxxxxxxxxx… 74 more"]),
    ],
)
def test_what_will_be_remembered_is_readable_in_a_small_window(prefix: str, shown: list[str]) -> None:
    command = "git push " + "y" * 900
    question = asked(command, justification="because", proposed_execpolicy_amendment=prefix.split())
    texts = check(approval_rows(question, 0, 38, 11), 38, 11)
    assert [line for line in texts if line[1] == "a" or "xxx" in line or "origin" in line] == shown
    assert choice_keys(texts) == ["y", "s", "a", "n", "t"]
    assert not any("…" in line for line in texts if line.startswith((" y", " s", " n", " t")))


@pytest.mark.parametrize(
    ("text", "shows"),
    [
        ("cp a", "cp a"),
        ("\u0441p a", "\\u0441p a"),  # a Cyrillic letter in a Latin word
        ("\u0441\u0440", "\\u0441\\u0440"),  # a word that could be Latin
        ("файл.txt 日本 naïve", "файл.txt 日本 naïve"),
        ("a\u2215b \uff0fetc", "a\\u2215b \\uff0fetc"),
        ("a\u202eb\x1b[2J", "a\\u202eb\\x1b[2J"),
        ("x\u0301\u0301\u0301\u0301", "x\\u0301\\u0301\\u0301\\u0301"),
        ("𝐫𝐦", "\\U0001d42b\\U0001d426"),
    ],
)
def test_look_alikes_are_shown_as_escapes(text: str, shows: str) -> None:
    assert unmistakable(text) == shows


CONFINED = {"approval_policy": AskForApproval.ON_REQUEST, "sandbox_policy": WorkspaceWrite()}


async def test_choices_and_justification_stay_in_sight_at_40_by_12(tmp_path: Path) -> None:
    command = "echo begin; " + "true; " * 600 + "touch made"
    call = execute(command, 10_000, justification="because", sandbox_permissions="require_escalated")
    async with shown(tmp_path, [call, "Ended."], size=(40, 12), **CONFINED) as screen:
        await screen.say("go")
        text = await screen.until("Run this command")
        assert "echo begin" in text and "because" in text and "characters" in text
        assert " y yes, once" in text and "  n no" in text and "  t no, and tell" in text
        await screen.press("n")
        await screen.until("Ended.")
        assert not (tmp_path / "made").exists()


async def test_what_is_being_written_is_no_answer_and_stays(tmp_path: Path) -> None:
    gate = Gate()
    script: list[StepLike] = [step(execute("touch made", 10_000), stall=Stall(gate=gate)), "Ended."]
    async with shown(tmp_path, script) as screen:
        await screen.say("go")
        await screen.until("Thinking")
        await screen.press(*"m")
        gate.open()
        await screen.until("Run this command")
        await screen.press("y", "e", "s", "enter")
        assert "Run this command" in screen.text and not (tmp_path / "made").exists()
        await asyncio.sleep(PAUSE + 0.1)
        await screen.press("n")
        await screen.until("Ended.")
        assert screen.app.composer.text == "m" and not (tmp_path / "made").exists()


async def test_a_plan_makes_room_for_what_is_asked(tmp_path: Path) -> None:
    plan = {"plan": [{"step": f"Step {number}", "status": "pending"} for number in range(9)]}
    script: list[StepLike] = [function_call("update_plan", plan), execute("touch made", 10_000), "Ended."]
    async with shown(tmp_path, script, size=(40, 12)) as screen:
        await screen.say("go")
        text = await screen.until("Run this command")
        assert " y yes, once" in text and "  n no" in text and "  t no, and tell" in text
        assert "touch made" in text
        await screen.press("y")
        await screen.until("^ Plan 0 of 9")


QUESTIONS = [
    {"id": "color", "question": "Which color?", "options": [{"label": "Red"}, {"label": "Blue"}]},
    {"id": "name", "question": "What name?"},
]


async def test_questions_of_the_model_are_a_form(tmp_path: Path) -> None:
    call = function_call("request_user_input", {"questions": QUESTIONS})
    async with shown(tmp_path, [call, "Thanks."], tools=("request_user_input",)) as screen:
        await screen.say("ask me")
        await screen.until("Which color")
        await screen.press("2")
        await screen.until("What name")
        await screen.press(*"Ada", "enter")
        await screen.until("Thanks.")
        answer = '{"answers":{"color":{"answers":["Blue"]},"name":{"answers":["Ada"]}}}'
        assert list(screen.model.outputs().values()) == [answer]


async def test_a_question_can_be_left_unanswered_and_esc_interrupts(tmp_path: Path) -> None:
    call = function_call("request_user_input", {"questions": QUESTIONS[:1]})
    async with shown(tmp_path, [call, "Well.", call], tools=("request_user_input",)) as screen:
        await screen.say("ask me")
        await screen.until("Which color")
        await screen.press("n")
        await screen.until("Well.")
        assert "did not want to answer" in "".join(screen.model.outputs().values())
        await screen.say("again")
        await screen.until("Which color")
        await screen.press("escape")
        await screen.until("^ interrupted")
        await screen.until("Which color", gone=True)
