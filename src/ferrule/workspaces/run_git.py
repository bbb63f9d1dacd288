"""Run git so that nothing but what we say decides what it does: no settings, hooks or attributes of anybody."""

import asyncio
import os
import shlex
import signal
import subprocess
from contextlib import suppress
from typing import IO

from ferrule.lookup import NOWHERE, locate
from ferrule.workspaces.source import WorkspaceError

_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "file",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # A repository may belong to somebody else: the user has named it, and no program of it runs.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
}
LONGEST_ERROR = 500
"""Characters of git's words in an error."""


class GitFailed(WorkspaceError):
    """Git ended with an error; the text is what it said."""


def environment() -> dict[str, str]:
    """Return the environment of git."""
    return {"PATH": os.environ.get("PATH", os.defpath)} | _ENVIRONMENT


def find_git() -> str:
    """Return the program. Raises `WorkspaceError`."""
    found = locate("git", os.environ.get("PATH"), NOWHERE)
    if found.path is None:
        raise WorkspaceError("git is not installed: repositories and patches need it")
    return found.path


def upload_pack() -> str:
    """Return the command line of the program that reads another repository: git hands no settings on to it."""
    return f"{shlex.quote(find_git())} -c safe.directory='*' upload-pack"


async def git(
    *words: str | bytes, stdin: IO[bytes] | int = subprocess.DEVNULL, more: dict[str, str] | None = None
) -> bytes:
    """Run git and return what it wrote. If the caller is cancelled, git is killed. Raises `GitFailed`."""
    child = await asyncio.create_subprocess_exec(
        find_git(),
        *words,
        env=environment() | (more or {}),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = await child.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # what it has started, too
        await child.wait()
        raise
    if child.returncode != 0:
        raise GitFailed(_said(errors) or f"git {words[0]!r} ended with {child.returncode}")
    return output


def _said(errors: bytes) -> str:
    """Return the lines that tell what is wrong."""
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    fatal = [line for line in lines if line.startswith(("fatal: ", "\t"))]  # what it lists is indented
    return " ".join(line.removeprefix("fatal: ").strip() for line in fatal or lines)[:LONGEST_ERROR]
