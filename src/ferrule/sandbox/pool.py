"""The sandbox pool: this process's zygotes, one per policy, forked from one mother, shared by all sessions of one event
loop.

A zygote starts when a session opens, without being waited for, and keeps spare inits ready. An idle one ends after a
minute; beyond the limits the least recently used idle ones end at once. A zygote with a running command is never ended
to make room, so a process with more busy policies than the limit has more zygotes while they are busy.
"""

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from ferrule.kernel_files import Mount
from ferrule.process.launcher import LaunchError, Limits, Stdio
from ferrule.sandbox.boundary import Cover
from ferrule.sandbox.linux.client import HelperEnded, InitSource, Message
from ferrule.sandbox.linux.launcher import (
    ConfinedChild,
    kernel_version,
    request_of,
    spawn,
    started,
    wire_covers,
)
from ferrule.sandbox.linux.mothers import Mothers
from ferrule.sandbox.linux.mount_table import RootMounts
from ferrule.sandbox.linux.seccomp import OWN_PROCESS, build_filters
from ferrule.sandbox.linux.sockets import well_known_sockets
from ferrule.sandbox.placeholders import Placeholders
from ferrule.sandbox.plan import ConfinementPlan
from ferrule.sandbox.way_out import WayOut, wire_way_out

MAX_ZYGOTES = 8
"""Policies kept ready: a process with sub-agents has a handful."""
MAX_SPARES = 8
"""Waiting inits in total: each is a process."""
SPARES_PER_ZYGOTE = 2
"""A command finds one ready while the next is being made."""
IDLE_SECONDS = 60.0
"""A working model asks sooner than that, and starting a new zygote is quick."""
LINGER_SECONDS = 0.05
"""Seconds that placeholders outlive a command, so that its namespace is gone before they are removed."""
REFILL_DELAY = 0.002
"""Seconds: long enough that a spare is not created at the moment when a command starts."""
MAX_PROCESSES = 2048
"""Processes and threads of one command, so that a fork bomb harms only that command."""


class ZygoteKey(msgspec.Struct, frozen=True):
    """Sessions with equal keys share a zygote. `interpreter` replaces `sys.executable`; tests run it as another user.

    `mounts` are those in the roots: a zygote keeps the ones that it found when it started. `way_out` serves what the
    plan lets out: a session has its own, since only its own user is asked.
    """

    plan: ConfinementPlan
    state_dir: Path
    namespaces: bool = True
    interpreter: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    way_out: WayOut | None = None


class _Zygote(msgspec.Struct):
    process: InitSource
    placeholders: Placeholders
    covers: Sequence[Cover] = ()
    """Those of the last command: spares are prepared with them for the next one."""
    running: int = 0
    idle_timer: asyncio.TimerHandle | None = None
    lingering: deque[asyncio.TimerHandle] = msgspec.field(default_factory=deque)

    def linger(self, loop: asyncio.AbstractEventLoop) -> None:
        """Release placeholders a little after a command ends: removing a folder on which a dying namespace still has a
        mount takes milliseconds."""
        self.lingering.append(loop.call_later(LINGER_SECONDS, self._release))

    def _release(self) -> None:
        self.lingering.popleft().cancel()
        self.placeholders.release()

    def close(self) -> None:
        """Close a zygote that has no running command."""
        while self.lingering:
            self._release()
        self.placeholders.close()


