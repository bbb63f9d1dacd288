"""Find out what this machine can enforce, by trying it in a throw-away child, never by reading kernel settings."""

import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from ferrule.lookup import NOWHERE, Places
from ferrule.process.launcher import Launcher, LaunchError, Limits, Pipes
from ferrule.sandbox.boundary import Boundary, Cover, boundary_of
from ferrule.sandbox.plan import ConfinementPlan, Level
from ferrule.sandbox.way_out import WayOut

PROBE_SECONDS = 10.0
"""Enough for a command that takes milliseconds, on the slowest machine."""
_TRIED = 7
# Exit code 7 shows that the command ran; the file shows whether it was confined.
_SCRIPT = f'(echo escaped > "$0") 2> /dev/null; exit {_TRIED}'

TITLES: Final[Mapping[Level, str]] = {
    Level.CONTAINER: "a container",
    Level.NAMESPACES: "namespaces, Landlock and a system call filter",
    Level.BWRAP: "bwrap and a system call filter",
    Level.LANDLOCK: "Landlock and a system call filter",
    Level.SEATBELT: "Seatbelt",
    Level.NONE: "nothing",
}
NOT_BUILT = "the sandbox could not be built: "
"""The start of a launcher's error; it is left out beside the name of the level."""
WITHOUT_LANDLOCK = "namespaces and a system call filter"
NO_LANDLOCK = "Landlock, a second layer behind the namespaces: the kernel lacks it, or it is not enabled at boot (lsm=)"
HOLES: Final[Mapping[Level, tuple[str, ...]]] = {
    Level.CONTAINER: (
        "a command can reach a host program's socket that appears in the project while the command runs",
        "a fault in the kernel is a way out",
    ),
    Level.NAMESPACES: (
        "commands can read every file that you can read",
        "a command can reach a host program's socket that appears while the command runs",
        "a command can hold a read lock or a flock on a file that it can read",
    ),
    Level.BWRAP: (
        "commands can read every file that you can read",
        "a `.git` that is a symbolic link can be replaced",
        "no named sockets can be made",
        "the number of processes is not bounded",
    ),
    Level.LANDLOCK: (
        "commands can read every file that you can read",
        "`.git` and the other protected files can be changed; that is reported loudly, and nothing is restored",
        "modes and times of your files outside the roots can be changed",
        "other processes are visible",
        "there is no network, not even between commands",
    ),
    Level.SEATBELT: (
        "commands can read every file that you can read",
        "this level was written without a Mac and tested only as text",
    ),
    Level.NONE: ("everything: commands run with all your rights",),
}


class ClosableLauncher(Launcher, Protocol):
    """A `Launcher` that holds something until it is closed."""

    async def close(self) -> None: ...


Opener = Callable[[], ClosableLauncher]


class ProbeResult(msgspec.Struct, frozen=True):
    """The best level that works, and for each that does not, why. `landlock`: whether that is in force as well, where
    the level can do without."""

    level: Level
    failures: Mapping[Level, str] = msgspec.field(default_factory=dict)
    landlock: bool = True

    def lines(self) -> list[str]:
        """Describe for `doctor` the level, what it does not stop, and why better ones do not work."""
        shown = [f"Sandbox: {title(self.level, landlock=self.landlock)}"]
        shown += [f"  not stopped: {hole}" for hole in HOLES[self.level]]
        if not self.landlock:
            shown.append(f"  missing: {NO_LANDLOCK}")
        reasons: dict[str, list[str]] = {}
        for level, why in self.failures.items():
            reasons.setdefault(why.removeprefix(NOT_BUILT), []).append(TITLES[level])
        return shown + [f"  not available: {'; '.join(titles)}: {why}" for why, titles in reasons.items()]


def title(level: Level, *, landlock: bool) -> str:
    """Name what confines commands."""
    return WITHOUT_LANDLOCK if level is Level.NAMESPACES and not landlock else TITLES[level]


@runtime_checkable
class PreparedLauncher(Launcher, Protocol):
    """A launcher whose commands Landlock may confine."""

    async def ready(self) -> int:
        """Wait for the sandbox. Returns the version of Landlock in use, 0 for none. Raises `LaunchError`."""
        ...


