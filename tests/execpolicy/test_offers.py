"""Which rules are offered: shapes that are known to be narrow, and exact commands."""

import shlex

import pytest

from ferrule.execpolicy import Rules, decide
from ferrule.execpolicy.offers import offer
from ferrule.protocol.approvals import ExecApprovalRequest, ExecPolicyAmendment, NeedsApproval
from ferrule.protocol.permissions import AskForApproval, SandboxPermissions, WorkspaceWrite


def proposed(command: str, prefix: str | None = None) -> ExecPolicyAmendment | None:
    """What is offered for a command that asks to leave the sandbox."""
    request = ExecApprovalRequest(
        ("bash", "-c", command),
        AskForApproval.ON_REQUEST,
        WorkspaceWrite(),
        SandboxPermissions.REQUIRE_ESCALATED,
        None if prefix is None else tuple(shlex.split(prefix)),
    )
    answer = decide(request, Rules())
    assert isinstance(answer, NeedsApproval)
    return answer.proposed_execpolicy_amendment


OPEN_ENDED = [
    *("bash -euc", "bash -x", "bash -o pipefail", "bash -lc", "/bin/bash -lc", "sh -c ls", "zsh", "fish", "dash -s"),
    *(
        "python3",
        "python3 -",
        "python3 -u",
        "python3 -Wd",
        "python3 -c 1",
        "python3 -m",
        "python3 -m timeit",
        "perl -w",
    ),
    *("ruby -w", "node --inspect", "node -e 1", "php -r", "lua", "Rscript", "Rscript -e 1", "julia", "pwsh -Command"),
    *(
        "osascript -e",
        "awk {print} f",
        "sed -n 1p f",
        "psql db",
        "vim f",
        "deno run x.ts",
        "bun run x.ts",
        "java -cp .",
    ),
    *("npx", "npx cowsay", "npm", "npm exec x", "npm run", "npm --prefix x test", "pnpm dlx x", "uvx x", "uv run x"),
    *("unshare", "unshare -r ls", "systemd-run", "systemd-run --pipe ls", "nsenter -t 1", "bwrap --bind / / ls"),
    *("strace -f", "strace ls", "parallel ls", "tmux new", "su -c ls", "ssh host", "ssh host ls", "docker run"),
    *(
        "docker run -i x sh",
        "docker exec x ls",
        "kubectl exec x ls",
        "git",
        "git -C .",
        "git -c a.b=c",
        "git --no-pager",
    ),
    *("git -c a.b=c log", "git --exec-path=x log", "git difftool", "git bisect run ls", "make -f", "make -f x", "make"),
    *("env", "env A=1", "env X=1 sh", "env python3", "sudo", "sudo -u root", "sudo bash -c ls", "sudo A=1 ls"),
    *(
        "nice bash",
        "nice -n 5 python3",
        "timeout 5",
        "nohup sh",
        "xargs",
        "xargs rm",
        "watch -n 1",
        "watch ls",
        "eval ls",
    ),
    *(
        "busybox sh",
        "find",
        "cargo",
        "cargo run",
        "go run x.go",
        "unheard-of",
        "unheard-of -x",
        "unheard-of bash",
        "unheard-of sudo ls",
    ),
    *("bash /dev/stdin", "python3 /dev/fd/0", "sh /proc/self/fd/0", "sh ../../dev/stdin", "sh //dev/stdin", "sh ./"),
    *("python3 .", "./python3 x.py", "''", "touch ''"),
]


@pytest.mark.parametrize("command", OPEN_ENDED)
def test_s18_what_would_allow_nearly_anything_is_never_offered(command: str) -> None:
    words = tuple(shlex.split(command))
    assert offer(words, is_whole=False) is None
    assert offer(words, is_whole=True) is None
    assert proposed(command) is None
    assert proposed(f"{command} -x y.z", command) != ExecPolicyAmendment(words)


@pytest.mark.parametrize(
    ("command", "prefix"),
    [
        *[(command, command) for command in ("git fetch", "git push origin main", "git commit", "git worktree add")],
        *[(command, command) for command in ("npm test", "npm run build:all", "cargo build", "go test ./...")],
        *[(command, command) for command in ("go mod tidy", "make test", "ninja all", "pytest", "gh pr create")],
        *[(command, command) for command in ("python3 manage.py", "python3 -Bu manage.py", "python3 -m pytest -x")],
        *[(command, command) for command in ("bash run.sh", "sh ./run", "node tools/build.mjs", "Rscript x.R")],
        ("timeout 5 git fetch", "git fetch"),
        ("env CI=1 nice cargo test", "cargo test"),
    ],
)
def test_a_prefix_of_a_known_narrow_shape_is_offered(command: str, prefix: str) -> None:
    expected = ExecPolicyAmendment(tuple(prefix.split()))
    assert offer(command.split(), is_whole=False) == expected
    assert proposed(f"{command} more", command) == expected


@pytest.mark.parametrize(
    "command", ["touch x", "./deploy.sh prod", "sudo apt update", "terraform apply x", "git rebase main", "rm -rf x"]
)
def test_any_other_command_is_offered_as_it_stands_only(command: str) -> None:
    found = proposed(command)
    assert found == ExecPolicyAmendment(tuple(command.split()), exact=True)
    assert proposed(command, command) == found
    assert offer(command.split(), is_whole=False) is None
    longer = proposed(f"{command} more", command)
    assert longer == ExecPolicyAmendment((*command.split(), "more"), exact=True)


def test_a_long_word_costs_its_length_only() -> None:
    for word in ("/" + "a" * 100_000 + "/", "/." * 50_000, "sh" * 50_000, "../" * 30_000):
        assert offer(("python3", word), is_whole=True) is None
        offer(("touch", word), is_whole=True)
