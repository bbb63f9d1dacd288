"""What a tool may know of the conversation when it is created: narrow, and the same for every tool."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Protocol, TypeVar, cast

import msgspec

from ferrule.image_generation.access import ImageAccess
from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.protocol.profiles import ModelProfile
from ferrule.protocol.truncation import OutputBudget
from ferrule.retrieval.access import FolderAccess
from ferrule.tools.commands import Commands
from ferrule.tools.context import Permissions
from ferrule.tools.turn_diff import TurnDiffTracker
from ferrule.web.access import WebAccess


class SharedPart(Protocol):
    """An object that lives as long as the session."""

    def close(self) -> Awaitable[None] | None:
        """Called once, when the session ends."""
        ...


P = TypeVar("P", bound=SharedPart)


class Shared:
    """Objects shared by several tools of one session (a kernel, an index): one per kind, created on first use."""

    def __init__(self) -> None:
        self._parts: dict[type[SharedPart], SharedPart] = {}

    def get(self, kind: type[P]) -> P:
        """Return the session's only `kind`."""
        part = self._parts.get(kind) or self._parts.setdefault(kind, kind())  # tools are created on two threads
        return cast("P", part)

    async def close(self) -> None:
        """Close what was created."""
        for part in self._parts.values():
            closing = part.close()
            if closing is not None:
                await closing


class ConversationState(Protocol):
    """The `conv_state` argument of `create`. Everything that lives as long as the session is reached through it."""

    @property
    def cwd(self) -> str: ...
    @property
    def permissions(self) -> Permissions: ...
    @property
    def profile(self) -> ModelProfile: ...
    @property
    def output_budget(self) -> OutputBudget: ...
    @property
    def commands(self) -> Commands: ...
    @property
    def turn_diff(self) -> TurnDiffTracker: ...
    @property
    def home(self) -> str: ...
    @property
    def shared(self) -> Shared: ...
    @property
    def roles(self) -> Mapping[str, str]: ...
    @property
    def python(self) -> str | None: ...
    @property
    def web(self) -> WebAccess | None: ...
    @property
    def file_search(self) -> FolderAccess | None: ...
    @property
    def computer(self) -> ComputerSettings: ...
    @property
    def forbids(self) -> Callable[[str, int], str | None]: ...
    @property
    def images(self) -> ImageAccess | None: ...


def _forbids_nothing(host: str, port: int) -> None:
    return None


class Conversation(msgspec.Struct, kw_only=True):
    """A session's implementation of that state. `home` is the folder of Ferrule's own files; `roles` are the kinds of
    sub-agents and what they are for; `python` is the interpreter that the user has chosen, `web` the way to the web,
    `file_search` the search in folders, `computer` the screen, `images` makes images. `forbids` says
    why the user's rules keep pages of the screen from a host and port, or None."""

    cwd: str
    permissions: Permissions
    profile: ModelProfile
    output_budget: OutputBudget
    commands: Commands
    turn_diff: TurnDiffTracker
    home: str = ""
    shared: Shared = msgspec.field(default_factory=Shared)
    roles: Mapping[str, str] = {}
    python: str | None = None
    web: WebAccess | None = None
    file_search: FolderAccess | None = None
    computer: ComputerSettings = ComputerSettings()
    forbids: Callable[[str, int], str | None] = _forbids_nothing
    images: ImageAccess | None = None

    async def aclose(self) -> None:
        """End the commands and close what tools have opened; each, even if another one fails to end."""
        async with AsyncExitStack() as ends:
            ends.push_async_callback(self.commands.close)
            ends.push_async_callback(self.shared.close)
            for access in (self.web, self.file_search, self.images):
                if access is not None:
                    ends.push_async_callback(access.aclose)
