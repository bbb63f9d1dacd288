"""Who may do what: one outcome for each policy, sandbox and effect. The table in docs/approvals.md is made here."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from ferrule import RespondToModel, ToolAnnotations
from ferrule.dispatch.approval import approval_text, fingerprint
from ferrule.dispatch.denial import is_likely_denied
from ferrule.dispatch.orchestrator import RETRY_NOTICE, RETRY_REASON, Orchestrator
from ferrule.dispatch.workspace import Workspace
from ferrule.execpolicy import PolicyStore, load_rules, rule_files
from ferrule.execpolicy.amendment import DEFAULT_RULES
from ferrule.patch.files import PlainFiles
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.events import ExecApproval, FileChange
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    ReadOnly,
    ReviewDecision,
    SandboxPermissions,
    SandboxPolicy,
    WorkspaceWrite,
)
from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.context import Access, NoOtherTools, Permissions, ToolContext
from ferrule.tools.effects import CommandEffect, Effect, McpEffect, PatchEffect, ToolEffect
from ferrule.tools.files import Files
from ferrule.tools.questions import Answer, Decision, NoAnswer, Question
from tests.tools.contexts import RecordingHost

SANDBOXES: dict[str, SandboxPolicy] = {
    "read-only": ReadOnly(),
    "workspace-write": WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True),
    "danger-full-access": DangerFullAccess(),
}


class AskingHost(RecordingHost, NoOtherTools):
    """Answers each question with the next of `answers`, and NoAnswer when there is none."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self.answers = list(answers)
        self.questions: list[Question] = []
        self.interrupted = False

    async def ask(self, ctx: ToolContext, question: Question) -> Answer:
        self.questions.append(question)
        return self.answers.pop(0) if self.answers else NoAnswer("nobody can answer questions here")

    def interrupt(self) -> None:
        self.interrupted = True


class World:
    """A project with an orchestrator, whose attempts are recorded and not run."""

    def __init__(self, base: Path, sandbox: SandboxPolicy, policy: AskForApproval) -> None:
        self.project, self.home = base / "project", base / "home"
        self.project.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(exist_ok=True)
        self.permissions = Permissions(policy, sandbox)
        self.workspace = Workspace(sandbox, str(self.project), str(self.home), env={"HOME": str(base)})
        self.policies = PolicyStore(load_rules(rule_files([self.home])), self.home / DEFAULT_RULES)
        self.orchestrator = Orchestrator(PlainLauncher(), self.workspace, self.policies, os.environ)
        self.attempts: list[Access] = []

    def context(self, host: RecordingHost) -> ToolContext:
        files = Files(PlainFiles(), str(self.project))
        caller = host if isinstance(host, AskingHost) else NoOtherTools()
        return ToolContext("c", str(self.project), self.permissions, OutputBudget(100), files, host, caller=caller)

    async def run(self, effect: Effect, host: RecordingHost, results: Iterator[object] | None = None) -> object:
        async def attempt(access: Access) -> object:
            self.attempts.append(access)
            return None if results is None else next(results)

        return await self.orchestrator.run(self.context(host), effect, attempt)

    async def outcome(self, effect: Effect) -> str:
        """What happens when the user says yes once: runs, confined or free, after a question or not; or why not."""
        host = AskingHost(Decision(ReviewDecision.APPROVED))
        try:
            await self.run(effect, host)
        except RespondToModel:
            return "refused"
        access = self.attempts[-1]
        how = "confined" if access.sandboxed else "free"
        return f"ask, then {how}" if host.questions else how


def command(world: World, *argv: str, **more: object) -> CommandEffect:
    made = CommandEffect(argv=argv, cwd=str(world.project))
    return msgspec.structs.replace(made, **more)


def patch(world: World, *names: str, **more: object) -> PatchEffect:
    paths = tuple(os.path.normpath(world.project / name) for name in names)
    changes = tuple(FileChange("update", name) for name in names)
    return msgspec.structs.replace(PatchEffect(cwd=str(world.project), changes=changes, paths=paths), **more)


