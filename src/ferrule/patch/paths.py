"""Paths that only a shell would expand: taken literally they create a folder named `~`."""

import os
import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_URL = "file:///"


def unexpanded(path: str, cwd: str, env: Mapping[str, str] = os.environ) -> str | None:
    """Explain why a path is not taken literally, and what it means: it starts with `~`, a variable or `file://`. None
    for every other path, a name like `~backup` or `$id.tsx` that no shell would change, and one that exists."""
    meant = _meant(path, env)
    if meant is None:
        return None
    if path.startswith(_URL):
        return f"{path} is a URL, and a path is wanted: write {meant}"
    first = path.split("/", 1)[0]
    if first != "~" and os.path.lexists(os.path.join(cwd, first)):
        return None
    return f"no shell expands `{first}` here: write {meant}, or ./{path} for what has that name in {cwd}"


def _meant(path: str, env: Mapping[str, str]) -> str | None:
    if path.startswith(_URL):
        from urllib.parse import unquote

        return unquote(path.removeprefix(_URL[:-1]))
    first, slash, rest = path.partition("/")
    if first.startswith("~"):
        folder = env.get("HOME") or os.path.expanduser(first) if first == "~" else os.path.expanduser(first)
    else:
        variable = _VARIABLE.fullmatch(first)
        folder = env.get(variable[1] or variable[2], "") if variable else ""
    if folder == first or not os.path.isabs(folder) or os.pathsep in folder:
        return None
    return folder.rstrip("/") + slash + rest if rest or slash else folder
