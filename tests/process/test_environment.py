import msgspec
import pytest

from ferrule.process.environment import child_environment
from ferrule.process.launcher import Pipes, Pty
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy

BASE = {
    "PATH": "/bin",
    "HOME": "/h",
    "FOO": "1",
    "OPENAI_API_KEY": "k",
    "my_secret_thing": "s",
    "GH_TOKEN": "t",
    "SENTRY_API_TOKEN": "x",
}


def variables(policy: ShellEnvironmentPolicy) -> dict[str, str]:
    return child_environment(policy, BASE).variables


def test_secrets_are_withheld_by_default_and_named() -> None:
    found = child_environment(ShellEnvironmentPolicy(), BASE)
    assert found.variables["FOO"] == "1"
    assert found.withheld == ("GH_TOKEN", "OPENAI_API_KEY", "SENTRY_API_TOKEN", "my_secret_thing")
    assert not set(found.withheld) & set(found.variables)


@pytest.mark.parametrize(
    "policy",
    [
        ShellEnvironmentPolicy(include=("SENTRY_API_TOKEN",)),
        ShellEnvironmentPolicy(include=("sentry_*",)),
        ShellEnvironmentPolicy(include_only=("PATH", "SENTRY_API_TOKEN")),
        ShellEnvironmentPolicy(set={"SENTRY_API_TOKEN": "x"}),
        ShellEnvironmentPolicy(ignore_default_excludes=True),
    ],
)
def test_b052_one_line_lets_one_variable_through(policy: ShellEnvironmentPolicy) -> None:
    assert "SENTRY_API_TOKEN" not in variables(ShellEnvironmentPolicy())
    found = child_environment(policy, BASE)
    assert found.variables["SENTRY_API_TOKEN"] == "x"
    if not policy.ignore_default_excludes:
        assert "GH_TOKEN" in found.withheld


def test_a_wildcard_of_include_only_does_not_let_secrets_through() -> None:
    assert "GH_TOKEN" not in variables(ShellEnvironmentPolicy(include_only=("*",)))


def test_an_exclude_wins_over_an_include() -> None:
    assert "GH_TOKEN" not in variables(ShellEnvironmentPolicy(include=("*",), exclude=("gh_*",)))


def test_core_and_none() -> None:
    core = variables(ShellEnvironmentPolicy(inherit="core"))
    assert core["PATH"] == "/bin" and core["HOME"] == "/h" and "FOO" not in core
    assert "PATH" not in variables(ShellEnvironmentPolicy(inherit="none"))


def test_core_ignores_case() -> None:
    policy = ShellEnvironmentPolicy(inherit="core")
    assert child_environment(policy, {"Path": "/x"}).variables["Path"] == "/x"


def test_exclude_comes_before_set_and_include_only_after() -> None:
    policy = ShellEnvironmentPolicy(exclude=("F?O",), set={"FOO": "2", "BAR": "3"}, include_only=("f*",))
    found = variables(policy)
    assert found["FOO"] == "2" and "BAR" not in found and "PATH" not in found


def test_patterns_are_wildcards_and_not_regular_expressions() -> None:
    assert "FOO" in variables(ShellEnvironmentPolicy(exclude=("F.O", "[F]OO", "FO")))
    assert "FOO" not in variables(ShellEnvironmentPolicy(exclude=("f*",)))


def test_the_user_may_set_a_pager() -> None:
    assert variables(ShellEnvironmentPolicy())["PAGER"] == "cat"
    assert variables(ShellEnvironmentPolicy(set={"PAGER": "less"}))["PAGER"] == "less"


def test_reference_variables() -> None:
    found = variables(ShellEnvironmentPolicy(inherit="none"))
    expected = {"NO_COLOR": "1", "TERM": "dumb", "LANG": "C.UTF-8", "LC_CTYPE": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    expected |= {"COLORTERM": "", "PAGER": "cat", "GIT_PAGER": "cat", "GH_PAGER": "cat"}
    assert expected.items() <= found.items()


def test_the_terminal_of_the_agent_is_not_described() -> None:
    base = {"LINES": "11", "COLUMNS": "12", "PWD": "/elsewhere", "OLDPWD": "/", "BASH_ENV": "/rc"}
    policy = ShellEnvironmentPolicy()
    assert not base.keys() & child_environment(policy, base, stdio=Pipes()).variables.keys()
    terminal = child_environment(policy, base, stdio=Pty(rows=30, columns=90)).variables
    assert (terminal["LINES"], terminal["COLUMNS"]) == ("30", "90")


def test_marks_of_the_runtime_come_last() -> None:
    policy = ShellEnvironmentPolicy(include_only=("PATH",), set={"MARK": "user"})
    assert child_environment(policy, BASE, extra={"MARK": "runtime"}).variables["MARK"] == "runtime"


def test_s22_a_variable_that_a_setting_names_is_withheld_whatever_its_name() -> None:
    named = ShellEnvironmentPolicy(secrets=frozenset({"FOO"}))
    found = child_environment(named, BASE)
    assert "FOO" not in found.variables and "FOO" in found.withheld
    assert "FOO" not in variables(msgspec.structs.replace(named, ignore_default_excludes=True))
    assert variables(msgspec.structs.replace(named, include=("FOO",)))["FOO"] == "1"