READS = ToolAnnotations(readOnlyHint=True)
ACTIONS: dict[str, Callable[[World], Effect]] = {
    "safe read: ls": lambda world: command(world, "ls"),
    "unknown command: make": lambda world: command(world, "make"),
    "network: curl": lambda world: command(world, "curl", "https://example.org"),
    "dangerous: rm -rf": lambda world: command(world, "rm", "-rf", "x"),
    "escalation: make": lambda world: command(
        world, "make", sandbox_permissions=SandboxPermissions.REQUIRE_ESCALATED, justification="needs the disk"
    ),
    "patch inside": lambda world: patch(world, "a.txt"),
    "patch outside": lambda world: patch(world, "../outside.txt"),
    "patch of .git": lambda world: patch(world, ".git/config"),
    "patch over a hard link": lambda world: patch(world, "a.txt", risks=("a.txt has 2 hard links",)),
    "MCP, read-only": lambda world: McpEffect(server="s", tool="t", arguments="{}", annotations=READS),
    "MCP, may destroy": lambda world: McpEffect(server="s", tool="t", arguments="{}", annotations=ToolAnnotations()),
    "function or dynamic tool": lambda world: ToolEffect(name="t", arguments="{}", annotations=ToolAnnotations()),
}

R, F, C, AF, AC = "refused", "free", "confined", "ask, then free", "ask, then confined"
# policy -> sandbox -> one outcome for each of ACTIONS
EXPECTED: dict[str, dict[str, list[str]]] = {
    "untrusted": {
        "read-only": [C, AC, AC, AC, AF, AF, AF, AF, AF, C, AC, AC],
        "workspace-write": [C, AC, AC, AC, AF, AC, AF, AF, AC, C, AC, AC],
        "danger-full-access": [F, AF, AF, AF, AF, AF, AF, AF, AF, F, AF, AF],
    },
    "on-failure": {
        "read-only": [C, C, C, AC, AF, AF, AF, AF, AF, C, AC, C],
        "workspace-write": [C, C, C, AC, AF, C, AF, AF, AC, C, AC, C],
        "danger-full-access": [F, F, F, AF, F, F, F, F, F, F, AF, F],
    },
    "on-request": {
        "read-only": [C, C, C, AC, AF, AF, AF, AF, AF, C, AC, C],
        "workspace-write": [C, C, C, AC, AF, C, AF, AF, AC, C, AC, C],
        "danger-full-access": [F, F, F, AF, F, F, F, F, F, F, AF, F],
    },
    "never": {
        "read-only": [C, C, C, R, R, R, R, R, R, C, R, C],
        "workspace-write": [C, C, C, R, R, C, R, R, R, C, R, C],
        "danger-full-access": [F, F, F, R, R, F, F, F, F, F, R, F],
    },
}


@pytest.mark.parametrize(("policy", "sandbox"), list(itertools.product(EXPECTED, SANDBOXES)))
async def test_the_matrix(policy: str, sandbox: str, tmp_path: Path) -> None:
    found = {}
    for name, action in ACTIONS.items():
        world = World(tmp_path, SANDBOXES[sandbox], AskForApproval(policy))
        found[name] = await world.outcome(action(world))
        await world.workspace.close()
    assert found == dict(zip(ACTIONS, EXPECTED[policy][sandbox], strict=True))


def matrix_table() -> str:
    """The table of docs/approvals.md: a row an action, a column a sandbox, for each policy."""
    lines: list[str] = []
    for policy, sandboxes in EXPECTED.items():
        lines += [f"**`{policy}`**", "", f"| | {' | '.join(SANDBOXES)} |", "|---" * (len(SANDBOXES) + 1) + "|"]
        for index, action in enumerate(ACTIONS):
            cells = [sandboxes[sandbox][index] for sandbox in SANDBOXES]
            lines.append(f"| {' | '.join([action, *cells])} |")
        lines.append("")
    return "\n".join(lines)


def test_the_table_in_the_docs_is_this_one() -> None:
    page = Path(__file__).parents[2] / "docs" / "approvals.md"
    assert matrix_table() in page.read_text()


@pytest.fixture
def asking(tmp_path: Path) -> World:
    return World(tmp_path, SANDBOXES["workspace-write"], AskForApproval.ON_REQUEST)


def escalated(world: World, *argv: str) -> CommandEffect:
    return command(world, *argv, sandbox_permissions=SandboxPermissions.REQUIRE_ESCALATED)


async def test_a_refusal_is_told_with_the_users_words(asking: World) -> None:
    host = AskingHost(Decision(ReviewDecision.DENIED, "use make test"))
    with pytest.raises(RespondToModel, match="exec command rejected by user: use make test"):
        await asking.run(escalated(asking, "make"), host)
    assert asking.attempts == []
    with pytest.raises(RespondToModel, match="patch rejected by user: nobody can answer questions here"):
        await asking.run(patch(asking, "../x"), AskingHost())


