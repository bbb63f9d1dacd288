"""The safe list: allow-lists of options, cases B124, B125, B127, B130, B131."""

import shlex

import pytest

from ferrule.execpolicy.commands import take_apart
from ferrule.execpolicy.host import UnknownHost
from ferrule.execpolicy.safe import is_known_safe


class InertGit(UnknownHost):
    """A machine on which git starts nothing by itself."""

    def git_is_inert(self) -> bool:
        return True


def safe(command: str) -> bool:
    """The same answer as a script and, where it is one command, as an argv."""
    return is_known_safe(take_apart(["bash", "-lc", command]), InertGit())


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "ls -la src",
        "/bin/ls",
        "cat a b",
        "cat -n a | head -n 5 | tail -5",
        "grep -rn --include=*.py foo src",
        "grep -A3 -B 2 foo a",
        "wc -l a",
        "echo -n x",
        "true",
        "pwd",
        "cd src && ls",
        "stat -c %s a",
        "cut -d: -f1 a",
        "tr a-z A-Z",
        "nl -ba a",
        "seq 1 10",
        "uniq -c a",
        "rg -n foo",
        "rg -inC3 foo src",
        "rg --files -g '*.py'",
        "rg -e-x",
        "base64 -d a",
        "base64 --wrap=0 a",
        "which -a ls",
        "command -v ls",
        "id -u",
        "uname -a",
        "diff -u a b",
        "du -sh .",
        "realpath a",
        "basename /x/y .z",
        "LC_ALL=C ls",
        "NO_COLOR=1 PAGER=cat ls",
        "timeout 5 ls",
        "env LANG=C ls",
        "bash -c 'ls && pwd'",
        "ls src/*.py",
        "head -20 a",
        "sha256sum a",
    ],
)
def test_commands_that_only_read_are_safe(command: str) -> None:
    assert safe(command)


@pytest.mark.parametrize(
    "command",
    [
        "ls > f",
        "touch x",
        "ls -la --unknown",
        "cat a | tee b",
        "base64 -o out a",
        "base64 --output=x a",
        "uniq a b",
        "uniq a*",
        "rg --pre cat foo",
        "rg --pre=./p foo",
        "rg --hostname-bin=./p foo",
        "rg -z foo",
        "rg -nz foo",
        "rg --search-zip foo",
        "sort -o a a",
        "ls *.py",
        "ls -- *",
        "tail --unknown",
        "diff -l a b",
        "printf -v x y",
        "test -v x",
        "date -s x",
        "tree -o f",
        "xargs ls",
        "env",
        "env -u X ls",
        "sudo ls",
        "nohup ls",
        "ls $x",
        "ls `id`",
        "fd . -x id",
        "python3 -c 1",
        "bash script.sh",
        "bash -c 'ls; touch x'",
        "wc --files-from=x",
        "command rm x",
        "cargo check",
        "ls\u200b",
        "l\\\ns",
        "cd a b",
        "./ls",
        "/tmp/ls",
        "ls.exe",
        "bin/ls",
    ],
)
def test_everything_else_is_not(command: str) -> None:
    assert not safe(command)


@pytest.mark.parametrize(
    "command",
    [
        "find . -exec sh -c id \\;",
        "find . -execdir id +",
        "find . -ok id \\;",
        "find . -okdir id \\;",
        "find . -delete",
        "find . -fprint /tmp/x",
        "find . -fprint0 f",
        "find . -fprintf f x",
        "find . -fls f",
        "find . -files0-from f",
        "find . -unknown",
        "fd . -x id",
        "find -[d]elete",
    ],
)
def test_b125_find_is_an_allow_list(command: str) -> None:
    assert not safe(command)


@pytest.mark.parametrize(
    "command",
    ["find . -name '*.py'", "find", r"find src -type f \( -name a -o ! -iname b \) -mtime -7 -size -10k -print0"],
)
def test_b125_a_plain_search_is_safe(command: str) -> None:
    assert safe(command)


