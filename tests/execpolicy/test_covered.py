"""What a rule that allows a command covers, and what may be words of a rule."""

import shlex
from pathlib import Path

import pytest

from ferrule.execpolicy import Rules, decide
from ferrule.protocol.approvals import ExecApprovalRequest, ExecPolicyAmendment, Forbidden, NeedsApproval, Skip
from ferrule.protocol.permissions import AskForApproval, SandboxPermissions, WorkspaceWrite
from tests.execpolicy.judging import judge, rules_of, short


@pytest.mark.parametrize(
    "script", ["PATH=/tmp/bad:$PATH cat <<'EOF' > f\nx\nEOF", "cat <<E\n$(touch x)\nE", "cat <<E\n${x@P}\nE", "cat > f"]
)
def test_n059_a_rule_that_allows_a_program_covers_nothing_that_stands_around_it(tmp_path: Path, script: str) -> None:
    rules = rules_of(tmp_path, 'prefix_rule(pattern=["cat"])')
    assert short(judge(script, rules, AskForApproval.UNTRUSTED)) == "ask"
    assert short(judge(script, rules)) == "run"


UNREAD = [
    *(
        "$x push",
        '"$x"',
        "$(echo git) push",
        "`cat f`",
        "gi? push",
        "${x:-git} push",
        '"${a[@]}"',
        "f() { $1; }; f git",
    ),
    *('eval "$x"', "eval $x", 'bash -c "$x"', 'bash -c "cd $x && ls"', "bash <<E\n$x\nE", "sh -c '\"$@\"' _ git push"),
    *("curl x | sh", "cat f | bash", "bash", "sudo -i", "su", "unshare -r", "bash <(ls)", ". <(ls)", "bash -s < <(ls)"),
    *("ls 'x", "if ls; then", "ls\x01", "{ git push", "echo $(", 'trap "$x" EXIT', "sh -c '[[ a && git push ]]'"),
    *("nice --unheard-of git push", "sudo $x git push", "xargs -I{} sh -c 'ls {}'", "xargs -n1 sh -c", "find . $x"),
    *("parallel :::: f", "hash -p /usr/bin/git x; x push", "BASH_CMDS[x]=/usr/bin/git; x push", 'alias "$x"; y'),
    *("PS4='$(git push)'; set -x; ls", "BASH_ENV=f bash -c ls", "env 'BASH_FUNC_x%%=() { git push; }' bash -c x"),
    *("echo() { builtin echo git push; }; echo ls | sh", "set -o histexpand; ls", "fc -s", "fish -c 'git (x)'"),
    *("$'\\ud800'", "$'git\\0x' push"),
    *("export BASH_ENV=f; bash -c ls", "bash --rcfile f -i"),
    *("v='a[$(git push)]'; let v", "v='a[$(git push)]'; declare -i z=v", "git --config-env=alias.x=V x"),
    *(
        "ls > f; bash f",
        "ls > $x/f; sh f",
        'ls > f; bash "./$x"',
        "if a; then X=git; fi; $X push",
        "X=git | ls; $X push",
    ),
    *(
        'X=ls; n=X; export "$n=git"; $X push',
        "X=ls; read X < f; $X push",
        "X=git; X=ls; $X push",
        "HOME='git push'; $HOME",
    ),
    *("zsh -c '=git push'", "cat =(git push)", "i\\\nf true; then git push; fi", "X\\\n=1 git push", "$unset git log"),
]


@pytest.mark.parametrize("script", UNREAD)
def test_what_cannot_be_read_is_asked_about_where_a_rule_restricts(no_push: Rules, script: str) -> None:
    assert short(judge(script, no_push)) in ("ask", "no")
    refused = judge(script, no_push, AskForApproval.NEVER)
    assert isinstance(refused, Forbidden)


@pytest.mark.parametrize("script", UNREAD)
def test_what_cannot_be_read_runs_as_ever_where_no_rule_restricts(tmp_path: Path, script: str) -> None:
    for rules in (Rules(), rules_of(tmp_path, 'prefix_rule(pattern=["git", "status"])')):
        assert short(judge(script, rules)) == "run"


def test_the_answer_says_what_to_do_about_an_unread_command(no_push: Rules) -> None:
    asked, refused = judge("$x push", no_push), judge("$x push", no_push, AskForApproval.NEVER)
    assert isinstance(asked, NeedsApproval) and isinstance(refused, Forbidden)
    assert asked.reason.endswith(
        "requires approval: which programs it starts is known only when it runs, and rules forbid or ask about some"
    )
    assert refused.reason.endswith("Write programs and scripts out, without variables or substitutions")
    assert asked.proposed_execpolicy_amendment is None


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("git $x", "ask"),
        ("git pu$x", "ask"),
        ("git pus*", "ask"),
        ('git "$x" origin', "ask"),
        ("git $opts push", "ask"),
        ("echo push | xargs git", "ask"),
        ("find . -exec git {} \\;", "ask"),
        ("git log $x", "run"),
        ("git status*", "run"),
        ('git --format="$x" log', "ask"),
        ("git po$x", "run"),
        ('git commit -m "$x"', "run"),
        ("echo $x", "run"),
        ("git", "run"),
    ],
)
def test_words_that_may_become_those_of_a_rule_are_asked_about(no_push: Rules, script: str, expected: str) -> None:
    assert short(judge(script, no_push)) == expected


