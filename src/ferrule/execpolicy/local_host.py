"""This machine, as decisions see it."""

import os
import shutil
from collections.abc import Mapping
from functools import cached_property

from ferrule.lookup import NOWHERE, Places, is_exposed

# Variables of git that a command which neither commits nor connects does not look at.
_HARMLESS_GIT_VARIABLES = (
    *("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_EDITOR", "GIT_TERMINAL_PROMPT"),
    *("GIT_OPTIONAL_LOCKS", "GIT_ASKPASS", "GIT_SSH", "GIT_SSL_", "GIT_HTTP_"),
)


class LocalHost:
    """This machine, seen from `cwd` with the environment `env` of commands, which can write in `places`.

    Blocking (git's files are read once per instance): make one for each decision, in a thread.
    """

    def __init__(self, cwd: str, env: Mapping[str, str], places: Places = NOWHERE) -> None:
        self._cwd = cwd
        self._env = dict(env)
        self._places = places
        self._exposed: dict[str, bool] = {}
        self._resolved: dict[str, str | None] = {}

    def git_is_inert(self) -> bool:
        return self._git_is_inert

    @cached_property
    def _git_is_inert(self) -> bool:
        """Return True if no program is configured, no hook follows a refreshed index, no submodule is entered."""
        from ferrule.execpolicy.git_files import Unreadable, configuration, find_repository, holds_only_files
        from ferrule.execpolicy.safe_git import is_inert_config

        git = self.resolve("git")
        if git is None or self.is_exposed("git") or not self._git_variables_are_harmless():
            return False
        try:
            repository = find_repository(self._cwd)
            config = list(configuration(git, repository, self._env))
            if not is_inert_config(config):
                return False
            if repository is None:
                return True  # only the user's configuration counts
            if os.path.lexists(repository.common / "hooks/post-index-change"):
                return False
            wide = any(key == "extensions.objectformat" and value != "sha1" for key, value in config)
            return holds_only_files(repository, 32 if wide else 20)
        except (Unreadable, OSError):
            return False

    def _git_variables_are_harmless(self) -> bool:
        return all(
            not name.startswith("GIT_")
            or name.startswith(_HARMLESS_GIT_VARIABLES)
            or (name == "GIT_PAGER" and value in ("", "cat"))
            for name, value in self._env.items()
        )

    def resolve(self, program: str) -> str | None:
        if program not in self._resolved:
            self._resolved[program] = self._look_up(program)
        return self._resolved[program]

    def is_exposed(self, program: str) -> bool:
        if program not in self._exposed:
            found, is_fixed = self._find(program)
            self._exposed[program] = found is not None and (not is_fixed or is_exposed(found, self._places))
        return self._exposed[program]

    def _look_up(self, program: str) -> str | None:
        path, _ = self._find(program)
        # os.path, not pathlib: to it a name that no file can have does not exist, and raises nothing.
        return os.path.realpath(path) if path is not None and os.path.exists(path) else None

    def _find(self, program: str) -> tuple[str | None, bool]:
        """Return the program's absolute path, and whether it stays the same after a `cd`."""
        if "/" in program:
            return os.path.join(self._cwd, program), True
        for folder in self._env.get("PATH", os.defpath).split(os.pathsep):
            found = shutil.which(os.path.join(self._cwd, folder, program)) if program else None
            if found is not None:
                return found, os.path.isabs(folder)
        return None, True
