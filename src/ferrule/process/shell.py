"""The user's shell, and the environment that its start-up files produce.

Start-up files can be slow, print, prompt, `exec` something else or exit. So they run once per session, under a
timeout, only for their environment; commands then run in a shell that reads none.
"""

import asyncio
import os
import pwd
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from ferrule.lookup import NOWHERE, Located, Places, is_exposed, locate, safe_search
from ferrule.process.launcher import Launcher, LaunchError
from ferrule.process.run import run

LOGIN_TIMEOUT_MS = 5_000
"""Time limit for start-up files; after it the agent's own environment is used instead."""
LOGIN_GRACE = 3.0
"""Seconds that start-up files have to end themselves. They may hold a lock that they release at their end:
pyenv's, left behind, makes each later shell of the user wait for a minute. An interactive shell ignores TERM, so those
that wait for another's lock take all of it: with what else a session's end takes it stays below 6."""
POSIX_SHELLS = frozenset({"bash", "zsh", "sh", "dash", "ash", "ksh"})
"""Shells whose syntax models write."""

_SHELL_OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "TERM"})
# Variables a shell sets for itself are not the user's choice.


class Shell(msgspec.Struct, frozen=True):
    """A shell, by its absolute path; the file name is its kind."""

    path: str

    @property
    def kind(self) -> str:
        return Path(self.path).name


def default_shell(env: Mapping[str, str], places: Places = NOWHERE) -> Shell:
    """Return the user's shell: `$SHELL`, else the account's, else bash, else sh; always one of `POSIX_SHELLS`, and
    none in `places`, where commands can write."""
    for path in filter(None, _shells(env, places)):
        if Path(path).name in POSIX_SHELLS and os.access(path, os.X_OK) and not is_exposed(path, places):
            return Shell(path)
    raise LaunchError("no shell was found: neither $SHELL, nor bash, nor /bin/sh can be run")


def _shells(env: Mapping[str, str], places: Places) -> Iterator[str | None]:
    yield env.get("SHELL")
    yield _account_shell()
    yield locate("bash", env.get("PATH"), places).path
    yield "/bin/sh"


def find_shell(name: str, env: Mapping[str, str], places: Places = NOWHERE) -> Shell:
    """Find the requested shell, by path or by name on `PATH`; a name never resolves into `places`, where commands can
    write. Raises `LaunchError` if there is none."""
    found = Located(shutil.which(name)) if "/" in name else locate(name, env.get("PATH"), places)
    if found.path is None:
        why = found.problem if found.passed_over else f"does not exist or cannot be run: {name}"
        raise LaunchError(f"the shell {why}; leave it out to use the default shell")
    return Shell(str(Path(found.path).absolute()))


def shell_argv(shell: Shell, script: str, login: bool = False) -> list[str]:
    """Return the command line that runs a script. `login` makes this shell read its start-up files; a session with a
    `LoginShell` uses its environment instead. Job control stays off either way."""
    if login:
        return [shell.path, "-lc", script]
    # zsh reads ~/.zshenv even so, unless told not to.
    return [shell.path, "-fc" if shell.kind == "zsh" else "-c", script]


class LoginEnvironment(msgspec.Struct, frozen=True):
    """The variables after the start-up files; `problem` says in one sentence why the agent's own are used instead."""

    variables: Mapping[str, str]
    problem: str | None = None


class LoginShell:
    """The environment of a login shell, computed once and cached.

    Its start-up files run unsandboxed, so they find no program in `places`, where commands can write.
    """

    def __init__(
        self,
        launcher: Launcher,
        shell: Shell,
        base: Mapping[str, str],
        cwd: str,
        timeout_ms: int = LOGIN_TIMEOUT_MS,
        grace: float = LOGIN_GRACE,
        places: Places = NOWHERE,
    ) -> None:
        self._places = places
        self._launcher = launcher
        self._shell = shell
        self._base = base
        self._cwd = cwd
        self._timeout_ms = timeout_ms
        self._grace = grace
        self._answer: asyncio.Task[LoginEnvironment] | None = None

    async def environment(self) -> LoginEnvironment:
        """Return the environment. Many tasks may await it; cancelling one does not stop the others' wait."""
        if self._answer is None:
            self._answer = asyncio.create_task(self._capture())
        return await asyncio.shield(self._answer)

    async def close(self) -> None:
        """End the shell if it still runs."""
        if self._answer is not None:
            self._answer.cancel()
            await asyncio.wait({self._answer})

    async def _capture(self) -> LoginEnvironment:
        mark, path = secrets.token_hex(16), safe_search(self._base.get("PATH"), self._places)
        # The marks separate the variables from the files' own output; every shell can run env.
        script = f"printf '%s\\0' {mark}; command env -0; printf '%s' {mark}"
        problem = ""
        for flags in (["-l", "-i"], ["-l"]):
            try:
                done = await run(
                    self._launcher,
                    [self._shell.path, *flags, "-c", script],
                    env={**self._base, "TERM": "dumb", "PATH": path},
                    cwd=self._cwd,
                    timeout_ms=self._timeout_ms,
                    grace=self._grace,
                )
            except LaunchError as error:
                return LoginEnvironment(self._base, str(error))
            if done.timed_out:
                problem = f"took longer than {self._timeout_ms / 1000:g} s"
                break
            if variables := _between_marks(done.stdout.render(), mark.encode()):
                return LoginEnvironment(self._merged(variables, path))
            problem = f"ended the shell with exit code {done.exit_code}"
        return LoginEnvironment(
            self._base, f"The start-up files of {self._shell.path} {problem}; the agent's own environment is used."
        )

    def _merged(self, found: Mapping[str, str], path: str) -> dict[str, str]:
        own = {name: self._base[name] for name in _SHELL_OWN if name in self._base}
        merged = {name: value for name, value in found.items() if name not in _SHELL_OWN} | own
        if "PATH" in merged and "PATH" in self._base:
            merged["PATH"] = _with_folders(merged["PATH"], self._base["PATH"], path)
        return merged


def _with_folders(found: str, base: str, safe: str) -> str:
    """Return PATH as the start-up files left it, plus the folders of `base` that were hidden from them, each before
    the folder it preceded. Start-up files that build PATH from scratch would have dropped these too."""
    folders, kept, result = base.split(os.pathsep), safe.split(os.pathsep), found.split(os.pathsep)
    if not set(kept) <= set(result):
        return found
    for number in reversed(range(len(folders))):
        if folders[number] not in kept and folders[number] not in result:
            following = next((folder for folder in folders[number + 1 :] if folder in result), None)
            result.insert(len(result) if following is None else result.index(following), folders[number])
    return os.pathsep.join(result)


def _between_marks(output: bytes, mark: bytes) -> dict[str, str]:
    _, begun, rest = output.partition(mark + b"\0")
    listing, ended, _ = rest.rpartition(mark)  # dash has the mark in `_` too
    if not begun or not ended:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in listing.split(b"\0") if entry)
    return {name: value for name, sign, value in pairs if sign}


def _account_shell() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_shell
    except KeyError:  # a container user without an account
        return None
