"""A session's one screen: opened by its first use, unless the user's program brings one."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING

import msgspec

from ferrule.protocol.errors import RespondToModel, UsageError
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.containers.screen import Screen, ScreenAction

NOT_HERE = "The screen cannot be used: {}. Go on without it, or tell the user."
UNDONE = "Action {} of {} was not done: {} Those after it were not begun."


class Look(msgspec.Struct, frozen=True):
    """What is seen in the end: a PNG, the page's address, and what has to be told. `whole`: all was done."""

    picture: bytes
    url: str
    notices: tuple[str, ...] = ()
    whole: bool = True


class KeptScreen:
    """The state that the calls of one session share. One call is on the screen at a time."""

    def __init__(self) -> None:
        self.brought: Screen | None = None
        """The screen of the user's program, which closes it."""
        self._own: Screen | None = None
        self._lock = asyncio.Lock()

    async def act(self, state: ConversationState, actions: Sequence["ScreenAction"]) -> Look:
        """Do what can be done, one after the other, and look. Raises `RespondToModel` where there can be no screen."""
        from ferrule.containers.screen import BadAction

        async def act(screen: "Screen") -> str | None:
            for at, action in enumerate(actions, 1):
                try:
                    await screen.act(action)
                except BadAction as error:
                    return UNDONE.format(at, len(actions), error)
            return None

        return await self._used(state, act)

    async def open_url(self, state: ConversationState, url: str) -> Look:
        """Open an address, and look. Raises `RespondToModel`."""
        from ferrule.containers.screen import BadAddress

        async def open_it(screen: "Screen") -> str | None:
            try:
                await screen.open_url(url)
            except BadAddress as error:
                return str(error)
            return None

        return await self._used(state, open_it)

    async def _used(
        self, state: ConversationState, use: Callable[["Screen"], Coroutine[None, None, str | None]]
    ) -> Look:
        from ferrule.containers.errors import ContainerError

        async with self._lock:
            try:
                screen = self._screen(state)
                problem = await use(screen)
                picture = await screen.screenshot()
            except (ContainerError, UsageError) as error:
                raise RespondToModel(NOT_HERE.format(str(error).rstrip("."))) from error
            notices = screen.notices()
            told = notices if problem is None else (problem, *notices)
            return Look(picture, screen.current_url, told, problem is None)

    def _screen(self, state: ConversationState) -> "Screen":
        """Return the screen, which is opened where there is none. It reaches what the session's commands reach."""
        from ferrule.containers.screen import Screen, ScreenNetwork

        if self.brought is not None:
            return self.brought
        if self._own is None:
            self._own = Screen.open(state.computer, ScreenNetwork.of(state.permissions.sandbox_policy, state.forbids))
        return self._own

    async def close(self) -> None:
        """End the session's own browser."""
        screen, self._own = self._own, None
        if screen is not None:
            await screen.aclose()
