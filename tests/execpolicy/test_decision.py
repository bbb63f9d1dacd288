"""The decision: policy x sandbox x command, its texts, the rule or heuristic behind it, the amendment it offers."""

import json
import shlex
import time
from pathlib import Path

import pytest

from ferrule.execpolicy import Rules, UnknownHost, decide, load_rules, policy_report
from ferrule.protocol.approvals import (
    ExecApprovalRequest,
    ExecApprovalRequirement,
    ExecPolicyAmendment,
    Forbidden,
    HeuristicsRuleMatch,
    NeedsApproval,
    Skip,
)
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    ExternalSandbox,
    ReadOnly,
    SandboxPermissions,
    SandboxPolicy,
    WorkspaceWrite,
)

RULES = """
prefix_rule(pattern=["git", "status"])
prefix_rule(pattern=["git", "push"], decision="forbidden", justification="no pushing")
prefix_rule(pattern=["git", "push", "origin"], decision="forbidden")
prefix_rule(pattern=["rm", "-f"])
prefix_rule(pattern=["gh", "api"])
prefix_rule(pattern=["npm"], decision="prompt", justification="npm runs scripts")
prefix_rule(pattern=["make"], decision="prompt")
prefix_rule(pattern=["dropdb"], decision="forbidden")
"""


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    path = tmp_path / "default.rules"
    path.write_text(RULES)
    return load_rules([path])


def judge(
    script: str,
    policy: str = "on-request",
    rules: Rules | None = None,
    *,
    sandbox: SandboxPolicy | None = None,
    escalate: bool = False,
    prefix: str | None = None,
    argv: list[str] | None = None,
    host: UnknownHost | None = None,
) -> ExecApprovalRequirement:
    request = ExecApprovalRequest(
        tuple(argv or ["bash", "-lc", script]),
        AskForApproval(policy),
        sandbox or WorkspaceWrite(),
        SandboxPermissions.REQUIRE_ESCALATED if escalate else SandboxPermissions.USE_DEFAULT,
        tuple(prefix.split()) if prefix is not None else None,
    )
    return decide(request, rules or Rules(), host)


def short(requirement: ExecApprovalRequirement) -> str:
    if isinstance(requirement, Skip):
        return "bypass" if requirement.bypass_sandbox else "run"
    return "ask" if isinstance(requirement, NeedsApproval) else "no"


POLICIES = ("untrusted", "on-failure", "on-request", "never")


@pytest.mark.parametrize(
    ("sandbox", "command", "expected"),
    [
        (WorkspaceWrite(), "ls -la", "run run run run"),
        (WorkspaceWrite(), "make", "ask run run run"),
        (WorkspaceWrite(), "ls; (rm x)", "ask run run run"),
        (WorkspaceWrite(), "rm -rf x", "ask ask ask no"),
        (WorkspaceWrite(), "echo $(sudo rm --force x)", "ask ask ask no"),
        (ReadOnly(), "make", "ask run run run"),
        (ReadOnly(), "rm -f x", "ask ask ask no"),
        (DangerFullAccess(), "ls", "run run run run"),
        (DangerFullAccess(), "make", "ask run run run"),
        (DangerFullAccess(), "rm -rf x", "ask ask ask no"),
        (ExternalSandbox(), "make", "ask run run run"),
        (ExternalSandbox(), "find . | xargs rm -f", "ask ask ask no"),
    ],
)
def test_the_matrix_without_rules(sandbox: SandboxPolicy, command: str, expected: str) -> None:
    assert [short(judge(command, policy, sandbox=sandbox)) for policy in POLICIES] == expected.split()


