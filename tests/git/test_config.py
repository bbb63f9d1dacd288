"""Git's configuration files: what we read is what git reads."""

import subprocess
from pathlib import Path

import pytest

from ferrule.git.config import ConfigError, parse_config, user_settings
from ferrule.git.harmless import is_harmless

TEXTS = [
    "[core]\n\tbare = false\n",
    "\ufeff[core]\r\n\tbare = false\r\n",
    '[remote "a.b"]\n\turl = x ; no\n\tfetch = "a;b" # no\n',
    '[Remote "A\\"b\\\\c"] URL=x\n[core] editor = a \\\n  b\n',
    "[branch.Main] merge = x\n[a-b]\nc-d\n",
    '[x]\n\ta = "  kept  " then   \n\tb = \\t\\n\\"q\\"\n\tc =\n\td = a  b  c   \n',
    "[alias] st = !sh -c 'x' ; comment\n[include]\n path = ~/x # c\n",
    '; comment\n# another\n[a] # c\nb = 1\n[a "s"]; c\nb = 2',
    '[a]b=1\n[a]b\n[a "x y"]\n\n  k   =   v',
    '[core "fsmonitor\0"]\n\tbare = ./x\0y\n[remote.x "y"]\n\turl = z\n',
    "[a]\n\tb = x  \\\n\n\tc = \u00a0x\u2028\n",
]


def read_by_git(path: Path) -> list[tuple[str, str]]:
    done = subprocess.run(
        ["git", "config", "--file", str(path), "--no-includes", "--list", "-z"],
        capture_output=True,
        check=True,
        text=True,
    )
    pairs = (entry.partition("\n") for entry in done.stdout.split("\0") if entry)
    return [(key, value if newline else "true") for key, newline, value in pairs]


@pytest.mark.parametrize("text", TEXTS)
def test_as_git_reads_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text, newline="")
    assert [(entry.key, entry.value) for entry in parse_config(text)] == read_by_git(file)


@pytest.mark.parametrize("text", ["[a\n", "[a]\n1b = c\n", '[a]\nb = "c\n', "[a]\nb = \\x\n", "[a]\nb c\n", "= 1\n"])
def test_what_git_refuses(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(subprocess.CalledProcessError):
        read_by_git(tmp_path / "config")
    with pytest.raises(ConfigError, match=r"line [123]"):
        list(parse_config(text))


@pytest.mark.parametrize(
    ("line", "harmless"),
    [
        ('[branch "x"] vscode-merge-base = origin/main', True),
        ('[remote "x"] url = git@example.org:a/b', True),
        ('[remote "x"] url = ext::sh -c id', False),
        ('[remote "x"] uploadpack = ./x', False),
        ('[branch "x"] remote = origin', True),
        ('[branch "x"] remote = ext::sh -c id', False),
        ('[branch "x"] pushRemote = -x', False),
        ("[pull] twohead = x", False),
        ('[core "fsmonitor\0"] bare = ./x', False),
        ("[core] fsmonitor = true", True),
        ("[core] fsmonitor = ./x", False),
        ("[core] hooksPath = .husky", False),
        ('[submodule "x"] update = !./x', False),
        ('[submodule "x"] update = rebase', True),
        ('[filter "x"] clean = ./x', False),
        ("[diff] external = ./x", False),
        ('[diff "x"] textconv = ./x', False),
        ("[alias] status = !./x", False),
        ("[include] path = ../x", False),
        ("[some] thing = new", False),
    ],
)
def test_harmless(line: str, harmless: bool) -> None:
    (entry,) = parse_config(line)
    assert is_harmless(entry) is harmless


def test_the_users_own_settings(tmp_path: Path) -> None:
    (tmp_path / ".config/git").mkdir(parents=True)
    (tmp_path / ".config/git/config").write_text("[safe]\n\tbareRepository = all\n[user]\n\tname = x\n")
    (tmp_path / ".gitconfig").write_text("[safe]\n\tbareRepository = explicit\n")
    found = user_settings({"HOME": str(tmp_path)})
    assert found == {"safe.barerepository": "explicit", "user.name": "x"}
    (tmp_path / ".gitconfig").write_text("[safe\n")
    assert user_settings({"HOME": str(tmp_path)})["safe.barerepository"] == "all"
    assert user_settings({"HOME": "/nonexistent"}) == {}
