"""What stands in a command is seen, however it is written; what only the shell can know is asked about."""

from pathlib import Path

import pytest

from ferrule.execpolicy import Rules
from ferrule.protocol.approvals import Forbidden
from ferrule.protocol.permissions import AskForApproval
from tests.execpolicy.judging import judge, rules_of, short

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


@pytest.mark.parametrize("script", ["ls; pwd", "ls\npwd", "time ls", "ls | head", "ls 2>/dev/null", "ls 2>&1 | head"])
def test_n062_commands_that_only_read_are_not_asked_about(script: str) -> None:
    assert short(judge(script, Rules(), AskForApproval.UNTRUSTED)) == "run"