@pytest.mark.parametrize(
    ("sandbox", "command", "expected"),
    [
        (WorkspaceWrite(), "make", "ask ask ask no"),
        (WorkspaceWrite(), "ls", "run ask ask no"),
        (DangerFullAccess(), "make", "ask run run no"),
        (ExternalSandbox(), "make", "ask run run no"),
    ],
)
def test_the_matrix_of_escalation(sandbox: SandboxPolicy, command: str, expected: str) -> None:
    assert [short(judge(command, policy, sandbox=sandbox, escalate=True)) for policy in POLICIES] == expected.split()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git status -s", "bypass bypass bypass bypass"),
        ("git status && gh api x", "bypass bypass bypass bypass"),
        ("git status && ls", "run run run run"),
        ("git status && touch x", "ask run run run"),
        ("timeout 5 git status", "bypass bypass bypass bypass"),
        ("sudo git status", "ask run run run"),
        ("npm test", "ask ask ask no"),
        ("ls && npm test", "ask ask ask no"),
        ("ls > $(npm bin)", "ask ask ask no"),
        ("git push", "no no no no"),
        ("git status && git push", "no no no no"),
        ("rm -f x", "bypass bypass bypass bypass"),
        ("rm -rf x", "ask ask ask no"),
        ("git status; rm -rf x", "ask ask ask no"),
        ("sudo rm -f x", "ask ask ask no"),
        ("gh api x <<'EOF'\nhi\nEOF", "bypass bypass bypass bypass"),
        ("gh api x > f", "ask run run run"),
    ],
)
def test_the_matrix_with_rules(rules: Rules, command: str, expected: str) -> None:
    assert [short(judge(command, policy, rules)) for policy in POLICIES] == expected.split()


@pytest.mark.parametrize(
    "command",
    [
        "git status && rm -rf x",
        "git status\nrm -rf x",
        "git status & rm x",
        "git status | sh",
        "git status |& sh",
        "git status; (rm x)",
        "git status # x\nrm y",
        "git status || rm x",
        "git status > f",
        "git status $(rm x)",
        "! git status",
        "git status; f() { rm x; }",
        "git status `rm x`",
        "git status <(rm x)",
        "git status\r\nrm x",
    ],
)
def test_b128_a_rule_for_the_first_command_covers_no_other(rules: Rules, command: str) -> None:
    assert short(judge(command, "untrusted", rules)) == "ask"
    assert short(judge(command, "on-request", rules)) != "bypass"


@pytest.mark.parametrize(
    "command",
    [
        "ls && git push",
        "ls\ngit push",
        "ls & git push",
        "(git push)",
        "echo $(git push)",
        "bash -c 'git push'",
        "sudo git push",
        "X=1 git push",
        "nice git push",
        "/tmp/git push",
        "./git push",
        "env -S 'git push'",
        "xargs git push",
        "if a; then git push; fi",
        r"\git push",
        "'g'it push",
        "g\\\nit push",
        "find . -exec git push \\;",
        "eval git push",
        "cat <<E\n$(git push)\nE",
        "PAGER=x git push $y",
        "bash -c \"bash -c 'git push'\"",
    ],
)
def test_b128_a_rule_that_forbids_wins_wherever_it_matches(rules: Rules, command: str) -> None:
    assert short(judge(command, "on-request", rules)) == "no"
    assert short(judge(command, "untrusted", rules)) == "no"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("GH_TOKEN=t gh api x", "bypass"),
        ("CI=1 CFLAGS=-O2 gh api x", "bypass"),
        ("env CI=1 gh api x", "bypass"),
        ("PAGER=cat gh api x", "bypass"),
        ("PAGER=./p git status", "run"),
        ("LD_PRELOAD=./e.so gh api x", "run"),
        ("env PATH=. gh api x", "run"),
        ("GIT_SSH_COMMAND=./x git status", "run"),
        ("env -S 'rm -rf x'", "ask"),
        ("command rm -rf x", "ask"),
        ("timeout 5 rm -rf x", "ask"),
        (r"\rm -rf x", "ask"),
        ("'r'm -rf x", "ask"),
        ("r\\\nm -rf x", "ask"),
    ],
)
def test_b130_prefixes_wrappers_and_spellings(rules: Rules, command: str, expected: str) -> None:
    assert short(judge(command, "on-request", rules)) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/usr/bin/git status", "bypass"),
        ("./git status", "run"),
        ("/tmp/git status", "run"),
        ("git.exe status", "run"),
        ("/tmp/git push", "no"),
        ("git.exe push", "no"),
        ("g status", "run"),
        ("g push", "no"),
        ("g log", "run"),
    ],
)
def test_b131_paths_copies_and_links(rules: Rules, command: str, expected: str) -> None:
    class Linked(UnknownHost):
        def resolve(self, program: str) -> str | None:
            return "/usr/bin/git" if program == "g" else None

    assert short(judge(command, "on-request", rules, host=Linked())) == expected


