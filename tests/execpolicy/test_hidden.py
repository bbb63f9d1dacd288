"""What stands in a command is seen, however it is written; what only the shell can know is asked about."""

import shlex
from pathlib import Path

import pytest

from ferrule.execpolicy import Rules, decide, load_rules
from ferrule.protocol.approvals import (
    ExecApprovalRequest,
    ExecApprovalRequirement,
    ExecPolicyAmendment,
    Forbidden,
    NeedsApproval,
    Skip,
)
from ferrule.protocol.permissions import AskForApproval, SandboxPermissions, WorkspaceWrite

NO_PUSH = 'prefix_rule(pattern=["git", "push"], decision="forbidden")\n'


@pytest.fixture
def no_push(tmp_path: Path) -> Rules:
    return rules_of(tmp_path, NO_PUSH)


def rules_of(folder: Path, text: str) -> Rules:
    (folder / "x.rules").write_text(text)
    return load_rules([folder / "x.rules"])


def judge(
    script: str, rules: Rules, policy: AskForApproval = AskForApproval.ON_REQUEST, *, shell: str = "bash"
) -> ExecApprovalRequirement:
    return decide(ExecApprovalRequest((shell, "-c", script), policy, WorkspaceWrite()), rules)


def short(answer: ExecApprovalRequirement) -> str:
    if isinstance(answer, Skip):
        return "free" if answer.bypass_sandbox else "run"
    return "ask" if isinstance(answer, NeedsApproval) else "no"


TEXTS = [
    "cat > n.md <<'EOF'\nthen git push\nEOF",
    "cat > n.md <<EOF\n  git push\nEOF",
    "cat <<-EOF > n.md\n\tgit push\n\tEOF",
    "cat <<'A' > n.md; ls\n$(git push)\nA",
    "tee -a n.md <<< 'git push'",
    "echo 'git push'",
    'echo "do: git push; then"',
    "echo git push",
    r"printf '%s\n' 'git push'",
    "git commit -m 'do not git push'",
    'git commit -m "feat: x\n\ngit push it"',
    "grep -rn 'git push' . # git push",
    "# git push\nls",
    "x='git push'; echo done",
    "gh pr create --body \"$(cat <<'EOF'\nrun `git push`, $(git push)\nEOF\n)\"",
    "case $x in git) echo push;; 'git push') ls;; esac",
    "[[ $x == 'git push' ]] && ls",
    "python3 - <<'EOF'\nprint('git push')\nEOF",
    "python3 -c 'print(\"git push\")'",
    "for word in git push; do echo \"$word\"; done",
    "echo $'git push' \\; git push",
    "git log --grep='git push'",
    "a=(git push); ls",
    "cat > f.md <<'EOF'\ngit push\nEOF\ncat f.md; bash run.sh",
    "cat > f.py <<'EOF'\n'git push'\nEOF\npython3 f.py",
    "PY=.venv/bin/python; $PY -m pytest",
    '"$(pwd)/node_modules/.bin/eslint" src',
    "$HOME/.local/bin/uv sync",
    "echo \\`git push\\` \\$\\(git push\\)",
]  # fmt: skip


@pytest.mark.parametrize("script", TEXTS)
def test_n052_a_text_that_speaks_of_a_command_is_none(no_push: Rules, script: str) -> None:
    assert short(judge(script, no_push)) == "run"


@pytest.mark.parametrize(
    "script",
    [
        "# <<EOF\ngit push\n",
        "echo '<<EOF'\ngit push\nEOF",
        "cat <<< EOF\ngit push\nEOF",
        "(( x = 1 << EOF ))\ngit push\nEOF",
        "echo $(( 1 << 2 ))\ngit push\n2",
        "[[ a < EOF ]]\ngit push",
        "cat <<A\nx\nA\ngit push",
        "cat <<'A' <<B\n1\nA\n2\nB\ngit push",
        "cat <<-A\n\tx\n\tA\ngit push\nA",
        "cat <<A | cat; git push\nA",
        "cat <<A\n$(git push)\nA",
        "cat <<A\n`git push`\nA",
        "cat <<'A'\nA \nA\ngit push",
        'echo "a\\"; echo b"; git push',
        "echo 'a'\\''; '; git push",
    ],
)
def test_n053_what_looks_like_the_begin_of_a_text_hides_no_command(no_push: Rules, script: str) -> None:
    assert short(judge(script, no_push)) == "no"