@pytest.mark.parametrize(
    "script",
    [
        "npm test 2>&1",
        "npm test > /dev/null 2>&1",
        "npm test &>/dev/null",
        "npm test < /dev/null",
        "2>/dev/null npm test",
        "strace -f npm test 2>&1",
        "taskset -c 0 chrt -b 0 npm test",
        "nohup npm test",
        "stdbuf -oL npm test",
    ],
)
def test_a_rule_covers_the_command_with_harmless_redirections_and_wrappers(tmp_path: Path, script: str) -> None:
    rules = rules_of(tmp_path, 'prefix_rule(pattern=["npm", "test"])')
    assert short(judge(script, rules)) == "free"
    assert short(judge(script.replace("npm test", "npm run x"), rules)) == "run"


@pytest.mark.parametrize(
    "script",
    [
        "npm test > f", "npm test 2> /dev/tty", "npm test < f", "npm test <<< x", "npm test 2>&-",
        "strace -o f npm test", "strace -e inject=all npm test", "unshare -r npm test", "setsid -f npm test",
        "sudo npm test", "watch npm test", "xargs npm test", "docker run x npm test", "nice --unheard-of npm test",
        "taskset $x npm test", "./nice npm test",
    ],
)  # fmt: skip
def test_a_rule_covers_nothing_that_does_more_than_the_command(tmp_path: Path, script: str) -> None:
    rules = rules_of(tmp_path, 'prefix_rule(pattern=["npm", "test"])')
    assert short(judge(script, rules)) == "run"


STARTED_BEHIND = [
    ("find .", "find . -name x", "find . -exec rm x \\;"),
    ("find . -exec ls", "find . -exec ls \\;", "find . -exec ls \\; -exec rm x \\;"),
    ("fd", "fd x", "fd x -x rm"),
    ("git", "git -C x log", "git -C x -c core.pager='./x' log"),
    ("git log", "git log --stat", "git -c alias.log='!./x' log"),
    ("git fetch", "git fetch --all", "git fetch --upload-pack=./x"),
    ("git rebase", "git rebase main", "git rebase -x ./x main"),
    ("git bisect run", "git bisect run ./x", "git -c core.editor=./x bisect run ls"),
    ("make", "make -j4 test", "make SHELL=./x test"),
    ("xargs", "xargs rm", "xargs rm > f"),
    ("docker run", "docker run img ls", "docker run img ls > f"),
]


@pytest.mark.parametrize(("rule", "free", "more"), STARTED_BEHIND)
def test_a_rule_does_not_cover_what_an_option_behind_its_words_starts(
    tmp_path: Path, rule: str, free: str, more: str
) -> None:
    rules = rules_of(tmp_path, f"prefix_rule(pattern={rule.split()!r})")
    assert (short(judge(free, rules)), short(judge(more, rules))) == ("free", "run")
    exact = ExecPolicyAmendment(tuple(shlex.split(more)), exact=True)
    assert short(judge(more, Rules().amended(exact))) == ("run" if ">" in more else "free")


@pytest.mark.parametrize(
    ("script", "rule"),
    [
        ("strace -f cargo build", "cargo build"),
        ("taskset -c 0 npm test 2>&1", "npm test"),
        ("nohup npm run dev", "npm run dev"),
        ("xvfb-run -a nice pytest", "pytest"),
        ("sudo apt update", "sudo apt update"),
        ("unshare -r cargo build", ""),
        ("strace -o f cargo build", ""),
        ("tar --to-command=./x -xf a.tar", "tar --to-command=./x -xf a.tar"),
        ("git -c core.pager=./x log", ""),
        ("make SHELL=./x test", "make SHELL=./x test"),
    ],
)
def test_the_rule_that_is_offered_is_about_the_command_inside(script: str, rule: str) -> None:
    request = ExecApprovalRequest(
        ("bash", "-c", script), AskForApproval.ON_REQUEST, WorkspaceWrite(), SandboxPermissions.REQUIRE_ESCALATED
    )
    answer = decide(request, Rules())
    assert isinstance(answer, NeedsApproval)
    offered = answer.proposed_execpolicy_amendment
    assert (shlex.join(offered.command) if offered else "") == rule
    if offered is not None:
        amended = decide(request, Rules().amended(offered))
        assert isinstance(amended, Skip) and amended.bypass_sandbox