class Pool:
    """The zygotes of one event loop. `open` and `close` count sessions; closing the last one ends everything."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._zygotes: dict[ZygoteKey, _Zygote] = {}  # least recently used first
        self._mothers: dict[tuple[str, ...], Mothers] = {}  # by the interpreter
        self._sessions = 0

    @property
    def size(self) -> int:
        return len(self._zygotes)

    @property
    def spares(self) -> int:
        return sum(zygote.process.spares for zygote in self._zygotes.values())

    def drop_spares(self, key: ZygoteKey) -> None:
        """End the spare inits of this policy."""
        if key in self._zygotes:
            self._zygotes[key].process.drop_spares()

    def open(self, key: ZygoteKey, covers: Sequence[Cover] = ()) -> None:
        """Begin a session: its zygote starts in the background."""
        zygote = self._zygote(key, covers)
        self._sessions += 1
        self._refill(key, zygote)

    async def close(self) -> None:
        """End a session. After the last one neither a zygote nor a command is left."""
        self._sessions -= 1
        if not self._sessions:
            _POOLS.pop(self._loop, None)
            processes = [zygote.process for zygote in self._zygotes.values()]
            for key in list(self._zygotes):
                self._end(key)
            try:
                for process in processes:
                    await process.gone()
            finally:
                for mothers in self._mothers.values():
                    await mothers.aclose()

    def wake(self, key: ZygoteKey) -> None:
        """Wake an init, for a command that is being prepared."""
        if key in self._zygotes:
            self._zygotes[key].process.wake()

    async def ready(self, key: ZygoteKey) -> int:
        """Wait until the zygote has built its namespaces. Returns the version of Landlock in use, 0 for none. Raises
        `LaunchError` if it fails."""
        process = self._zygote(key).process
        await process.wait_ready()
        return process.landlock

    async def launch(
        self,
        key: ZygoteKey,
        covers: Sequence[Cover],
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        stdio: Stdio,
        limits: Limits,
    ) -> ConfinedChild:
        """Start a command in the sandbox of this policy, with these paths protected. Raises `LaunchError`."""
        if limits.max_processes is None and key.namespaces and kernel_version() >= (5, 14):
            # Before 5.14 the limit counts all processes of the user.
            limits = msgspec.structs.replace(limits, max_processes=MAX_PROCESSES)
        request = request_of(argv, env, cwd, limits)
        try:
            return await self._attempt(key, covers, request, stdio)
        except _Gone:
            # The zygote was killed, unnoticed or as it began, and nothing was started. If a second one dies at once it
            # is an error.
            return await self._attempt(key, covers, request, stdio)

    async def _attempt(
        self, key: ZygoteKey, covers: Sequence[Cover], request: Mapping[str, object], stdio: Stdio
    ) -> ConfinedChild:
        zygote = self._zygote(key, covers)
        zygote.running += 1
        try:
            covers = await zygote.placeholders.acquire(covers)
        except BaseException:
            self._done(key, zygote)
            raise

        def ended() -> None:
            zygote.linger(self._loop)
            self._done(key, zygote)

        try:
            init = await zygote.process.take(_prepared(covers))
        except BaseException as error:
            ended()
            if isinstance(error, HelperEnded) or (isinstance(error, LaunchError) and zygote.process.ready):
                raise _Gone(str(error)) from error
            raise
        try:
            child = spawn(
                init, {**request, "covers": wire_covers(covers)}, stdio, soft_kill=not key.namespaces, on_end=ended
            )
        except OSError as error:
            init.close()
            ended()
            raise _Gone("the sandbox helper process ended before the command was started") from error
        self._loop.call_later(REFILL_DELAY, self._refill, key, zygote)
        await started(child)
        return child

    def _zygote(self, key: ZygoteKey, covers: Sequence[Cover] | None = None) -> _Zygote:
        zygote = self._zygotes.pop(key, None)
        if zygote is not None and not zygote.process.alive:
            self._close(zygote)
            zygote = None
        if zygote is None:
            self._make_room()
            placeholders = Placeholders(key.state_dir, key.plan.roots if key.namespaces else ())
            try:
                fds = (placeholders.folder, placeholders.lock)
                mothers = self._mothers.setdefault(key.interpreter, Mothers("zygote", key.interpreter))
                client = partial(InitSource, way_out=key.way_out)
                zygote = _Zygote(mothers.bear(client, _settings(key, placeholders), fds), placeholders)
            except BaseException:
                placeholders.close()
                raise
        if covers is not None:
            zygote.covers = covers
        self._zygotes[key] = zygote
        self._touch(key, zygote)
        return zygote

    def _touch(self, key: ZygoteKey, zygote: _Zygote) -> None:
        if zygote.idle_timer is not None:
            zygote.idle_timer.cancel()
        zygote.idle_timer = self._loop.call_later(IDLE_SECONDS, self._end_idle, key, zygote)

    def _end_idle(self, key: ZygoteKey, zygote: _Zygote) -> None:
        if self._zygotes.get(key) is zygote and not zygote.running:
            self._end(key)

    def _make_room(self) -> None:
        idle = [key for key, zygote in self._zygotes.items() if not zygote.running]
        for key in idle[: max(len(self._zygotes) - MAX_ZYGOTES + 1, 0)]:
            self._end(key)

    def _end(self, key: ZygoteKey) -> None:
        self._close(self._zygotes.pop(key))

    def _close(self, zygote: _Zygote) -> None:
        if zygote.idle_timer is not None:
            zygote.idle_timer.cancel()
        zygote.process.close()
        if not zygote.running:
            zygote.close()

    def _done(self, key: ZygoteKey, zygote: _Zygote) -> None:
        zygote.running -= 1
        if self._zygotes.get(key) is zygote:
            self._touch(key, zygote)
            self._refill(key, zygote)
        elif not zygote.running:
            zygote.close()

    def _refill(self, key: ZygoteKey, zygote: _Zygote) -> None:
        if self._zygotes.get(key) is not zygote or not zygote.process.alive:
            return
        wanted = SPARES_PER_ZYGOTE if len(self._zygotes) <= MAX_SPARES // SPARES_PER_ZYGOTE else 1
        for other in self._zygotes.values():
            if other is not zygote and self.spares + wanted > MAX_SPARES:
                other.process.drop_spares()
        while zygote.process.spares < wanted and self.spares < MAX_SPARES:
            zygote.process.ask(_prepared(zygote.covers))


Covers = Callable[[], Sequence[Cover]]
"""Returns what is protected now."""


class ZygoteLauncher:
    """The `Launcher` of one policy; it counts as a session of the pool until it is closed."""

    def __init__(self, pool: Pool, key: ZygoteKey, covers: Covers = tuple) -> None:
        self._pool = pool
        self._mounts = RootMounts(key.plan.roots if key.namespaces else ())
        self._first_key = key
        self._covers: Covers = covers if key.namespaces else tuple
        pool.open(self._key(), self._covers())

    async def ready(self) -> int:
        """Wait for the sandbox. Returns the version of Landlock in use, 0 for none. Raises `LaunchError` if this
        machine cannot build it."""
        return await self._pool.ready(self._key())

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> ConfinedChild:
        key = self._key()
        self._pool.wake(key)
        return await self._pool.launch(key, self._covers(), argv, env, cwd, stdio, limits)

    async def close(self) -> None:
        await self._pool.close()

    def _key(self) -> ZygoteKey:
        return msgspec.structs.replace(self._first_key, mounts=self._mounts.current())


class _Gone(LaunchError):
    """The zygote had ended before the command reached it."""


def _prepared(covers: Sequence[Cover]) -> list[tuple[str, bytes, bytes]]:
    """Return what an idle init covers in advance: all but placeholders, which come and go with the commands."""
    return wire_covers(cover for cover in covers if cover.kind != "empty")


def _settings(key: ZygoteKey, placeholders: Placeholders) -> Message:
    """Build the first message to a zygote."""
    filters = build_filters(inet=key.namespaces or key.plan.network)
    return {
        "namespaces": key.namespaces,
        "network": key.plan.network,
        "way_out": wire_way_out(key.way_out),
        "roots": [os.fsencode(root.path) for root in key.plan.roots],
        "cover_sockets": True,
        "sockets": [os.fsencode(path) for path in well_known_sockets()],
        "pid_max": key.namespaces and kernel_version() >= (6, 14),
        "filter": filters.base,
        "final_filter": filters.final if key.namespaces else filters.single_for_open_disk,
        "final_filter_without_sockets": filters.final_without_sockets,
        "own_process": OWN_PROCESS.to_bytes(4, sys.byteorder),
        "records": placeholders.records,
        "own_proc": False,
        "hidden": (),
        "lingers": False,
        "user": None,
        "capabilities": (),
        "oom_score_adj": None,
    }


_POOLS: dict[asyncio.AbstractEventLoop, Pool] = {}


def pool_of_this_loop() -> Pool:
    """Return the running event loop's only pool. It ends with its last session."""
    loop = asyncio.get_running_loop()
    if loop not in _POOLS:
        _POOLS[loop] = Pool()
    return _POOLS[loop]