@pytest.mark.parametrize(
    "command",
    [
        "sed -i s/a/b/ f",
        "sed -ni.bak p f",
        "sed -n '1e id' f",
        "sed 's/x/id/e' f",
        "sed -n 'w out' f",
        "sed -n 1p -i",
        "sed -n 1,5p f g",
        "sed -n '1p;w x' f",
        "sed -n 1p --in-place",
        "sed -n -f x",
        "sed 1p f",
        "sed -n '$p' f",
        "sed -n '١p' f",
        "sed -n '1p\n' f",
        "awk 'BEGIN{system(\"id\")}'",
        "awk 1 f",
    ],
)
def test_b127_sed_and_awk_are_programs(command: str) -> None:
    assert not safe(command)


@pytest.mark.parametrize("command", ["sed -n '1,5p' f", "sed -n 3p f", "cat f | sed -n 1,20p"])
def test_b127_the_strict_form_of_sed_is_safe(command: str) -> None:
    assert safe(command)


@pytest.mark.parametrize(
    "command",
    [
        "git -c core.pager='sh -c id' log",
        "git --config-env=core.pager=X log",
        "git --exec-path=/tmp/e status",
        "git -p status",
        "git --paginate log",
        "git diff --output=../x",
        "git diff --output ../x",
        "git log --outpu=x",
        "git grep -O./p foo",
        "git grep -nO foo",
        "git grep --open-files-in-pager=./p foo",
        "git branch -D main",
        "git branch new",
        "git branch -m a b",
        "git branch -l new",
        "git branch -v new",
        "git -C /other status",
        "git --git-dir=/x status",
        "git --work-tree=/x status",
        "git log --ext-diff -p",
        "git log --textconv -p",
        "git log --show-signature",
        "git log --format=%G?",
        "git log '--pretty=format:%h %(describe)'",
        "git log --grep -- --output=x",
        "git log -- --output=x",
        "git diff -S --output=x",
        "git push",
        "git",
        "git --version",
        "git commit",
        "git stash",
        "cd /other && git status",
        "cd x; command git log",
        "PAGER=./p git log",
        "GIT_EXTERNAL_DIFF=./p git diff",
        "GIT_DIR=/x git status",
        "./git status",
        "git status *",
        "git remote show origin",
        "git fetch",
        "git log --remerge-diff",
    ],
)
def test_b124_git_forms_that_can_start_or_write_something(command: str) -> None:
    assert not safe(command)


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git status -sb --porcelain=v2",
        "git log -p",
        "git log --oneline -5",
        "git diff --stat",
        "git diff HEAD~1 -- src",
        "git show HEAD:f",
        "git branch",
        "git branch -vv",
        "git branch --list 'f*'",
        "git branch --show-current",
        "git branch --merged main",
        "git --no-pager log -n5 --format='%h %an %s%n%C(auto)%d'",
        "git grep -n foo",
        "git ls-files -o",
        "git rev-parse --abbrev-ref HEAD",
        "git blame -L1,5 f",
        "GIT_PAGER=cat git log",
        "git log --since='2 days ago' --author=x",
    ],
)
def test_b124_git_forms_that_only_read(command: str) -> None:
    assert safe(command)


def test_b124_without_a_word_about_the_configuration_git_is_never_safe() -> None:
    assert not is_known_safe(take_apart(["git", "status"]), UnknownHost())


@pytest.mark.parametrize(
    "command",
    [
        "PAGER=./p git log",
        "LD_PRELOAD=./e.so ls",
        "env -S 'rm x'",
        "command rm x",
        "timeout 5 rm x",
        "nice git push",
        r"\rm x",
        "'r'm x",
        "PATH=. ls",
        "X=1 ls",
        "env LD_PRELOAD=./e.so ls",
        "BASH_ENV=x bash -c ls",
        "TZ=$(id) ls",
        "RIPGREP_CONFIG_PATH=./c rg foo",
        "LESSOPEN='|id' ls",
    ],
)
def test_b130_prefixes_and_wrappers_do_not_hide_a_command(command: str) -> None:
    assert not safe(command)


def test_an_argv_without_a_shell_is_judged_the_same() -> None:
    assert is_known_safe(take_apart(["cat", "a b; rm x"]), UnknownHost())
    assert not is_known_safe(take_apart(shlex.split("find . -delete")), UnknownHost())
    assert not is_known_safe(take_apart(["ls\0"]), UnknownHost())