SPELLINGS = [
    "coproc PROGRAM",
    "coproc { PROGRAM; }",
    "coproc W { ls; PROGRAM; }",
    "time { PROGRAM; }",
    "time -p PROGRAM",
    "! time ( PROGRAM )",
    "alias x='PROGRAM'; x",
    "alias x='PROGRAM'\nx",
    "shopt -s expand_aliases\nalias a='env ' b='PROGRAM'\na b",
    "f() { PROGRAM; }; f",
    "function f { PROGRAM; }; f",
    "select x in a; do PROGRAM; done <<< 1",
    "until PROGRAM; do :; done",
    "for ((;;)); do PROGRAM; done",
    "case x in *) PROGRAM;; esac",
    "[[ -n $(PROGRAM) ]]",
    "(( $(PROGRAM) ))",
    "a[$(PROGRAM)]=1",
    "a=($(PROGRAM))",
    "export x=`PROGRAM`",
    "echo ${x:-$(PROGRAM)}",
    'echo "${x//a/$(PROGRAM)}"',
    "echo ${x#`PROGRAM`}",
    "cat <(PROGRAM) > >(PROGRAM)",
    "bash <<< 'PROGRAM'",
    "bash <<'E'\nPROGRAM\nE",
    "bash -s a b <<E\nPROGRAM\nE",
    "cat <<'E' | bash\nPROGRAM\nE",
    "echo 'PROGRAM' | sh",
    "printf '%s\\n' 'PROGRAM' | timeout 5 bash",
    "bash /dev/stdin <<< 'PROGRAM'",
    ". /dev/stdin <<< 'PROGRAM'",
    "eval 'PROGRAM'",
    "builtin eval 'PROGRAM'",
    "trap 'PROGRAM' EXIT",
    "exec -a x PROGRAM",
    "mapfile -C 'PROGRAM' -c 1 a < f",
    "compgen -C 'PROGRAM'",
    "PAGER='PROGRAM' git log",
    "ls |& PROGRAM",
    "ls & PROGRAM",
    "2>/dev/null PROGRAM",
    "A=1 >f PROGRAM",
    'bash -c "bash -c \'bash -c \\"PROGRAM\\"\'"',
    "PROGRAM 2>&1 >/dev/null &",
    "echo 'PROGRAM' > f; sh f",
    "cat > ./f <<'E'\nls\nPROGRAM\nE\nchmod +x f && ./f",
    "echo 'PROGRAM' | tee -a f; . f",
    "X='PROGRAM'; $X",
    "X=env && $X PROGRAM",
    "env -u x -S'PROGRAM'",
    "env =x PROGRAM",
    "bash -oc errexit 'PROGRAM'",
    "git config alias.x '!PROGRAM'; git x",
    "find . -name -exec -o -exec PROGRAM \\;",
]


@pytest.mark.parametrize("script", SPELLINGS)
def test_n055_every_construct_that_holds_a_command_is_read(no_push: Rules, script: str) -> None:
    assert short(judge(script.replace("PROGRAM", "git push"), no_push)) == "no"
    assert short(judge(script.replace("PROGRAM", "rm -rf x"), Rules())) == "ask"


@pytest.mark.parametrize(
    "script",
    [
        "$'git' push",
        "$'\\x67it' $'pu\\163h'",
        "$'\\u0067it' push",
        '$"git" push',
        "g''it push",
        'g"it" p\\ush',
        "g\\\nit push",
        "{git,push}",
        "git {push,origin}",
        "/usr/bin/git push",
        "git -C . push",
        "git --git-dir x -c a.b=c push",
        "git -c alias.x='!git push' x",
        "git config alias.x push",
        '"$(pwd)/bin/git" push',
        "$HOME/bin/git push",
        "git bisect run git push",
        "git rebase --exec 'git push' main",
        "git submodule foreach 'git push'",
    ],
)
def test_n055_every_spelling_of_a_word_is_the_word(no_push: Rules, script: str) -> None:
    assert short(judge(script, no_push)) == "no"


def test_n055_quoting_does_not_hide_a_force_flag() -> None:
    for script in ("rm $'-rf' x", "$'rm' -rf x", 'rm $"-rf" x', "rm -{r,f} x"):
        assert short(judge(script, Rules())) == "ask"