@pytest.mark.parametrize(
    ("command", "policy", "text"),
    [
        ("rm -rf x", "never", "rejected: rm -f style commands are not permitted. Use a safer approach"),
        ("rm -rf x", "on-request", "requires approval: it deletes files by force"),
        ("touch x", "untrusted", "requires approval: it is not known to be read-only"),
        ("git push", "never", "rejected: no pushing"),
        ("git push origin", "never", "rejected: policy forbids commands starting with `git push origin`"),
        ("dropdb a", "on-request", "rejected: policy forbids commands starting with `dropdb`"),
        ("npm i", "on-request", "requires approval: npm runs scripts"),
        ("make -j", "on-request", "requires approval by policy"),
    ],
)
def test_reasons(rules: Rules, command: str, policy: str, text: str) -> None:
    requirement = judge("", policy, rules, argv=["/bin/bash", "-lc", command])
    assert isinstance(requirement, Forbidden | NeedsApproval)
    assert requirement.reason == f"`/bin/bash -lc '{command}'` {text}"


def test_a_rule_that_asks_under_never_is_refused_in_the_known_words(rules: Rules) -> None:
    requirement = judge("make", "never", rules)
    assert isinstance(requirement, Forbidden)
    assert requirement.reason == "approval required by policy, but AskForApproval is set to Never"


def test_b139_the_reason_shows_what_cannot_be_seen() -> None:
    requirement = judge("rm -rf \u202e\x1b")
    assert isinstance(requirement, NeedsApproval)
    assert requirement.reason.startswith("`bash -lc 'rm -rf \\u202e\\x1b'` requires approval")


def test_escalation_under_never_is_refused_in_the_known_words() -> None:
    requirement = judge("ls", "never", escalate=True)
    assert isinstance(requirement, Forbidden)
    assert requirement.reason == (
        "approval policy is Never; reject command — you cannot ask for escalated permissions "
        "if the approval policy is Never"
    )


@pytest.mark.parametrize(
    ("command", "policy", "options", "proposed"),
    [
        ("cargo build", "untrusted", {}, ["cargo", "build"]),
        ("cargo build", "on-request", {}, ["cargo", "build"]),
        ("ls && cargo build", "untrusted", {}, ["cargo", "build"]),
        ("CI=1 cargo build", "untrusted", {}, ["cargo", "build"]),
        ("LD_PRELOAD=x cargo build", "untrusted", {}, None),
        ("rm -rf x", "on-request", {}, ["rm", "-rf", "x"]),
        ("ls && rm -rf x", "on-request", {}, ["rm", "-rf", "x"]),
        ("sudo rm -rf x", "on-request", {}, ["sudo", "rm", "-rf", "x"]),
        ("cargo build > log", "untrusted", {}, None),
        ("cat <<'E'\nx\nE", "untrusted", {}, None),
        ("python3", "untrusted", {}, None),
        ("git", "untrusted", {}, None),
        ("npm i", "on-request", {}, None),
        ("git status && cargo build", "on-request", {}, None),
        ("cargo build", "on-request", {"escalate": True, "prefix": "cargo"}, ["cargo", "build"]),
        ("cargo build -r", "on-request", {"escalate": True, "prefix": "cargo build"}, ["cargo", "build"]),
        (
            "cargo build && cargo build -r",
            "on-request",
            {"escalate": True, "prefix": "cargo build"},
            ["cargo", "build"],
        ),
        ("cargo build && ls", "on-request", {"escalate": True, "prefix": "cargo"}, ["cargo", "build"]),
        ("timeout 5 cargo build", "on-request", {"escalate": True, "prefix": "timeout 5"}, ["cargo", "build"]),
        ("cargo doc -q", "on-request", {"escalate": True, "prefix": "nice cargo doc"}, ["cargo", "doc"]),
        ("git commit -m x", "on-request", {"escalate": True, "prefix": "git"}, ["git", "commit", "-m", "x"]),
        ("python3 -c 1", "on-request", {"escalate": True, "prefix": "python3 -c"}, None),
        ("cargo build", "on-request", {"escalate": True, "prefix": "npm"}, ["cargo", "build"]),
        ("cargo build", "on-request", {"escalate": True, "prefix": ""}, ["cargo", "build"]),
    ],
)
def test_amendments(
    rules: Rules, command: str, policy: str, options: dict[str, object], proposed: list[str] | None
) -> None:
    requirement = judge(command, policy, rules, **options)  # type: ignore[arg-type]
    assert not isinstance(requirement, Forbidden)
    found = requirement.proposed_execpolicy_amendment
    assert (None if found is None else list(found.command)) == proposed


