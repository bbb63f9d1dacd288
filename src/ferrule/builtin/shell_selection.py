"""Select a model's shell tools: its own form, adjusted to feature flags and the platform."""

import sys

import msgspec

from ferrule.protocol.profiles import ModelProfile, ShellForm
from ferrule.protocol.settings import Features

CONPTY_BUILD = 17_763
"""The first Windows build with pseudo consoles (1809)."""

SHELL_TOOLS: dict[ShellForm, tuple[str, ...]] = {
    "shell_command": ("shell_command",),
    "unified_exec": ("exec_command", "write_stdin"),
    "shell": ("shell", "container.exec"),
    "local_shell": ("local_shell",),
    "disabled": (),
}
"""The built-in tools of each form."""


class Platform(msgspec.Struct, frozen=True):
    """Input of the selection: `system` as in `sys.platform`, and whether a PTY is available."""

    system: str
    has_pty: bool = True


def current_platform() -> Platform:
    """Return the platform of this process."""
    if sys.platform == "win32":
        return Platform(sys.platform, sys.getwindowsversion().build >= CONPTY_BUILD)
    return Platform(sys.platform)


def select_shell(profile: ModelProfile, features: Features, platform: Platform) -> ShellForm:
    """Select the form of shell for a model. Pure."""
    if not features.shell_tool or profile.shell == "disabled":
        return "disabled"
    if features.shell_zsh_fork and platform.system != "win32":
        return "shell_command"
    sessions = profile.shell == "unified_exec" if features.unified_exec is None else features.unified_exec
    if sessions:
        return "unified_exec" if platform.has_pty else "shell_command"
    return "shell_command" if profile.shell == "unified_exec" else profile.shell
