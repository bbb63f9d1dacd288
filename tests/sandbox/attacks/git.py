"""Planting hooks and configuration that run or decide later, outside."""

import os

from .common import X86, Scene, attack, raw, write


@attack
def write_git_hook(s: Scene) -> str:
    return write(s["ws"] + "/.git/hooks/pre-commit")


@attack
def write_git_config(s: Scene) -> str:
    return write(s["ws"] + "/.git/config", "[core]\n\thooksPath = h\n")


@attack
def write_codex_config(s: Scene) -> str:
    os.makedirs(s["ws"] + "/.codex", exist_ok=True)
    return write(s["ws"] + "/.codex/config.toml")


@attack
def write_ferrule_config(s: Scene) -> str:
    os.makedirs(s["ws"] + "/.ferrule", exist_ok=True)
    return write(s["ws"] + "/.ferrule/config.toml")


@attack
def write_agents_skill(s: Scene) -> str:
    os.makedirs(s["ws"] + "/.agents", exist_ok=True)
    return write(s["ws"] + "/.agents/skill")


@attack
def rename_git_away(s: Scene) -> str:
    os.rename(s["ws"] + "/.git", s["ws"] + "/.git2")
    return "OPEN"


@attack
def exchange_git(s: Scene) -> str:
    """renameat2 with RENAME_EXCHANGE."""
    os.makedirs(s["ws"] + "/fake", exist_ok=True)
    number = 316 if X86 else 276
    raw(number, -100, (s["ws"] + "/fake").encode(), -100, (s["ws"] + "/.git").encode(), 2)
    return "OPEN"


@attack
def git_through_link(s: Scene) -> str:
    """B134: a link in the workspace to what is protected."""
    os.symlink(".git", s["ws"] + "/lnk")
    return write(s["ws"] + "/lnk/config")


@attack
def replace_placeholder(s: Scene) -> str:
    os.rmdir(s["nogit"] + "/.codex")
    os.mkdir(s["nogit"] + "/.codex")
    return "OPEN"


@attack
def rename_over_placeholder(s: Scene) -> str:
    os.makedirs(s["nogit"] + "/mine", exist_ok=True)
    write(s["nogit"] + "/mine/config.toml")
    os.rename(s["nogit"] + "/mine", s["nogit"] + "/.codex")
    return "OPEN"


@attack
def write_second_root_git(s: Scene) -> str:
    return write(s["second"] + "/.git/config")


@attack
def gitfile_replace(s: Scene) -> str:
    return write(s["worktree"] + "/.git")


@attack
def gitfile_rename(s: Scene) -> str:
    write(s["worktree"] + "/other")
    os.rename(s["worktree"] + "/other", s["worktree"] + "/.git")
    return "OPEN"


@attack
def gitfile_target_write(s: Scene) -> str:
    return write(s["worktree"] + "/meta/wt.git/config")


@attack
def gitfile_target_parent_renamed(s: Scene) -> str:
    os.rename(s["worktree"] + "/meta", s["worktree"] + "/meta2")
    return "OPEN"


@attack
def gitfile_commondir_write(s: Scene) -> str:
    return write(s["worktree"] + "/meta/common.git/config")


@attack
def git_symlink_replace(s: Scene) -> str:
    os.unlink(s["symlinked"] + "/.git")
    os.mkdir(s["symlinked"] + "/.git")
    return "OPEN"


@attack
def git_symlink_target(s: Scene) -> str:
    return write(s["symlinked"] + "/meta/p.git/config")


@attack
def nested_repository_hook(s: Scene) -> str:
    """B133: repositories below the root, found at the start."""
    return write(s["ws"] + "/vendor/s/.git/hooks/post-checkout")


@attack
def nested_repository_config(s: Scene) -> str:
    return write(s["ws"] + "/vendor/s/.git/config")