WRAPPED = [
    "chrt 0 PROGRAM", "chrt -b 0 PROGRAM", "taskset 1 PROGRAM", "taskset -c 0,1 PROGRAM", "prlimit --nofile=9 PROGRAM",
    "numactl -N 0 PROGRAM", "strace -f PROGRAM", "strace -o '|PROGRAM' ls", "ltrace -f PROGRAM", "unbuffer PROGRAM",
    "parallel PROGRAM ::: a b", "parallel ::: 'ls' 'PROGRAM'", "runuser -u x -- PROGRAM", "runuser x -c 'PROGRAM'",
    "su x -c 'PROGRAM'", "su -s /bin/sh -c 'PROGRAM' x", "sg grp 'PROGRAM'", "sg grp -c 'PROGRAM'",
    "unshare -r PROGRAM", "unshare --user --map-root-user bash -c 'PROGRAM'", "nsenter -t 1 -m PROGRAM",
    "setarch x86_64 PROGRAM", "setarch -R PROGRAM", "linux32 PROGRAM", "fakeroot PROGRAM", "xvfb-run -a PROGRAM",
    "xvfb-run -s '-x y' PROGRAM", "dbus-run-session -- PROGRAM", "systemd-run --user --pipe -p A=b PROGRAM",
    "fish -c 'PROGRAM'", "watch -n 1 'PROGRAM'", "script -qc 'PROGRAM' /dev/null", "script -q /dev/null PROGRAM",
    "docker run --rm -v a:b img PROGRAM", "podman exec -it box PROGRAM", "uv run --with x PROGRAM", "npx PROGRAM",
    "npx -c 'PROGRAM'", "direnv exec . PROGRAM", "poetry run PROGRAM", "valgrind --tool=none PROGRAM",
    "perf stat -r 2 PROGRAM", "gdb --args PROGRAM", "env -S 'A=1 PROGRAM'", "sudo -u x A=1 PROGRAM", "doas PROGRAM",
    "pkexec PROGRAM", "setpriv --reuid 1 PROGRAM", "flock -n f -c 'PROGRAM'", "stdbuf -o 0 PROGRAM",
    "ionice -c2 -n7 PROGRAM", "nohup nice -n 5 timeout -k 1 5 PROGRAM", "busybox sh -c 'PROGRAM'", "chronic PROGRAM",
    "entr -r PROGRAM", "fd -x PROGRAM", "find . -exec sh -c 'PROGRAM' \\;", "xargs -0 -n1 PROGRAM",
    "xargs -I{} sh -c 'PROGRAM {}'", "rbash -c 'PROGRAM'", "$SUDO PROGRAM", "time -v PROGRAM",
]  # fmt: skip


FURTHER_WRAPPED = r"""
tmux new -d 'PROGRAM'
tmux send-keys -t x 'PROGRAM' Enter
tmux if-shell 'PROGRAM' ''
screen -dmS name bash -c 'PROGRAM'
hyperfine -w 3 'PROGRAM'
concurrently 'ls' 'PROGRAM'
echo 'PROGRAM' | at now
at now + 1 minute <<'E'\nPROGRAM\nE
batch <<< 'PROGRAM'
echo PROGRAM > f; at -f f now
docker container run img PROGRAM
docker container exec box sh -c 'PROGRAM'
docker compose run --rm web PROGRAM
docker compose exec -T web PROGRAM
docker-compose run web PROGRAM
nerdctl run img PROGRAM
kubectl exec pod -- PROGRAM
kubectl exec -it pod -n ns -c box -- sh -c 'PROGRAM'
kubectl exec pod PROGRAM
kubectl run x --image=y -- PROGRAM
oc exec pod -- PROGRAM
ssh host PROGRAM
ssh -p 22 u@host 'ls && PROGRAM'
ssh -i key host -t -- PROGRAM
ssh host <<'E'\nPROGRAM\nE
ssh -o ProxyCommand='PROGRAM' host ls
npm exec -- PROGRAM
npm exec -c 'PROGRAM'
npm x PROGRAM
pnpm exec PROGRAM
pnpm dlx PROGRAM
yarn dlx PROGRAM
bunx PROGRAM
bun x PROGRAM
uvx PROGRAM
uv tool run --from x PROGRAM
pipx run PROGRAM
pipenv run PROGRAM
mise exec -- PROGRAM
mise x node@20 -- PROGRAM
mise exec -c 'PROGRAM'
asdf exec PROGRAM
hatch env run PROGRAM
mamba run -n x PROGRAM
rye run PROGRAM
tox exec -e py -- PROGRAM
nix-shell -p git jq --run 'PROGRAM'
nix develop -c PROGRAM
nix shell nixpkgs#git --command PROGRAM
op run -- PROGRAM
dotenv -e f -- PROGRAM
cross-env A=b PROGRAM
rlwrap PROGRAM
eatmydata PROGRAM
torsocks PROGRAM
sshpass -p x PROGRAM
ssh-agent PROGRAM
cpulimit -l 50 -- PROGRAM
capsh -- -c 'PROGRAM'
/lib64/ld-linux-x86-64.so.2 --library-path x PROGRAM
make SHELL='PROGRAM'
make SHELL:='PROGRAM' test
git fetch --upload-pack 'PROGRAM' x
git clone -u 'PROGRAM' x
git clone -c core.sshCommand='PROGRAM' x
git grep -O'PROGRAM' x
git for-each-repo --config=x push
"""