async def test_abort_also_ends_the_turn(asking: World) -> None:
    host = AskingHost(Decision(ReviewDecision.ABORT))
    with pytest.raises(RespondToModel, match="rejected by user"):
        await asking.run(escalated(asking, "make"), host)
    assert host.interrupted


async def test_only_a_session_approval_is_remembered_and_only_for_the_same_thing(asking: World) -> None:
    once = AskingHost(*[Decision(ReviewDecision.APPROVED)] * 2)
    await asking.run(escalated(asking, "make"), once)
    await asking.run(escalated(asking, "make"), once)
    assert len(once.questions) == 2
    session = AskingHost(*[Decision(ReviewDecision.APPROVED_FOR_SESSION)] * 2)
    await asking.run(escalated(asking, "make"), session)
    await asking.run(escalated(asking, "make"), session)
    await asking.run(escalated(asking, "make", "install"), session)
    assert len(session.questions) == 2


async def test_all_paths_of_a_patch_must_be_known(asking: World) -> None:
    host = AskingHost(*[Decision(ReviewDecision.APPROVED_FOR_SESSION)] * 2)
    await asking.run(patch(asking, "../a"), host)
    await asking.run(patch(asking, "../a", "../b"), host)
    await asking.run(patch(asking, "../b"), host)
    assert len(host.questions) == 2


async def test_an_amendment_is_live_at_once_and_on_disk(asking: World) -> None:
    effect = command(asking, "rm", "-f", "build.log")
    host = AskingHost(Decision(ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT))
    await asking.run(effect, host)
    [question] = host.questions
    assert isinstance(question, ExecApproval)
    assert ReviewDecision.APPROVED_EXECPOLICY_AMENDMENT in question.decisions
    assert question.proposed_execpolicy_amendment == ("rm", "-f", "build.log") and question.proposes_exact
    await asking.run(effect, AskingHost())
    rule = 'prefix_rule(pattern=["rm", "-f", "build.log"], decision="allow", exact=True)'
    assert rule in (asking.home / DEFAULT_RULES).read_text()


async def test_b139_what_is_shown_is_all_that_runs(asking: World) -> None:
    script = "echo ok" + " " * 200 + "; rm -rf x\u202e\x1b[2K"
    effect = command(asking, "/bin/bash", "-c", script, env=(("A", "b\rc"),))
    text = approval_text(effect)
    assert "rm -rf x\\u202e\\x1b[2K" in text
    assert "\x1b" not in text
    assert "\r" not in text
    assert "A='b\\rc'" in text
    for changed in (
        command(asking, "/bin/bash", "-c", script + " ", env=effect.env),
        msgspec.structs.replace(effect, cwd="/"),
        msgspec.structs.replace(effect, env=()),
    ):
        assert fingerprint(changed) != fingerprint(effect)
    long = approval_text(command(asking, "bash", "-c", "x" * 50_000))
    assert len(long) == 50_000


class Result:
    """A command that ended."""

    def __init__(self, exit_code: int | None, transcript: str = "", timed_out: bool = False) -> None:
        self.exit_code, self.transcript, self.timed_out = exit_code, transcript, timed_out


DENIED = Result(1, "sh: 1: cannot create /outside/f: Read-only file system")


async def test_b140_a_likely_denial_is_asked_about_once_and_then_runs_free(asking: World) -> None:
    host = AskingHost(Decision(ReviewDecision.APPROVED))
    results = iter([DENIED, Result(0)])
    assert await asking.run(command(asking, "make"), host, results) is not DENIED
    [question] = host.questions
    assert isinstance(question, ExecApproval)
    assert question.reason == RETRY_REASON
    assert [access.sandboxed for access in asking.attempts] == [True, False]
    assert [access.notice for access in asking.attempts] == [None, RETRY_NOTICE]


@pytest.mark.parametrize(
    "result",
    [
        Result(1, "FAILED tests/test_x.py"),
        Result(127, "no such command"),
        Result(124, "permission denied", True),
        Result(0, "sandbox"),
        Result(None, "permission denied"),
    ],
)
async def test_b140_other_failures_are_returned_as_they_are(asking: World, result: Result) -> None:
    host = AskingHost(Decision(ReviewDecision.APPROVED))
    assert await asking.run(command(asking, "make"), host, iter([result])) is result
    assert host.questions == []


