"""Which shell a model gets: the whole table."""

import pytest

from ferrule.builtin import BUILTINS
from ferrule.builtin.shell_selection import SHELL_TOOLS, Platform, current_platform, select_shell
from ferrule.protocol.profiles import ModelProfile, ShellForm
from ferrule.protocol.settings import Features
from ferrule.session.sources import expand_profile

LINUX, WINDOWS, OLD_WINDOWS = Platform("linux"), Platform("win32"), Platform("win32", has_pty=False)
PLAIN = Features()
OFF = Features(shell_tool=False, shell_zsh_fork=True, unified_exec=True)
ZSH = Features(shell_zsh_fork=True, unified_exec=True)
SESSIONS = Features(unified_exec=True)
NO_SESSIONS = Features(unified_exec=False)


@pytest.mark.parametrize(
    ("profile", "features", "platform", "expected"),
    [
        ("shell_command", PLAIN, LINUX, "shell_command"),
        ("unified_exec", PLAIN, LINUX, "unified_exec"),
        ("shell", PLAIN, LINUX, "shell"),
        ("local_shell", PLAIN, LINUX, "local_shell"),
        ("disabled", PLAIN, LINUX, "disabled"),
        ("unified_exec", OFF, LINUX, "disabled"),
        ("shell", OFF, WINDOWS, "disabled"),
        ("unified_exec", ZSH, LINUX, "shell_command"),
        ("shell", ZSH, LINUX, "shell_command"),
        ("disabled", ZSH, LINUX, "disabled"),
        ("shell", ZSH, WINDOWS, "unified_exec"),
        ("shell_command", SESSIONS, LINUX, "unified_exec"),
        ("shell", SESSIONS, LINUX, "unified_exec"),
        ("local_shell", SESSIONS, LINUX, "unified_exec"),
        ("disabled", SESSIONS, LINUX, "disabled"),
        ("unified_exec", NO_SESSIONS, LINUX, "shell_command"),
        ("shell", NO_SESSIONS, LINUX, "shell"),
        ("local_shell", NO_SESSIONS, LINUX, "local_shell"),
        ("unified_exec", PLAIN, WINDOWS, "unified_exec"),
        ("unified_exec", PLAIN, OLD_WINDOWS, "shell_command"),
        ("shell_command", SESSIONS, OLD_WINDOWS, "shell_command"),
        ("shell", SESSIONS, OLD_WINDOWS, "shell_command"),
        ("shell", PLAIN, OLD_WINDOWS, "shell"),
    ],
)
def test_selection(profile: ShellForm, features: Features, platform: Platform, expected: ShellForm) -> None:
    assert select_shell(ModelProfile(name="m", shell=profile), features, platform) == expected


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("shell_command", ["shell_command"]),
        ("unified_exec", ["exec_command", "write_stdin"]),
        ("shell", ["shell", "container.exec"]),
        ("local_shell", ["local_shell"]),
        ("disabled", []),
    ],
)
def test_a_profile_brings_the_tools_of_its_form(form: ShellForm, names: list[str]) -> None:
    assert expand_profile([], ModelProfile(name="m", shell=form, apply_patch="none")) == names


def test_every_form_names_tools_that_exist() -> None:
    assert {name for names in SHELL_TOOLS.values() for name in names} <= set(BUILTINS)


def test_this_platform_has_terminals() -> None:
    assert current_platform().has_pty
