"""`.rules` files: reading, refusing, matching (case B131)."""

import shlex
import time
from pathlib import Path

import pytest

from ferrule.execpolicy import Rules, RulesError, load_rules, rule_files
from ferrule.execpolicy.load import _only_lists, load_file
from ferrule.protocol.approvals import PolicyDecision
from ferrule.protocol.errors import UsageError


def load(tmp_path: Path, text: str) -> Rules:
    path = tmp_path / "x.rules"
    path.write_text(text)
    return load_rules([path])


def decisions(rules: Rules, command: str, resolved: str | None = None) -> list[str]:
    return [match.decision.value for match in rules.match(shlex.split(command), resolved).found]


FULL = """
# What the project needs.
prefix_rule(
    pattern = ["git", ["status", "diff"]],
    justification = "reading is fine",
    match = ["git status -s", ["git", "diff"]],
    not_match = ["git push"],
)
prefix_rule(pattern=[["npm", "pnpm"], "install"], decision="prompt")
prefix_rule(["git", "push"], "forbidden", "no pushing")
host_executable(name="git", paths=["/opt/git/bin/git", "~/bin/git"])
network_rule(host="API.Example.com", protocol="https_connect", decision="deny")
network_rule(host="example.com", protocol="http", decision="allow", justification="docs")
"""


def test_a_whole_file(tmp_path: Path) -> None:
    rules = load(tmp_path, FULL)
    (match,) = rules.match(["git", "status", "-s"]).found
    assert match.matched_prefix == ("git", "status")
    assert match.justification == "reading is fine"
    assert match.source == str(tmp_path / "x.rules")
    assert decisions(rules, "git diff") == ["allow"]
    assert decisions(rules, "pnpm install x") == decisions(rules, "npm install") == ["prompt"]
    assert decisions(rules, "git push") == ["forbidden"]
    assert decisions(rules, "git") == decisions(rules, "git log") == decisions(rules, "ls") == []
    forbids, allows = rules.network_rule("api.example.com", "https"), rules.network_rule("example.com", "http")
    assert forbids is not None and forbids.decision is PolicyDecision.FORBIDDEN
    assert allows is not None and allows.decision is PolicyDecision.ALLOW
    assert rules.network_rule("example.com", "https") is None


def test_a_file_that_computes_gives_the_same_as_one_that_lists(tmp_path: Path) -> None:
    computed = load(
        tmp_path,
        "def allow(*words):\n    prefix_rule(pattern = list(words))\n"
        'for tool in ["a" + "b", "c"]:\n    allow(tool, "x")\nprint("hi")\n',
    )
    assert decisions(computed, "ab x y") == decisions(computed, "c x") == ["allow"]
    assert decisions(computed, "ab y") == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('\nprefix_rule(pattern=["git"], match=["ls"])', "x.rules:2:1: the example `ls` does not match the rule"),
        ('prefix_rule(pattern=["git"], not_match=["git x"])', "x.rules:1:1: the example `git x` matches the rule"),
        ('prefix_rule(pattern=["git"], match=["git \'"])', "x.rules:1:1: the example"),
        ('x = 1\nprefix_rule(pattern=["a"], match=["b"])', "x.rules:2:1: the example"),
        ("prefix_rule(pattern=[])", "x.rules:1:1: pattern must"),
        ('prefix_rule(pattern=["a"], exact="x")', "x.rules:1:1: exact must be True or False"),
        ("prefix_rule(pattern=[[]])", "x.rules:1:1: a pattern element"),
        ('prefix_rule(pattern=[["a", None]])', "x.rules:1:1: a pattern element must hold strings only"),
        ('prefix_rule(pattern="git")', "x.rules:1:1: pattern must"),
        (
            'prefix_rule(pattern=["git"], decision="maybe")',
            "x.rules:1:1: decision must be one of allow, prompt, forbidden",
        ),
        ('prefix_rule(pattern=["git"], justification=" ")', "x.rules:1:1: justification"),
        ('prefix_rule(pattern=["git"], typo="x")', "x.rules:1:1: prefix_rule has no argument 'typo'"),
        ('prefix_rule(["git"], pattern=["git"])', "x.rules:1:1: prefix_rule got 'pattern' twice"),
        ("prefix_rule(pattern=[len])", "x.rules:1:1: prefix_rule: expected strings"),
        ('host_executable(name="a/b", paths=[])', "x.rules:1:1: name must"),
        ('host_executable(name="git", paths=["bin/git"])', "x.rules:1:1: path 'bin/git' must be absolute"),
        ('host_executable(name="git", paths=["/bin/got"])', "x.rules:1:1: path '/bin/got' must end"),
        ('network_rule(host="https://x.org", protocol="https", decision="allow")', "x.rules:1:1: host must"),
        ('network_rule(host="*.x.org", protocol="https", decision="allow")', "x.rules:1:1: host must"),
        ('network_rule(host="x.org", protocol="ftp", decision="allow")', "x.rules:1:1: protocol must"),
        ('prefix_rule(pattern=["git"]', "x.rules:"),
        ("import os", "x.rules:1:1"),
        ("nonsense()", "x.rules: name 'nonsense' is not defined"),
        ('load("other.rules", "x")', "x.rules"),
        ("while True:\n  pass", "x.rules:1:1"),
        ("\x00", "x.rules:1:1"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start_and_says_where(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(RulesError) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path))
    assert says in str(caught.value)
    assert isinstance(caught.value, UsageError)