async def has_landlock(launcher: Launcher) -> bool:
    """Tell whether Landlock confines this launcher's commands, too. True if the level does not promise that."""
    return not isinstance(launcher, PreparedLauncher) or await launcher.ready() > 0


async def probe(home: Path, places: Places = NOWHERE) -> ProbeResult:
    """Try every level of this machine, best first, until one works. `home` is Ferrule's own folder; `places` are where
    commands can write."""
    failures: dict[Level, str] = {}
    for level, opener in openers(ConfinementPlan(places=places), home / "sandbox").items():
        found = await _tried(opener, home)
        if isinstance(found, bool):
            return ProbeResult(level, failures, found)
        failures[level] = found
    return ProbeResult(Level.NONE, failures)


def openers(
    plan: ConfinementPlan,
    state_dir: Path,
    boundary: Callable[[], Boundary] | None = None,
    interpreter: tuple[str, ...] = (),
    way_out: WayOut | None = None,
) -> dict[Level, Opener]:
    """Return how to open each level that this system could have, best first. Opening raises `LaunchError`.

    `boundary` returns, before each command, what is protected now. `way_out` lets out a part of the network, which only
    the first level can bound.
    """
    now = boundary or (lambda: boundary_of(plan))
    if sys.platform == "darwin":
        from ferrule.sandbox.macos import SeatbeltLauncher

        return {Level.SEATBELT: lambda: SeatbeltLauncher(now)}
    if sys.platform != "linux":
        return {}
    from ferrule.sandbox.linux.bwrap import BwrapLauncher
    from ferrule.sandbox.pool import ZygoteKey, ZygoteLauncher, pool_of_this_loop

    def covers() -> tuple[Cover, ...]:
        return now().covers

    def zygote(namespaces: bool) -> ZygoteLauncher:
        key = ZygoteKey(plan.enforced(), state_dir, namespaces, interpreter, way_out=way_out)
        return ZygoteLauncher(pool_of_this_loop(), key, covers)

    return {
        Level.NAMESPACES: lambda: zygote(namespaces=True),
        Level.BWRAP: lambda: BwrapLauncher(plan, state_dir, covers),
        Level.LANDLOCK: lambda: zygote(namespaces=False),
    }


async def try_level(opener: Opener, home: Path) -> str | None:
    """Return None if this level works; otherwise why not, in one sentence."""
    found = await _tried(opener, home)
    return None if isinstance(found, bool) else found


async def _tried(opener: Opener, home: Path) -> str | bool:
    """Tell whether Landlock confines commands as well; a sentence if the level does not work."""
    launcher: ClosableLauncher | None = None
    try:
        launcher = opener()
        await check(launcher, home)
        return await has_landlock(launcher)
    except LaunchError as error:
        return str(error)
    finally:
        if launcher is not None:
            await launcher.close()


async def check(launcher: Launcher, home: Path) -> None:
    """Raise `LaunchError` unless a command runs and cannot write into `home`, which is Ferrule's own folder."""
    target = home / f"probe-{secrets.token_hex(6)}"
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            argv = ["/bin/sh", "-c", _SCRIPT, str(target)]
            child = await launcher.launch(argv, {"PATH": os.defpath}, "/", Pipes(merge=True), Limits())
            try:
                status = await child.wait()
            finally:
                said = _drain(child.stdout)
    except TimeoutError as error:
        raise LaunchError(f"a confined command did not end in {PROBE_SECONDS:g} seconds") from error
    if target.exists():
        target.unlink()
        raise LaunchError(f"a confined command could write into {home}")
    if status.code != _TRIED:
        raise LaunchError(f"the first confined command failed with code {status.shell_code}: {said}")


def _drain(fd: int) -> str:
    """Read what is in a pipe now, and close it."""
    os.set_blocking(fd, False)
    with os.fdopen(fd, "rb") as pipe:
        return (pipe.read(1000) or b"").decode("utf-8", "replace").strip()