@pytest.mark.parametrize("command", ["cargo build", "rm -rf x", "sudo rm -rf x", "timeout 5 rm -rf x", "./git status"])
def test_an_accepted_amendment_settles_the_command(rules: Rules, command: str) -> None:
    first = judge(command, "untrusted", rules)
    assert isinstance(first, NeedsApproval) and first.proposed_execpolicy_amendment is not None
    amended = rules.amended(first.proposed_execpolicy_amendment)
    assert short(judge(command, "untrusted", amended)) == "bypass"


@pytest.mark.parametrize(
    ("command", "policy", "heuristics"),
    [
        ("ls", "untrusted", ["known_safe"]),
        ("touch x", "untrusted", ["not_known_safe"]),
        ("ls", "on-request", ["sandboxed"]),
        ("ls", "never", ["never_asks"]),
        ("rm -f x", "on-request", ["dangerous"]),
        ("sudo rm -f x", "on-request", ["dangerous", "sandboxed"]),
    ],
)
def test_every_answer_names_what_decided(command: str, policy: str, heuristics: list[str]) -> None:
    matched = judge(command, policy).matched
    assert [match.heuristic for match in matched if isinstance(match, HeuristicsRuleMatch)] == heuristics


def test_the_report_is_the_commands_json(rules: Rules) -> None:
    report = policy_report(judge("git status && touch x", "untrusted", rules))
    matched = report.pop("matched")
    assert report == {
        "requirement": "needs_approval",
        "reason": "`bash -lc 'git status && touch x'` requires approval: it is not known to be read-only",
        "bypass_sandbox": False,
        "proposed_execpolicy_amendment": ["touch", "x"],
    }
    assert isinstance(matched, list) and len(matched) == 2
    rule, heuristic = matched
    assert rule["prefixRuleMatch"]["matchedPrefix"] == ["git", "status"]
    assert rule["prefixRuleMatch"]["source"].endswith("default.rules")
    assert heuristic == {
        "heuristicsRuleMatch": {"command": ["touch", "x"], "decision": "prompt", "heuristic": "not_known_safe"}
    }
    assert policy_report(judge("git push", "never", rules))["requirement"] == "forbidden"
    skipped = policy_report(judge("git status", rules=rules))
    assert (skipped["requirement"], skipped["reason"], skipped["bypass_sandbox"]) == ("skip", None, True)


HOSTILE = [
    [],
    [""],
    ["a\0b"],
    ["bash", "-lc", "ls '"],
    ["bash", "-lc", "ls\0"],
    ["bash", "-lc", "\ud800"],
    ["env"] * 3000 + ["ls"],
    ["bash", "-lc", "ls " + "a" * 1_000_000],
    ["bash", "-lc", "(" * 1000 + "ls" + ")" * 1000],
    ["bash", "-lc", "$(" * 1000 + "ls"],
    ["ls", "\x00" * 1000],
    ["bash", "-lc", "{\U0010ffff"],
    ["bash", "-c", "'\"`" * 9000],
]


@pytest.mark.parametrize("argv", HOSTILE, ids=lambda argv: repr(argv)[:30])
def test_hostile_commands_are_decided_and_never_safe(rules: Rules, argv: list[str]) -> None:
    assert short(judge("", "untrusted", rules, argv=argv or [""])) == "ask"
    assert short(judge("", "on-request", rules, argv=argv or [""])) in ("run", "ask")
    request = ExecApprovalRequest(tuple(argv), AskForApproval.UNTRUSTED, WorkspaceWrite())
    requirement = decide(request, rules)
    assert short(requirement) == "ask"
    assert json.loads(json.dumps(policy_report(requirement)))["requirement"] == "needs_approval"


