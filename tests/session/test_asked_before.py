"""Questions that are known before a call begins, and calls that begin with the answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ferrule import Action, ReviewDecision, ToolAnnotations, ToolContext, ToolDefinition, ToolExecutor, Toolset, tool
from ferrule.integrations.offered import offered
from ferrule.process.run import run
from ferrule.protocol.errors import Fatal
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.payload import ToolOutput
from ferrule.tools.context import Access
from ferrule.tools.effects import CommandEffect
from ferrule.tools.questions import Decision
from tests.processes import children, until

TOUCH = {"command": "touch made"}
PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-old\n+new\n*** End Patch"


def opened(
    tmp_path: Path, *tools: Any, policy: str = "untrusted", sandbox: str = "danger-full-access", **more: Any
) -> Toolset:
    """A toolset whose policy asks; nobody answers unless `more` says so."""
    chosen = tools or ("shell_command",)
    return Toolset.for_model("gpt-4.1", cwd=tmp_path, sandbox=sandbox, approval_policy=policy, tools=chosen, **more)


async def test_a_question_is_told_and_nothing_runs(tmp_path: Path) -> None:
    async with opened(tmp_path) as tools:
        question = await tools.question_of("shell_command", TOUCH, "c")
    assert question is not None
    assert (question.kind, question.text, question.cwd) == ("command", "touch made", str(tmp_path))
    assert question.call_id == "c"
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("decision", "made"),
    [(True, True), (ReviewDecision.APPROVED, True), (False, False), (Decision(ReviewDecision.DENIED, "later"), False)],
)
async def test_a_call_begins_with_the_answer(tmp_path: Path, decision: Any, made: bool) -> None:
    async with opened(tmp_path) as tools:
        shown = await tools.question_of("shell_command", TOUCH, "c")
        output = await tools.call("shell_command", TOUCH, "c", decision=decision, shown=shown)
    assert (tmp_path / "made").exists() is made
    assert output.success is made
    assert made or output.text.startswith("exec command rejected by user")
    assert "later" in output.text or not isinstance(decision, Decision)


async def test_a_decision_counts_for_what_was_shown_and_for_nothing_else(tmp_path: Path) -> None:
    asked: list[str] = []

    def decide(question: ExecApproval) -> bool:
        asked.append(question.text)
        return True

    async with opened(tmp_path) as tools:
        shown = await tools.question_of("shell_command", {"command": "rm made"}, "c")
        refused = await tools.call("shell_command", TOUCH, "c", decision=True, shown=shown)
        assert "what was approved is not what the call would do now: touch made" in refused.text
        assert not (tmp_path / "made").exists()
    async with opened(tmp_path, on_approval=decide) as tools:
        await tools.call("shell_command", TOUCH, "c", decision=True, shown=shown)
        assert (asked, (tmp_path / "made").exists()) == (["touch made"], True)


async def test_a_patch_of_a_file_that_changed_meanwhile_is_another(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\nold\n")
    async with opened(tmp_path, "apply_patch") as tools:
        shown = await tools.question_of("apply_patch", PATCH, "c")
        assert shown is not None
        assert (tmp_path / "a.txt").read_text() == "one\nold\n"
        (tmp_path / "a.txt").write_text("another\nold\n")
        refused = await tools.call("apply_patch", PATCH, "c", decision=True, shown=shown)
        assert "what was approved is not what" in refused.text
        shown = await tools.question_of("apply_patch", PATCH, "c")
        assert (await tools.call("apply_patch", PATCH, "c", decision=True, shown=shown)).success
    assert (tmp_path / "a.txt").read_text() == "another\nnew\n"


async def test_a_run_without_the_sandbox_is_another_question(tmp_path: Path) -> None:
    asked: list[str | None] = []

    def decide(question: ExecApproval) -> bool:
        asked.append(question.reason)
        return False

    outside = {"command": f"touch {tmp_path}/outside"}
    for on_approval in (None, decide):
        inside = tmp_path / "inside"
        inside.mkdir(exist_ok=True)
        async with opened(inside, sandbox="read-only", on_approval=on_approval) as tools:
            shown = await tools.question_of("shell_command", outside, "c")
            output = await tools.call("shell_command", outside, "c", decision=True, shown=shown)
        assert output.success is False
        assert "Read-only file system" in output.text or "Permission denied" in output.text
        assert not (tmp_path / "outside").exists()
    assert asked == ["command failed; retry without sandbox?"]


async def test_twins_with_one_call_id_are_both_answered(tmp_path: Path) -> None:
    append = {"command": "echo x >> made"}
    async with opened(tmp_path) as tools:
        shown = await tools.question_of("shell_command", append, "c")
        calls = (tools.call("shell_command", append, "c", decision=True, shown=shown) for _ in range(2))
        assert [output.success for output in await asyncio.gather(*calls)] == [True, True]
        assert (await tools.call("shell_command", append, "c")).success is False
    assert (tmp_path / "made").read_text() == "x\nx\n"


async def test_a_decision_that_is_none_is_said(tmp_path: Path) -> None:
    async with opened(tmp_path) as tools:
        with pytest.raises(Fatal, match="returned 'yes'"):
            await tools.call("shell_command", TOUCH, "c", decision="yes")  # type: ignore[arg-type]
    assert not (tmp_path / "made").exists()


class CountAction(Action):
    """Count."""


class Counter(ToolExecutor[CountAction, Any]):
    """Takes the context, and acts without asking."""

    calls = 0

    async def __call__(self, action: CountAction, ctx: ToolContext) -> str:
        self.calls += 1
        return "counted"


async def test_tools_are_not_run_to_learn_what_they_ask(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool(annotations=ToolAnnotations(readOnlyHint=True))
    def look(name: str) -> str:
        """Look."""
        ran.append(name)
        return name

    @tool
    def change(name: str) -> str:
        """Change."""
        ran.append(name)
        return name

    counter = Counter()
    counting: Any = ToolDefinition(executor=counter)
    async with opened(tmp_path, look, change, counting, "write_stdin") as tools:
        assert await tools.question_of("look", {"name": "a"}) is None
        question = await tools.question_of("change", {"name": "b"})
        assert question is not None
        assert question.text == 'change {"name":"b"}'
        assert await tools.question_of("count", {}) is None
        for wrong in ("chang", "write_stdin", "change"):
            assert await tools.question_of(wrong, {"session_id": "x"}) is None
        assert (ran, counter.calls) == ([], 0)
        assert (await tools.call("change", {"name": "b"}, decision=True, shown=question)).text == "b"


ANY_ARGUMENTS = {
    "cmd": "touch made",
    "code": "open('made', 'w')",
    "file_text": "x",
    "input": "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch",
    "message": "m",
    "pattern": "o",
    "plan": [],
    "query": "q",
    "session_id": 1,
    "thought": "t",
}


async def test_no_built_in_tool_leaves_a_trace_before_it_is_approved(tmp_path: Path) -> None:
    asked = set()
    async with opened(tmp_path, "*") as tools:
        await tools.question_of("shell_command", TOUCH)  # reads the login shell's environment
        before = set(children())
        for tool_ in offered(tools):
            properties = tool_.parameters["properties"]
            given: dict[str, Any] = {name: value for name, value in ANY_ARGUMENTS.items() if name in properties}
            if "file_text" in given:
                given |= {"command": "create", "path": str(tmp_path / "made")}
            elif "command" in properties:
                given["command"] = ["touch", "made"] if properties["command"]["type"] == "array" else "touch made"
            if await tools.question_of(tool_.called, given):
                asked.add(tool_.name)
            assert list(tmp_path.iterdir()) == [], tool_.name
            assert set(children()) <= before, tool_.name
    commands = {"exec_command", "shell_command", "shell", "bash", "execute_bash", "python"}
    assert commands | {"apply_patch", "file_editor", "str_replace_based_edit_tool"} <= asked


class RemoveAction(Action):
    """Remove a file."""

    path: str


class Remover(ToolExecutor[RemoveAction, Any]):
    """Only looks before it asks."""

    asks_first = True

    async def __call__(self, action: RemoveAction, ctx: ToolContext) -> str:
        argv = ("rm", ctx.files.path(action.path))

        async def attempt(access: Access) -> str:
            return f"{(await run(access.launcher, argv, env={'PATH': '/bin'}, cwd=ctx.cwd)).exit_code}"

        return await ctx.run(CommandEffect(argv=argv, cwd=ctx.cwd), attempt)


async def test_a_tool_of_the_users_may_say_that_it_asks_first(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    removing: Any = ToolDefinition(executor=Remover())
    async with opened(tmp_path, removing) as tools:
        shown = await tools.question_of("remove", {"path": "a"})
        assert shown is not None
        assert shown.text == f"rm {tmp_path}/a"
        assert (tmp_path / "a").exists()
        assert (await tools.call("remove", {"path": "a"}, decision=True, shown=shown)).text == "0"


@pytest.mark.parametrize(("name", "again"), [("bash", {"restart": True}), ("execute_bash", {"reset": True})])
async def test_a_kept_shell_lives_on_when_a_new_one_is_only_asked_for(
    tmp_path: Path, name: str, again: dict[str, bool]
) -> None:
    async with opened(tmp_path, name) as tools:
        await tools.call(name, {"command": "kept=1"}, decision=True)
        assert await tools.question_of(name, again) is None
        anew = {"command": "touch made", **again}
        question = await tools.question_of(name, anew)
        assert question is not None
        assert (await tools.call(name, anew, decision=False, shown=question)).success is False
        kept = await tools.call(name, {"command": "touch x && echo kept=$kept"}, decision=True)
        assert "kept=1" in kept.text
        await tools.call(name, anew, decision=True, shown=question)
        assert (tmp_path / "made").exists()
        assert "kept=1" not in (await tools.call(name, {"command": "touch x; echo kept=$kept"}, decision=True)).text


async def test_a_policy_that_never_asks_has_no_questions(tmp_path: Path) -> None:
    async with opened(tmp_path, policy="never") as tools:
        assert await tools.question_of("shell_command", TOUCH) is None
        assert (await tools.call("shell_command", TOUCH, decision=False)).success


def test_models_are_told_that_somebody_answers(tmp_path: Path) -> None:
    with opened(tmp_path, policy="on-request", sandbox="workspace-write") as tools:
        [before] = tools.specs()
        tools.answer_first()
        [after] = tools.specs()
    assert "Nobody can be asked" in before["description"]
    assert "sandbox_permissions" not in before["parameters"]["properties"]
    assert "the user is asked then" in after["description"]
    assert "sandbox_permissions" in after["parameters"]["properties"]


def test_calls_from_another_loop_run_where_the_toolset_is_at_home(tmp_path: Path) -> None:
    async def elsewhere(tools: Toolset) -> ToolOutput:
        return await tools.on_own_loop(lambda: tools.call("shell_command", {"command": "echo hi"}))

    with opened(tmp_path, policy="never") as tools:
        assert [asyncio.run(elsewhere(tools)).text[-3:] for _ in range(2)] == ["hi\n", "hi\n"]
        tools.run_sync([])


def test_a_cancelled_call_from_another_loop_has_ended(tmp_path: Path) -> None:
    started = tmp_path / "started"

    async def elsewhere(tools: Toolset) -> None:
        script = f"trap 'echo ended > {tmp_path}/ended; exit' TERM; echo > {started}; while :; do sleep 0.01; done"
        call = asyncio.create_task(tools.on_own_loop(lambda: tools.call("shell_command", {"command": script})))
        await until(started.exists)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (tmp_path / "ended").read_text() == "ended\n"

    with opened(tmp_path, policy="never") as tools:
        asyncio.run(elsewhere(tools))
