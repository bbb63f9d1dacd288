"""What `list_dir` takes and answers."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.list_dir import DESCRIPTION
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class ListDirAction(Action):
    """A directory, and which of its entries."""

    dir_path: str = Field(description="Absolute path of the directory")
    offset: float | None = Field(default=None, description="The first entry to return, at least 1; 1 by default")
    limit: float | None = Field(default=None, description="The most entries to return; 25 by default")
    depth: float | None = Field(default=None, description="How many levels to descend, at least 1; 2 by default")


class ListDirObservation(Observation):
    """Entries as they are shown, from the number `first` on; `more` says that others follow. `unreadable` are the
    directories below whose entries are unknown."""

    path: str
    first: int
    entries: list[str]
    more: bool
    unreadable: tuple[str, ...] = ()

    @property
    def to_llm_content(self) -> str:
        lines = [f"Absolute path: {self.path}"]
        lines += [f"E{number}: {entry}" for number, entry in enumerate(self.entries, self.first)]
        if self.more:
            lines.append(f"More than {len(self.entries)} entries found")
        lines += [f"Could not be read: {problem}" for problem in self.unreadable]
        return "\n".join(lines)


class ListDirTool(ToolDefinition[ListDirAction, ListDirObservation]):
    """Looks through `ctx.files`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ListDirTool]":
        """The one instance."""
        from ferrule.builtin.list_dir.impl import ListDirExecutor

        return [cls(description=DESCRIPTION, executor=ListDirExecutor(), annotations=LOOKS)]
