"""`glob`: which files have a matching name."""

import os
import re
from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.paging import shown_name
from ferrule.builtin.searching.door import Searcher, shown_warnings
from ferrule.builtin.searching.request import Search
from ferrule.ignores.globs import GlobError, glob_regex
from ferrule.patch.paths import unexpanded
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Find files by their names: a glob such as "**/*.js" or "src/**/*.{ts,tsx}", relative to `path`. At most 100 paths are \
returned, the last changed first. Ignored files (`.gitignore`) and `.git` are left out."""
LIMIT = 100
"""Paths that are returned, as models know it."""


class GlobAction(Action):
    """A glob and its starting folder."""

    pattern: str = Field(description='The glob, such as "**/*.js" or "src/**/*.ts"')
    path: str | None = Field(default=None, description="The directory to search; the session's by default")


class GlobObservation(Observation):
    """Absolute paths, the last changed first."""

    files: list[str]
    pattern: str
    search_path: str
    truncated: bool
    warnings: tuple[str, ...] = ()

    @property
    def to_llm_content(self) -> str:
        if not self.files:
            head = f"No files found matching pattern '{self.pattern}' in directory '{self.search_path}'"
            return "\n".join([head, *self.warnings])
        head = f"Found {len(self.files)} file(s) matching pattern '{self.pattern}' in '{self.search_path}':"
        cut = ["", f"[Results truncated to first {LIMIT} files. Use a narrower pattern.]"] if self.truncated else []
        return "\n".join([head, *self.files, *cut, *self.warnings])


_MAGIC = re.compile(r"[*?\[{\\]")


class GlobExecutor(ToolExecutor[GlobAction, GlobObservation]):
    """Every file not ignored is listed, and the glob decides: as a `--glob` it would bring back ignored ones."""

    def __init__(self, state: ConversationState) -> None:
        self._searcher = Searcher(state.commands)

    async def __call__(self, action: GlobAction, ctx: ToolContext) -> GlobObservation:
        """Return the paths. Raises `RespondToModel`."""
        folder, pattern = _split(action.pattern, ctx.files.shown_path(action.path or ctx.cwd))
        if not pattern:
            raise RespondToModel("pattern must not be empty")
        try:
            matches = glob_regex(pattern if "/" in pattern else f"**/{pattern}").match
        except GlobError as error:
            raise RespondToModel(f"error parsing glob '{action.pattern}': {error}") from error
        if not os.path.isdir(ctx.files.shown_path(folder)):
            raise RespondToModel(f"Search path '{shown_name(folder)}' is not a valid directory")
        found = await self._searcher.search(Search(path=folder, cwd=folder, hidden=True, shown=ctx.files.shown))
        below = len(folder.rstrip("/")) + 1
        files = [path for path in found.files if matches(path[below:])]
        return GlobObservation(
            files=[shown_name(path) for path in files[:LIMIT]],
            pattern=action.pattern,
            search_path=shown_name(folder),
            truncated=len(files) > LIMIT,
            warnings=shown_warnings(found.warnings),
        )


def _split(pattern: str, folder: str) -> tuple[str, str]:
    """Return the folder to search and the glob below it; an absolute glob names its own folder."""
    pattern = pattern.strip()
    if pattern.startswith("~"):
        pattern = os.path.expanduser(pattern)
    refusal = unexpanded(pattern, folder)
    if refusal is not None:
        raise RespondToModel(refusal)
    if not os.path.isabs(pattern):
        return folder, pattern.removeprefix("./")
    parts = pattern.split("/")
    plain = next((at for at, part in enumerate(parts) if _MAGIC.search(part)), len(parts) - 1)
    return "/".join(parts[:plain]) or "/", "/".join(parts[plain:])


class GlobTool(ToolDefinition[GlobAction, GlobObservation]):
    """Lists with ripgrep or in Python."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[GlobTool]":
        """Create one for the conversation."""
        return [cls(description=DESCRIPTION, executor=GlobExecutor(conv_state), annotations=LOOKS)]


TOOL = GlobTool
