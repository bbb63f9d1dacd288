"""Protect what a session's commands and patches may not change, while others work in the same folders, and report what
commands left behind that git would run. Nothing on disk is changed: a write is prevented, or reported."""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ferrule.execpolicy import visible
from ferrule.git.programs import Examination, Program, examine
from ferrule.process.launcher import LaunchError
from ferrule.sandbox.boundary import WRITABLE, Boundary, boundary_of
from ferrule.sandbox.linux.held import HeldPaths
from ferrule.sandbox.ownership import OwnershipRecord
from ferrule.sandbox.plan import PROTECTED_NAMES, ConfinementPlan, is_within
from ferrule.sandbox.repositories import STAMP_LAG_NS, Repositories, Repository, Span

MAX_EXAMINED = 200
"""Repositories of ours that are examined after a command; the user is told if there are more."""
MAX_REPORTED = 20
"""Settings or paths named in one report; the rest are counted."""
LONGEST_VALUE = 200
"""Characters shown of a setting's value."""
QUICK_SECONDS = 0.001
"""A look that takes no longer runs in the event loop: handing it to a thread would cost as much."""

EXAMINING_SECONDS = 2.0
"""For examining all of these repositories after one command, which waits; most take less than a millisecond each."""

Report = Callable[[str], None]


class Protection:
    """The protection of one session, on one event loop. `report` receives sentences for the user."""

    def __init__(self, plan: ConfinementPlan, home: Path, report: Report | None = None) -> None:
        self.plan = plan
        self.home = home
        self._report = report or (lambda text: None)
        self.boundary = Boundary(plan)
        """The boundary as of the last look."""
        self._record = OwnershipRecord(home / "sandbox" / "own-repositories")
        self._repositories = Repositories(plan, self._record)
        self._examined: dict[str, Examination] = {}
        self._told: set[Program] = set()
        self._warned: set[str] = set()
        self._warnings: list[str] = []
        self._held: HeldPaths | None = None
        self._running = 0
        self._busy_since = self._busy_clock = 0
        """When the first of the running commands began, by the wall clock and by one that nobody sets; in ns."""
        self._unseen: Span | None = None
        """The time in which commands ran that have ended since the last look."""
        self._started = self._finished = False
        self._spent = QUICK_SECONDS
        self._looking = asyncio.Lock()

    async def look(self) -> Boundary:
        """Look at the disk and return the boundary as it is now."""
        async with self._looking:
            await self._do(self._look)
        return self.boundary

    async def began(self) -> Boundary:
        """Return the boundary for a command that starts now; call `ended` afterwards. Raises `LaunchError` if the
        command must not start."""
        async with self._looking:
            await self._do(self._before)
            if self._held is not None and self._held.full:
                raise LaunchError(self._held.full)
            if not self._running:
                self._busy_since, self._busy_clock = time.time_ns(), time.monotonic_ns()
            self._running += 1
        return self.boundary

    async def ended(self) -> tuple[str, ...]:
        """Take note that a command has ended. Returns what it left behind, one sentence each.

        Even if this is cancelled, the command counts as ended, and the next look knows when it ran.
        """
        self._running -= 1
        self._unseen = self._span()
        said: list[str] = []
        try:
            async with self._looking:
                await self._do(lambda: said.extend(self._after()))
        finally:
            self._tell(said)
        await asyncio.sleep(0)  # until the reports are delivered
        return tuple(said)

    async def finish(self) -> None:
        """End the session: report once what was left behind and what was changed, and close everything."""
        async with self._looking:
            said: list[str] = []
            finished, self._finished = self._finished, True
            try:
                if self._started and not finished:
                    await self._do(lambda: said.extend(self._at_the_end()))
            finally:
                self._tell(said)
                await _whole(asyncio.get_running_loop().run_in_executor(None, self._let_go))
        await asyncio.sleep(0)

    async def hold(self) -> None:
        """Watch protected files from now on, because nothing can be made read-only for commands."""
        async with self._looking:
            self._held = HeldPaths()
            await self._do(self._before)

    def _run(self) -> Span | None:
        """Return when commands ran since the last look; None if none did."""
        return self._span() if self._running else self._unseen

    def _span(self) -> Span:
        """Return the time from the first running command's start until now. If the wall clock was set meanwhile, files
        have times from before and after that: the span covers both."""
        now, passed = time.time_ns(), time.monotonic_ns() - self._busy_clock
        return Span(min(self._busy_since, now - passed), max(now, self._busy_since + passed))

    async def _do(self, work: Callable[[], None]) -> None:
        """Do the work to its end, even if the caller is cancelled: nobody else looks meanwhile."""
        started, unseen = time.perf_counter(), self._unseen
        if self._spent < QUICK_SECONDS:
            work()
        else:
            await _whole(asyncio.get_running_loop().run_in_executor(None, work))
        self._spent = time.perf_counter() - started
        if self._unseen is unseen:
            self._unseen = None
        warnings, self._warnings = self._warnings, []
        self._tell(warnings)

    def _tell(self, texts: Iterable[str]) -> None:
        """Report from the event loop itself, so that a reporter that fails does not fail the command."""
        for text in texts:
            asyncio.get_running_loop().call_soon(self._report, text)

    # Blocking, one at a time

    def _look(self) -> None:
        run = self._run()
        if not self._started:
            self._recording(self._record.prune)
        self._recording(lambda: self._repositories.look(run, self._kept()))
        found = self._repositories
        own = [one.path for one in found.own]
        self.boundary = boundary_of(self.plan, found.users, own, found.submodules)
        for sentence in (*found.limits, *([self._record.problem] if self._record.problem else [])):
            self._warn(sentence)
        if not self._started:
            self._started = True
            self._new_programs()  # those of earlier sessions were reported then

    def _recording(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self._warn(f"cannot record which repositories commands make ({error}); later sessions take them for yours")

    def _before(self) -> None:
        idle = self._run() is None
        self._look()
        if self._held is not None:
            if idle:
                self._held.adopt()
            self._held.hold(self._watched())

    def _after(self) -> list[str]:
        self._look()
        changed = self._held.changes(self.boundary.own, self._settled()) if self._held is not None else ()
        said = [CHANGED.format(_joined(map(visible, changed)))] if changed else []
        programs = self._new_programs()
        return said + ([PROGRAMS.format(_joined(map(_shown, programs)))] if programs else [])

    def _at_the_end(self) -> list[str]:
        self._look()
        self._new_programs()
        changed = self._held.all_changes(self._settled()) if self._held is not None else ()
        said = [CHANGED_IN_ALL.format(_joined(map(visible, changed)))] if changed else []
        programs = [program for one in self._examined.values() for program in one.programs]
        return said + ([PROGRAMS_IN_ALL.format(_joined(map(_shown, programs)))] if programs else [])

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None
        self._repositories.close()

    def _settled(self) -> int | None:
        """Return the time, in ns, from which time stamps cannot be trusted: a command that has a file mapped into its
        memory changes it again without a new stamp. None if no command ran since the last look."""
        run = self._run()
        return None if run is None else run.start - STAMP_LAG_NS

    def _new_programs(self) -> list[Program]:
        """Examine the repositories that commands made, again if something changed. Returns what was not reported
        yet."""
        own, settled = self._repositories.own, self._settled()
        if len(own) > MAX_EXAMINED:
            self._warn(f"commands made {len(own)} repositories; only {MAX_EXAMINED} are searched for programs")
        before, self._examined = self._examined, {}
        deadline = time.monotonic() + EXAMINING_SECONDS
        for one in own[:MAX_EXAMINED]:
            known = before.get(one.path)
            if known is None or not known.is_current(settled):
                if time.monotonic() > deadline:
                    self._warn(TOO_LONG)
                else:
                    known = self._examination(one)
            if known is not None:
                self._examined[one.path] = known
        programs = [program for one in self._examined.values() for program in one.programs]
        new = [program for program in dict.fromkeys(programs) if program not in self._told]
        self._told.update(new)
        return new

    def _examination(self, one: Repository) -> Examination:
        kept = self._kept()
        return examine(one.path, lambda git: any(is_within(git, path) for path in kept), bare=one.bare)

    def _kept(self) -> tuple[str, ...]:
        return tuple(cover.path for cover in self.boundary.covers if cover.kind not in WRITABLE)

    def _watched(self) -> Iterable[str]:
        names = (f"{root.path}/{name}" for root in self.plan.roots for name in PROTECTED_NAMES)
        return dict.fromkeys((*self._kept(), *(path for path in names if path not in self.boundary.own)))

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warnings.append(text)


TOO_LONG = (
    f"searching the repositories that commands made for programs takes longer than {EXAMINING_SECONDS:g} seconds; some "
    "are left until after the next command: use no git there before that"
)
PROGRAMS = "A repository that commands made would run programs when git is used there outside of the sandbox: {}."
PROGRAMS_IN_ALL = "Before you use git in the repositories that commands made, look at what it would run there: {}."
CHANGED = "PROTECTED FILES CHANGED while a command ran, and nothing was restored: {}."
CHANGED_IN_ALL = "Protected files are not as they were when the session began, and nothing was restored: {}."


def _shown(program: Program) -> str:
    value = program.value if len(program.value) <= LONGEST_VALUE else f"{program.value[:LONGEST_VALUE]}…"
    said = f"{program.key} = {value}" if value else program.key
    return visible(f"{program.file}: {said}", multiline=False)


def _joined(words: Iterable[str]) -> str:
    listed = list(words)
    more = f"; and {len(listed) - MAX_REPORTED} more" if len(listed) > MAX_REPORTED else ""
    return "; ".join(listed[:MAX_REPORTED]) + more


async def _whole(work: asyncio.Future[None]) -> None:
    """Wait until the work is done, and only then pass a cancellation on."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    work.result()
    if cancelled is not None:
        raise cancelled