def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="No such file"):
        load_rules([tmp_path / "none.rules"])
    with pytest.raises(RulesError, match="is a folder, not a file"):
        load_rules([tmp_path])
    (tmp_path / "bad.rules").write_bytes(b"\xff")
    with pytest.raises(RulesError, match="not UTF-8"):
        load_rules([tmp_path / "bad.rules"])
    (tmp_path / "big.rules").write_bytes(b"#" * (1 << 18) + b"\n")
    with pytest.raises(RulesError, match="larger than 256 KiB"):
        load_rules([tmp_path / "big.rules"])


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n  for i in range(1000000000):\n    pass\nf()",
        "x = [1 for a in range(100000) for b in range(100000)]",
        "x = ('a' * 1000000).replace('a', 'b' * 1000)",
        "x = ('a' * 1000000).replace('a', 'b' * 1000000)",
        "x = ('a' * 1000000).join(['b' * 1000] * 1000000)",
        "x = sorted(range(16000000))",
        "def f():\n  x = [0]\n  for i in range(64):\n    x = x + x\nf()",
        "x = 1 << 500000",
        "x = " + "[" * 5000 + "]" * 5000,
        "x = " + "(" * 100000,
    ],
    ids=lambda text: repr(text[:30]),
)
def test_a_hostile_file_ends_in_bounded_time_and_memory(tmp_path: Path, text: str) -> None:
    started = time.monotonic()
    with pytest.raises(RulesError):
        load(tmp_path, text)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("text", ["prefix_rule(pattern=x)", "f('a')", "'a'.upper()", "x = 1", "['a' for a in 'b']"])
def test_only_literal_calls_are_evaluated_in_this_process(text: str) -> None:
    assert not _only_lists(text)
    assert _only_lists(FULL)


def test_a_long_builtin_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.execpolicy.load.CHILD_SECONDS", 1.0)
    with pytest.raises(RulesError, match="too much time or memory"):
        load(tmp_path, "x = all(range(1, 1000000000))")


def test_a_thousand_rules_load_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "many.rules"
    path.write_text("".join(f'prefix_rule(pattern=["tool{i}", "x"])\n' for i in range(1000)))
    started = time.monotonic()
    assert len(load_file(path).prefix) == 1000
    assert time.monotonic() - started < 30


def test_layers_lowest_first_and_sorted(tmp_path: Path) -> None:
    for name in ("user/rules/b.rules", "user/rules/a.rules", "project/rules/c.rules", "user/rules/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = rule_files([tmp_path / "user", tmp_path / "none", tmp_path / "project"])
    assert [path.name for path in found] == ["a.rules", "b.rules", "c.rules"]


def test_the_strictest_layer_is_among_the_matches(tmp_path: Path) -> None:
    (tmp_path / "a.rules").write_text('prefix_rule(pattern=["git"], decision="forbidden")')
    (tmp_path / "b.rules").write_text('prefix_rule(pattern=["git", "push"])')
    rules = load_rules([tmp_path / "a.rules", tmp_path / "b.rules"])
    assert decisions(rules, "git push") == ["forbidden", "allow"]


B131 = 'prefix_rule(pattern=["git", "status"])\nprefix_rule(pattern=["git", "push"], decision="forbidden")\n'


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("git status", ["allow"]),
        ("/usr/bin/git status", ["allow"]),
        ("./git status", []),
        ("/tmp/git status", []),
        ("git.exe status", []),
        ("bin/git status", []),
        ("git push", ["forbidden"]),
        ("/usr/bin/git push", ["forbidden"]),
        ("/tmp/git push", ["forbidden"]),
        ("./git push", ["forbidden"]),
        ("git.exe push", ["forbidden"]),
        ("/tmp/git.exe push", ["forbidden"]),
        ("/usr/bin/got status", []),
    ],
)
def test_b131_allow_only_in_trusted_places_forbid_everywhere(tmp_path: Path, command: str, found: list[str]) -> None:
    rules = load(tmp_path, B131)
    assert decisions(rules, command) == found


def test_b131_a_link_is_followed_to_forbid_but_not_to_allow(tmp_path: Path) -> None:
    rules = load(tmp_path, B131)
    assert decisions(rules, "g push", "/usr/bin/git") == ["forbidden"]
    assert decisions(rules, "g status", "/usr/bin/git") == []


def test_b131_host_executable_says_where_a_program_lives(tmp_path: Path) -> None:
    rules = load(tmp_path, B131 + 'host_executable(name="git", paths=["/opt/git", "~/bin/git"])\n')
    assert decisions(rules, "/opt/git status") == ["allow"]
    assert decisions(rules, f"{Path.home()}/bin/git status") == ["allow"]
    assert decisions(rules, "/usr/bin/git status") == []
    assert decisions(rules, "git status") == ["allow"]
    assert decisions(rules, "/elsewhere/git push") == ["forbidden"]


def test_a_rule_for_a_path_is_for_that_path(tmp_path: Path) -> None:
    rules = load(tmp_path, 'prefix_rule(pattern=["./gradlew", "test"])')
    assert decisions(rules, "./gradlew test") == ["allow"]
    assert decisions(rules, "gradlew test") == decisions(rules, "../gradlew test") == []
