"""A repository of our own, beside a workspace, in which git works on contents and nothing else."""

import os
from contextlib import nullcontext
from pathlib import Path

import msgspec

from ferrule.workspaces.base import Base
from ferrule.workspaces.contents import quoted
from ferrule.workspaces.run_git import git

_CONFIG = "[core]\nrepositoryformatversion = 0\nbare = true\n"
_LATER_CONFIG = "[core]\nrepositoryformatversion = 1\nbare = true\n[extensions]\nobjectformat = {}\n"


class Objects(msgspec.Struct, frozen=True):
    """A bare repository in a folder; it sees the objects of the base."""

    folder: Path
    environment: dict[str, str]

    @classmethod
    def new(cls, folder: Path, base: Base, tree: Path) -> "Objects":
        """Make one. Raises `OSError`."""
        for name in ("objects/info", "objects/pack", "refs/heads"):
            (folder / name).mkdir(parents=True)
        is_usual = base.object_format == "sha1"
        (folder / "config").write_text(_CONFIG if is_usual else _LATER_CONFIG.format(base.object_format))
        (folder / "HEAD").write_text("ref: refs/heads/none\n")
        environment = {"GIT_DIR": str(folder)}
        if base.commit:
            objects = quoted(os.fsencode(tree / ".git/objects"))
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = os.fsdecode(objects)
        return cls(folder, environment)

    async def git(self, *words: str, stdin: Path | None = None, more: dict[str, str] | None = None) -> bytes:
        """Run git there, with a file as its input. Raises `GitFailed`."""
        with nullcontext() if stdin is None else stdin.open("rb") as file:
            given = {} if file is None else {"stdin": file}
            return await git(*words, more=self.environment | (more or {}), **given)
