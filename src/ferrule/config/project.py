"""Every file of a project that decides or runs something in a later session: the one list of them.

Three go by it. *Readers* (`load.py`) read nothing of a project that is not in it. *Trust* (`trust.py`) records what of
it the user has confirmed, by content. *Protection* (`sandbox/`, `tools/approval.py`) keeps `PROTECTED_AT_TOP` from
commands and patches.

AGENTS.md is not configuration: it is text for the model, which reads the repository anyway, gives no rights, and is
often what the model is asked to write. So it is neither recorded nor protected.
"""

from typing import Literal

import msgspec

PROJECT_FOLDER = ".ferrule"

Kind = Literal["settings", "servers", "rules", "program"]


class Entry(msgspec.Struct, frozen=True):
    """Files of one kind. `folder` is relative to the project's top; `suffix` ends the names of those that count, and
    `deep` counts those in folders further below, too. A name alone stands for one file."""

    kind: Kind
    folder: str
    suffix: str
    deep: bool = False


PROJECT_FILES = (
    Entry("settings", PROJECT_FOLDER, "config.toml"),
    Entry("servers", "", ".mcp.json"),
    Entry("rules", f"{PROJECT_FOLDER}/rules", ".rules"),
    Entry("program", f"{PROJECT_FOLDER}/hooks", "", deep=True),
)

PROTECTED_AT_TOP = (PROJECT_FOLDER, ".codex", ".agents", ".mcp.json")
"""Names at the top of a writable root that commands and patches cannot write where they exist.

They hold all of `PROJECT_FILES`, and what other agents read in the same way (`.codex`, `.agents`). Each may be a file
or a folder. One that is missing needs no placeholder: what a command makes there is new, and new files are not read
before the user has confirmed them. `.git` is not among them, because a repository is protected by what it is, not by
its name.
"""