async def test_b140_the_retry_is_not_remembered_and_needs_a_yes(asking: World) -> None:
    host = AskingHost(Decision(ReviewDecision.APPROVED), Decision(ReviewDecision.DENIED))
    await asking.run(command(asking, "make"), host, iter([DENIED, Result(0)]))
    assert await asking.run(command(asking, "make"), host, iter([DENIED])) is DENIED
    assert len(host.questions) == 2
    assert await asking.run(command(asking, "make"), AskingHost(), iter([DENIED])) is DENIED


async def test_b140_under_never_a_denial_is_returned(tmp_path: Path) -> None:
    world = World(tmp_path, SANDBOXES["workspace-write"], AskForApproval.NEVER)
    host = AskingHost()
    assert await world.run(command(world, "make"), host, iter([DENIED])) is DENIED
    assert host.questions == []


async def test_a_rule_of_the_user_lets_a_command_out_of_the_sandbox(tmp_path: Path) -> None:
    (tmp_path / "home" / "rules").mkdir(parents=True)
    (tmp_path / "home" / "rules" / "a.rules").write_text(
        'prefix_rule(pattern=["true"], decision="allow")\n'
        'prefix_rule(pattern=["git", "push"], decision="forbidden", justification="no pushing")\n'
    )
    world = World(tmp_path, SANDBOXES["workspace-write"], AskForApproval.NEVER)
    assert await world.outcome(command(world, "/usr/bin/true")) == "free"
    assert await world.outcome(command(world, "make")) == "confined"
    with pytest.raises(RespondToModel, match="rejected: no pushing"):
        await world.run(command(world, "git", "push"), AskingHost())


def test_what_may_be_written(asking: World) -> None:
    boundary = asking.workspace.boundary
    assert boundary is not None
    top = str(asking.project)
    names = ("a", "b/.git2", ".git", "b/.git/x", ".codex/x", ".mcp.json", ".gitignore")
    allowed = [name for name in names if boundary.refusal(f"{top}/{name}") is None]
    assert allowed == ["a", "b/.git2", ".mcp.json", ".gitignore"]
    assert boundary.refusal(top + "x")
    assert boundary.refusal("/etc/passwd")


def test_the_words_of_a_denial() -> None:
    assert is_likely_denied(Result(2, "PERMISSION DENIED"))
    assert is_likely_denied(Result(159))
    assert is_likely_denied(Result(6, "curl: (6) Could not resolve host: example.org"))
    assert not is_likely_denied(Result(1, "error"))


@pytest.mark.parametrize("kind", ["mcp", "tool"])
async def test_s19_a_session_approval_covers_exactly_the_arguments_that_were_shown(asking: World, kind: str) -> None:
    def effect(arguments: str) -> Effect:
        if kind == "mcp":
            return McpEffect(server="s", tool="t", arguments=arguments, annotations=ToolAnnotations())
        return ToolEffect(name="t", arguments=arguments, annotations=ToolAnnotations())

    world = World(asking.project.parent, asking.permissions.sandbox_policy, AskForApproval.UNTRUSTED)
    host = AskingHost(*[Decision(ReviewDecision.APPROVED_FOR_SESSION)] * 2)
    await world.run(effect('{"table": "a"}'), host)
    await world.run(effect('{"table": "a"}'), host)
    await world.run(effect('{"table": "b"}'), host)
    assert len(host.questions) == 2


@pytest.mark.parametrize("policy", list(AskForApproval))
async def test_what_the_provider_warns_of_is_asked_each_time_it_is_another(
    asking: World, policy: AskForApproval
) -> None:
    def effect(*warnings: str) -> Effect:
        hints = ToolAnnotations(readOnlyHint=True)
        return ToolEffect(name="computer", arguments="{}", annotations=hints, warnings=warnings)

    world = World(asking.project.parent, asking.permissions.sandbox_policy, policy)
    host = AskingHost(*[Decision(ReviewDecision.APPROVED_FOR_SESSION)] * 2)
    if policy is AskForApproval.NEVER:
        with pytest.raises(RespondToModel, match=r"policy is never: look\\u200bout; and up"):
            await world.run(effect("look\u200bout", "and up"), host)
        assert host.questions == []
        return
    await world.run(effect("look\u200bout", "and up"), host)
    await world.run(effect("look\u200bout", "and up"), host)
    await world.run(effect("another"), host)
    assert [question.reason for question in host.questions if isinstance(question, ExecApproval)] == [
        "the model's provider warns: look\\u200bout; and up",
        "the model's provider warns: another",
    ]