@pytest.mark.parametrize(
    "script", ["ls;" * 40_000, "ls|" * 40_000 + "ls", "git push;" * 14_000, "cd x;" * 20_000 + "git log"]
)
def test_a_very_long_script_takes_time_by_its_length_only(rules: Rules, script: str) -> None:
    assert len(script) < 131_072
    before = time.process_time()  # not the clock: other tests run beside this one
    assert short(judge(script, "untrusted", rules)) in ("run", "no", "ask")
    assert time.process_time() - before < 8


def test_a_restricting_rule_behind_very_many_wrappers_is_still_decided(rules: Rules) -> None:
    for count in range(10, 20):
        argv = ["env"] * count + ["git", "push"]
        assert short(judge("", "on-request", rules, argv=argv)) in ("no", "ask")


def test_the_argv_of_a_plain_call_is_judged_like_a_script(rules: Rules) -> None:
    assert short(judge("", "never", rules, argv=["git", "push"])) == "no"
    assert short(judge("", "untrusted", rules, argv=shlex.split("git status -s"))) == "bypass"
    assert short(judge("", "untrusted", argv=["ls", "; rm -rf x"])) == "run"


def test_a_forbidden_shell_is_about_scripts_that_are_not_understood(tmp_path: Path) -> None:
    path = tmp_path / "x.rules"
    path.write_text('prefix_rule(pattern=["bash"], decision="forbidden")')
    rules = load_rules([path])
    assert short(judge("ls && pwd", "on-request", rules)) == "run"
    assert short(judge("ls > f", "on-request", rules)) == "no"
    assert short(judge("bash -c ls", "on-request", rules)) == "no"


def test_amended_rules_leave_the_old_ones_alone() -> None:
    rules = Rules()
    amended = rules.amended(ExecPolicyAmendment(("ls",)), "f")
    assert not rules and amended


MAKE = Rules().amended(ExecPolicyAmendment(("make",)))


@pytest.mark.parametrize(
    "variable",
    [
        "MAKEFILES=./evil.mk", "OPENSSL_CONF=./e.cnf", "RUSTC=./e", "PYTEST_PLUGINS=e", "CMAKE_TOOLCHAIN_FILE=./e",
        "PIP_CONFIG_FILE=./e", "CC=./evil", "CC='gcc -B.'", "CFLAGS=-fplugin=./e.so", "CFLAGS=-B.", "CFLAGS=@file",
        "CFLAGS='-O2;./evil'", "CFLAGS=-Wl,-rpath,.", "LDFLAGS=-L.", "TERM=../../x", "PYTHONPATH=.", "MAKEFLAGS=-ffoo",
        "PATH=./b:$PATH", "UNHEARD_OF=1", "NODE_ENV='a/../b'", "PAGER=./p", "GREP_COLORS=x",
    ],
)  # fmt: skip
def test_s10_a_rule_frees_only_with_variables_that_are_known_to_be_harmless(variable: str) -> None:
    assert short(judge(f"{variable} make", "on-request", MAKE)) == "run"
    assert short(judge(f"{variable} make", "untrusted", MAKE)) == "ask"
    assert short(judge(f"env {variable} make", "on-request", MAKE)) == "run"


@pytest.mark.parametrize(
    "variable",
    [
        "CC=gcc", "CC=clang-18", "CXX=g++", "CFLAGS='-O2 -g -Wall -DNDEBUG=1 -std=c++20'", "LC_ALL=C.UTF-8",
        "NODE_ENV=test", "CI=1", "TZ=Europe/Berlin", "PYTHONUNBUFFERED=1", "GIT_PAGER=cat",
    ],
)  # fmt: skip
def test_n061_usual_variables_keep_the_freedom_of_a_rule(variable: str) -> None:
    assert short(judge(f"{variable} make -j4", "on-request", MAKE)) == "bypass"


def test_n061_an_allow_rule_never_asks_where_no_rule_would() -> None:
    for command in ("PYTHONPATH=. make", "./make", "# note\nmake", "PATH=./b:$PATH make", "/opt/x/make"):
        assert short(judge(command, "on-request", MAKE)) == short(judge(command, "on-request")) == "run"


def test_s10_variables_that_the_call_changes_count_like_those_before_the_command() -> None:
    request = ExecApprovalRequest(("make",), AskForApproval.ON_REQUEST, WorkspaceWrite(), env=(("MAKEFILES", "./e"),))
    answer = decide(request, MAKE)
    assert isinstance(answer, Skip) and not answer.bypass_sandbox