@pytest.mark.parametrize(
    "script", [*WRAPPED, *(line.replace("\\n", "\n") for line in FURTHER_WRAPPED.strip().split("\n"))]
)
def test_n056_a_program_is_seen_behind_whatever_starts_it(no_push: Rules, script: str) -> None:
    assert short(judge(script.replace("PROGRAM", "git push"), no_push)) == "no"
    assert short(judge(script.replace("PROGRAM", "git log").replace("push", "log"), no_push)) in ("run", "ask")


UNKNOWN_STARTERS = [
    "run-one git push", "lockf f git push", "./with-env git push", "chpst -u x git -C . push", "x -- sh -c 'git push'",
    "firejail --noprofile git push", "bwrap --dev-bind / / env A=1 git push", "python3 run.py git push",
    "tmux new-session -d git push", "screen -dm git push", "kubectl -n ns exec pod -- git push",
    "docker --context x run img git push", "docker compose -f x.yml exec -T web git push", "poetry -C x run git push",
    "npm -s exec -c 'git push'", "make -f - <<< 'x:; git push'", "make --eval='$(shell git push)'",
]  # fmt: skip


@pytest.mark.parametrize("script", UNKNOWN_STARTERS)
def test_n056_a_program_that_is_in_no_table_may_run_its_words(no_push: Rules, script: str) -> None:
    assert short(judge(script, no_push)) == "ask"
    assert isinstance(judge(script, no_push, AskForApproval.NEVER), Forbidden)
    assert short(judge(script, Rules())) == "run"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("apt-get install -y curl", "run"),
        ("pip install curl", "run"),
        ("man curl", "run"),
        ("rm -r curl", "run"),
        ("which curl", "run"),
        ("echo curl x", "run"),
        ("git commit -m curl", "run"),
        ("docker pull curl", "run"),
        ("npm install --save x", "run"),
        ("run-one curl x", "ask"),
        ("run-one -v -- curl x", "ask"),
    ],
)
def test_n056_the_name_of_a_package_or_file_is_no_program(tmp_path: Path, script: str, expected: str) -> None:
    rules = rules_of(tmp_path, 'prefix_rule(pattern=["curl"], decision="forbidden")')
    assert short(judge(script, rules)) == expected


@pytest.mark.parametrize(
    "script",
    [
        "echo \"$\\\n(touch m)\"",
        "v='$(touch m)'; echo \"${v@P}\"",
        "echo $\\\n(touch m)",
        "a='x[$(touch m)]'; echo $((a))",
    ],
)  # fmt: skip
def test_n058_what_the_shell_evaluates_is_not_taken_for_text(no_push: Rules, script: str) -> None:
    assert short(judge(script, Rules(), AskForApproval.UNTRUSTED)) == "ask"
    assert short(judge(script.replace("touch m", "git push"), no_push)) in ("ask", "no")


@pytest.mark.parametrize(
    "script", ["PATH=/tmp/bad:$PATH cat <<'EOF' > f\nx\nEOF", "cat <<E\n$(touch x)\nE", "cat <<E\n${x@P}\nE", "cat > f"]
)
def test_n059_a_rule_that_allows_a_program_covers_nothing_that_stands_around_it(tmp_path: Path, script: str) -> None:
    rules = rules_of(tmp_path, 'prefix_rule(pattern=["cat"])')
    assert short(judge(script, rules, AskForApproval.UNTRUSTED)) == "ask"
    assert short(judge(script, rules)) == "run"


@pytest.mark.parametrize("script", ["ls; pwd", "ls\npwd", "time ls", "ls | head", "ls 2>/dev/null", "ls 2>&1 | head"])
def test_n062_commands_that_only_read_are_not_asked_about(script: str) -> None:
    assert short(judge(script, Rules(), AskForApproval.UNTRUSTED)) == "run"


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
