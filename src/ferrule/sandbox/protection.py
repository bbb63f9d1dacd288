"""What a session's commands and patches may not change, kept true while others work in the same folders, and what
commands left behind that git would run. Nothing is changed: it is prevented, or told."""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ferrule.execpolicy import visible
from ferrule.git.programs import Examination, Program, examine
from ferrule.process.launcher import LaunchError
from ferrule.sandbox.boundary import Boundary, boundary_of
from ferrule.sandbox.linux.held import HeldPaths
from ferrule.sandbox.ownership import OwnershipRecord
from ferrule.sandbox.plan import PROTECTED_NAMES, ConfinementPlan, is_within
from ferrule.sandbox.repositories import Repositories, Repository, Span

MAX_EXAMINED = 200
"""Repositories of ours whose settings are looked at after a command; more are told of as a bound that was met."""
MAX_TOLD = 20
"""Settings or paths that one report names; the others are counted."""
LONGEST_VALUE = 200
"""Characters of a setting's value that are shown."""
QUICK_SECONDS = 0.001
"""A look that takes no longer happens in the event loop: handing it to a thread would cost as much."""

Report = Callable[[str], None]


class Protection:
    """One a session, for one event loop. `report` hears of what the user should know, in sentences."""

    def __init__(self, plan: ConfinementPlan, home: Path, report: Report | None = None) -> None:
        self.plan = plan
        self.home = home
        self.report = report or (lambda text: None)
        self.boundary = Boundary(plan)
        """As of the last look."""
        self._record = OwnershipRecord(home / "sandbox" / "own-repositories")
        self._repositories = Repositories(plan, self._record)
        self._examined: dict[str, Examination] = {}
        self._told: set[Program] = set()
        self._warned: set[str] = set()
        self._warnings: list[str] = []
        self._held: HeldPaths | None = None
        self._running = 0
        self._busy_since = 0
        self._started = self._finished = False
        self._spent = QUICK_SECONDS
        self._looking = asyncio.Lock()

    async def look(self) -> Boundary:
        """The boundary as it is now."""
        async with self._looking:
            await self._do(lambda: self._look(self._run()))
        return self.boundary

    async def began(self) -> Boundary:
        """The boundary for a command that starts now; `ended` follows. Raises `LaunchError` where it must not start."""
        async with self._looking:
            await self._do(lambda: self._before(self._run()))
            if self._held is not None and self._held.full:
                raise LaunchError(self._held.full)
            if not self._running:
                self._busy_since = time.time_ns()
            self._running += 1
        return self.boundary

    async def ended(self) -> tuple[str, ...]:
        """A command has ended; what it left behind, a sentence each."""
        now = time.time_ns()
        async with self._looking:
            run = Span(self._busy_since, now)
            self._running -= 1
            said: list[str] = []
            await self._do(lambda: said.extend(self._after(run)))
        for text in said:
            self.report(text)
        return tuple(said)

    async def finish(self) -> None:
        """The session ends: report once what is left behind and what was changed. Lets go of what is held."""
        async with self._looking:
            said: list[str] = []
            finished, self._finished = self._finished, True
            if self._started and not finished:
                await self._do(lambda: said.extend(self._at_the_end()))
            if self._held is not None:
                self._held.close()
                self._held = None
            if not finished:
                await asyncio.to_thread(self._repositories.close)
        for text in said:
            self.report(text)

    async def hold(self) -> None:
        """From now on commands run where nothing can be made read-only: watch instead."""
        async with self._looking:
            self._held = HeldPaths()
            await self._do(lambda: self._before(None))

    def _run(self) -> Span | None:
        return Span(self._busy_since, time.time_ns()) if self._running else None

    async def _do(self, work: Callable[[], None]) -> None:
        started = time.perf_counter()
        if self._spent < QUICK_SECONDS:
            work()
        else:
            await asyncio.to_thread(work)
        self._spent = time.perf_counter() - started
        warnings, self._warnings = self._warnings, []
        for text in warnings:
            self.report(text)

    # Blocking, one at a time

    def _look(self, run: Span | None) -> None:
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
            self._new_programs()  # those of earlier sessions were told then

    def _recording(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self._warn(f"cannot record which repositories commands make ({error}); later sessions take them for yours")

    def _before(self, run: Span | None) -> None:
        self._look(run)
        if self._held is not None:
            if run is None:
                self._held.adopt()
            self._held.hold(self._watched())

    def _after(self, run: Span) -> list[str]:
        self._look(run)
        changed = self._held.changes(self.boundary.own) if self._held is not None else ()
        said = [CHANGED.format(_listed(map(visible, changed)))] if changed else []
        programs = self._new_programs()
        return said + ([PROGRAMS.format(_listed(map(_shown, programs)))] if programs else [])

    def _at_the_end(self) -> list[str]:
        self._look(self._run())
        self._new_programs()
        changed = self._held.all_changes() if self._held is not None else ()
        said = [CHANGED_IN_ALL.format(_listed(map(visible, changed)))] if changed else []
        programs = [program for one in self._examined.values() for program in one.programs]
        return said + ([PROGRAMS_IN_ALL.format(_listed(map(_shown, programs)))] if programs else [])

    def _new_programs(self) -> list[Program]:
        """Look at the repositories that commands made, again where something changed; what was not told yet."""
        own = self._repositories.own
        if len(own) > MAX_EXAMINED:
            self._warn(f"commands made {len(own)} repositories; only {MAX_EXAMINED} are searched for programs")
        self._examined = {one.path: self._examination(one) for one in own[:MAX_EXAMINED]}
        programs = [program for one in self._examined.values() for program in one.programs]
        new = [program for program in dict.fromkeys(programs) if program not in self._told]
        self._told.update(new)
        return new

    def _examination(self, one: Repository) -> Examination:
        known = self._examined.get(one.path)
        if known is not None and known.is_current():
            return known
        kept = self._kept()
        return examine(one.path, lambda git: any(is_within(git, path) for path in kept), bare=one.bare)

    def _kept(self) -> tuple[str, ...]:
        return tuple(cover.path for cover in self.boundary.covers if cover.kind != "pin")

    def _watched(self) -> Iterable[str]:
        names = (f"{root.path}/{name}" for root in self.plan.roots for name in PROTECTED_NAMES)
        return dict.fromkeys((*self._kept(), *(path for path in names if path not in self.boundary.own)))

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warnings.append(text)


PROGRAMS = "A repository that commands made would run programs when git is used there outside of the sandbox: {}."
PROGRAMS_IN_ALL = "Before you use git in the repositories that commands made, look at what it would run there: {}."
CHANGED = "PROTECTED FILES CHANGED while a command ran, and nothing was put back: {}."
CHANGED_IN_ALL = "Protected files are not as they were when the session began, and nothing was put back: {}."


def _shown(program: Program) -> str:
    value = program.value if len(program.value) <= LONGEST_VALUE else f"{program.value[:LONGEST_VALUE]}…"
    said = f"{program.key} = {value}" if value else program.key
    return visible(f"{program.file}: {said}", multiline=False)


def _listed(words: Iterable[str]) -> str:
    listed = list(words)
    more = f"; and {len(listed) - MAX_TOLD} more" if len(listed) > MAX_TOLD else ""
    return "; ".join(listed[:MAX_TOLD]) + more
