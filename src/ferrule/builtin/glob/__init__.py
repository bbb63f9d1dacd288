"""`glob`: which files have a matching name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.glob.definition import GlobTool

DESCRIPTION = """\
Find files by their names: a glob such as "**/*.js" or "src/**/*.{ts,tsx}", relative to `path`. At most 100 paths are \
returned, the last changed first. Ignored files (`.gitignore`) and `.git` are left out."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("glob", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[GlobTool]":
    """The tool."""
    from ferrule.builtin.glob.definition import GlobTool

    return GlobTool.create(state)
