"""Session state shared by the tools that run commands: the shell, the environment, the running processes."""

import asyncio
import os
from collections.abc import Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

import msgspec

from ferrule.lookup import NOWHERE, Located, Places, locate
from ferrule.process.environment import child_environment
from ferrule.process.interactive import Session
from ferrule.process.launcher import Launcher, Stdio
from ferrule.process.sessions import SessionTable
from ferrule.process.shell import LoginEnvironment, LoginShell, Shell, default_shell, find_shell
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy


class Origin(msgspec.Struct, frozen=True):
    """The call that started a session, and its limit in milliseconds. `cached_env`: the variables of a command in a
    sandbox where caches can be moved, else None. `script`: the command in the model's own words."""

    call_id: str
    timeout_ms: int | None = None
    cached_env: Mapping[str, str] | None = None
    script: str = ""


class Ongoing(Protocol):
    """A command that outlives the call that started it."""

    async def over(self) -> None:
        """Wait until it has ended and its end was told."""
        ...

    async def end(self) -> None:
        """End it."""
        ...


class Commands:
    """The command state of a session. `plain` runs the login shell once, for its environment, and read-only programs
    of our own choice; commands themselves go through `ctx.run`."""

    def __init__(
        self,
        plain: Launcher,
        cwd: str,
        policy: ShellEnvironmentPolicy = ShellEnvironmentPolicy(),  # noqa: B008 - frozen
        marks: Mapping[str, str] | None = None,
        base: Mapping[str, str] | None = None,
        places: Places = NOWHERE,
        shell: Shell | None = None,
        login: LoginShell | None = None,
    ) -> None:
        """`shell` is that of a container, whose programs are found by its own launcher, and which has no start-up
        files of the user. `login` is one that others use, too; its owner closes it."""
        self.plain = plain
        self.base = dict(os.environ) if base is None else dict(base)
        self.policy = policy
        self.marks = dict(marks or {})
        self.sessions = SessionTable()
        self.origins: WeakKeyDictionary[Session, Origin] = WeakKeyDictionary()
        self.ongoing: dict[Ongoing, str] = {}
        """What still runs, each with its script."""
        self.places = places
        self.contained = shell is not None
        self.shell: Shell = shell or default_shell(self.base, places)
        self._owns_login = login is None
        self._login = login or LoginShell(plain, self.shell, self.base, cwd, places=places)
        self._environments: dict[tuple[bool, Stdio | None], dict[str, str]] = {}
        self._warming: asyncio.Future[LoginEnvironment] | None = None

    def warm_up(self) -> None:
        """Run the login shell now, while the model thinks."""
        if self.contained:
            return
        self._warming = asyncio.ensure_future(self._login.environment())

    async def environment(self, login: bool, stdio: Stdio | None = None) -> dict[str, str]:
        """Return the variables of a command; with `login`, those that the user's start-up files set."""
        key = (login, stdio)
        if key not in self._environments:
            own = login and not self.contained
            base = (await self._login.environment()).variables if own else self.base
            self._environments[key] = child_environment(self.policy, base, stdio=stdio, extra=self.marks).variables
        return dict(self._environments[key])

    def running(self) -> list[tuple[int, str]]:
        """Return the sessions that still run, by number, with their commands."""
        known = ((number, session, self.origins.get(session)) for number, session in self.sessions.open())
        return [(number, origin.script if origin else "") for number, session, origin in known if not session.ended]

    def shell_named(self, name: str, env: Mapping[str, str]) -> Shell:
        """Find the shell with this name or path, as `find_shell` does for a command with the variables `env`."""
        return Shell(name) if self.contained else find_shell(name, env, self.places)

    def located(self, name: str, search: str | None) -> Located:
        """Find a program in the folders of `search`, where no command can have put it. In a container, whose commands
        find theirs by themselves, this is the name."""
        return Located(name) if self.contained else locate(name, search, self.places)

    async def settle(self, seconds: float) -> list[str]:
        """Wait up to `seconds` for the commands that still run, then end the others. Return the scripts of those."""
        waits = {asyncio.ensure_future(command.over()) for command in self.ongoing}
        try:
            if waits and seconds > 0:
                await asyncio.wait(waits, timeout=seconds)
        finally:
            for wait in waits:
                wait.cancel()
        left = dict(self.ongoing)
        await asyncio.gather(*(command.end() for command in left))
        return list(left.values())

    async def close(self) -> None:
        """End every process that still runs."""
        if self._warming is not None:
            self._warming.cancel()
        if self._owns_login:
            await self._login.close()
        await self.sessions.end_all()
