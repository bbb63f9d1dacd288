"""What the policy needs to know about the machine. The judgements are pure; they ask a `Host`."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Protocol

GIT_TIMEOUT_SECONDS = 2.0  # reading configuration takes milliseconds; a repository on a dead mount must not hold us up
_GITLINK = b"160000 "
# Variables of git that a command which neither commits nor connects does not look at.
_HARMLESS_GIT_VARIABLES = (
    *("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_EDITOR", "GIT_TERMINAL_PROMPT"),
    *("GIT_OPTIONAL_LOCKS", "GIT_ASKPASS", "GIT_SSH", "GIT_SSL_", "GIT_HTTP_"),
)


class Host(Protocol):
    """Facts about the machine and the working directory that a command would run in."""

    def git_is_inert(self) -> bool:
        """True if a read-only git command here would start no program that a configuration names."""
        ...

    def resolve(self, program: str) -> str | None:
        """The real path of the file that would be executed for this word; None if there is none or it is unknown."""
        ...


class UnknownHost:
    """Nothing is known, so git is never safe and no link is followed."""

    def git_is_inert(self) -> bool:
        return False

    def resolve(self, program: str) -> str | None:
        return None


class LocalHost:
    """This machine, seen from `cwd` with the environment `env` that commands are given.

    Blocking (up to three short git commands, once an instance): make one for each decision, in a thread.
    """

    def __init__(self, cwd: str, env: Mapping[str, str]) -> None:
        self._cwd = cwd
        self._env = dict(env)
        self._resolved: dict[str, str | None] = {}

    def git_is_inert(self) -> bool:
        return self._git_is_inert

    @cached_property
    def _git_is_inert(self) -> bool:
        """The configuration names nothing, no hook follows a refreshed index, no submodule is entered."""
        from .safe_git import is_inert_config, parse_config

        if not self._git_variables_are_harmless():
            return False
        config = self._git("config", "--list", "-z")
        if config is None or not is_inert_config(parse_config(config)):
            return False
        hooks = self._git("rev-parse", "--git-path", "hooks")
        if hooks is None:
            return True  # no repository here: only the user's configuration counts
        if (Path(self._cwd, os.fsdecode(hooks.rstrip(b"\n"))) / "post-index-change").exists():
            return False
        index = self._git("ls-files", "--stage", "-z", ":/")
        return index is not None and not any(entry.startswith(_GITLINK) for entry in index.split(b"\0"))

    def _git_variables_are_harmless(self) -> bool:
        return all(
            not name.startswith("GIT_")
            or name.startswith(_HARMLESS_GIT_VARIABLES)
            or (name == "GIT_PAGER" and value in ("", "cat"))
            for name, value in self._env.items()
        )

    def _git(self, *words: str) -> bytes | None:
        """The output of a git command that runs nothing else; None if it fails."""
        command = ["git", "--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
        try:
            done = subprocess.run(
                command, cwd=self._cwd, env=self._env, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=GIT_TIMEOUT_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    def resolve(self, program: str) -> str | None:
        if program not in self._resolved:
            self._resolved[program] = self._look_up(program)
        return self._resolved[program]

    def _look_up(self, program: str) -> str | None:
        path: str | None = program
        if "/" not in program:
            path = shutil.which(program, path=self._env.get("PATH", os.defpath))
        if path is None:
            return None
        path = os.path.join(self._cwd, path)
        # os.path, not pathlib: to it a name that no file can have does not exist, and raises nothing.
        return os.path.realpath(path) if os.path.exists(path) else None
