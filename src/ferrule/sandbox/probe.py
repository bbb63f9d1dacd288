"""What this machine can enforce: found out by doing it in a throw-away child, never by reading kernel settings."""

import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from ferrule.lookup import NOWHERE, Places
from ferrule.process.launcher import Launcher, LaunchError, Limits, Pipes
from ferrule.sandbox.boundary import Boundary, Cover, boundary_of
from ferrule.sandbox.plan import ConfinementPlan, Level

PROBE_SECONDS = 10.0
"""For a command that takes milliseconds, on the slowest machine."""
_TRIED = 7
# Exit code 7 says that the command ran; the file says whether it was confined.
_SCRIPT = f'(echo escaped > "$0") 2> /dev/null; exit {_TRIED}'

TITLES: Final[Mapping[Level, str]] = {
    Level.NAMESPACES: "namespaces, Landlock and a system call filter",
    Level.BWRAP: "bwrap and a system call filter",
    Level.LANDLOCK: "Landlock and a system call filter",
    Level.SEATBELT: "Seatbelt",
    Level.NONE: "nothing",
}
HOLES: Final[Mapping[Level, tuple[str, ...]]] = {
    Level.NAMESPACES: (
        "commands can read every file that you can read",
        "a host program's socket that appears while a command runs can be reached by it",
        "a command can hold a read lock or a flock on a file that it can read",
    ),
    Level.BWRAP: (
        "commands can read every file that you can read",
        "a `.git` that is a symbolic link can be replaced",
        "no sockets with a name can be made",
        "the number of processes is not bounded",
    ),
    Level.LANDLOCK: (
        "commands can read every file that you can read",
        "`.git` and the other protected files can be changed; that is reported loudly, and nothing is put back",
        "modes and times of your files outside of the roots can be changed",
        "other processes can be seen",
        "there is no network, not even between commands",
    ),
    Level.SEATBELT: (
        "commands can read every file that you can read",
        "this level was written without a Mac and tested as text only",
    ),
    Level.NONE: ("everything: commands run with all your rights",),
}


class ClosableLauncher(Launcher, Protocol):
    """A `Launcher` that holds something until it is closed."""

    async def close(self) -> None: ...


Opener = Callable[[], ClosableLauncher]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The best level that works, and for each that does not, why."""

    level: Level
    failures: Mapping[Level, str] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """For `doctor`: the level, what it does not stop, why better ones do not work."""
        shown = [f"Sandbox: {TITLES[self.level]}", *(f"  not stopped: {hole}" for hole in HOLES[self.level])]
        return shown + [f"  not available: {TITLES[level]}: {why}" for level, why in self.failures.items()]


async def probe(home: Path, places: Places = NOWHERE) -> ProbeResult:
    """Try every level of this machine, best first, until one holds. `home` is Ferrule's own folder; `places` are where
    commands can write."""
    failures: dict[Level, str] = {}
    for level, opener in openers(ConfinementPlan(places=places), home / "sandbox").items():
        why = await try_level(opener, home)
        if why is None:
            return ProbeResult(level, failures)
        failures[level] = why
    return ProbeResult(Level.NONE, failures)


def openers(
    plan: ConfinementPlan,
    state_dir: Path,
    boundary: Callable[[], Boundary] | None = None,
    interpreter: tuple[str, ...] = (),
) -> dict[Level, Opener]:
    """How each level that this system could have is opened, best first. Opening raises `LaunchError`.

    `boundary` says, before each command, what is protected now.
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
        key = ZygoteKey(plan, state_dir, namespaces, interpreter)
        return ZygoteLauncher(pool_of_this_loop(), key, covers)

    return {
        Level.NAMESPACES: lambda: zygote(namespaces=True),
        Level.BWRAP: lambda: BwrapLauncher(plan, state_dir, covers),
        Level.LANDLOCK: lambda: zygote(namespaces=False),
    }


async def try_level(opener: Opener, home: Path) -> str | None:
    """None if this level holds; else why it does not, in one sentence."""
    launcher: ClosableLauncher | None = None
    try:
        launcher = opener()
        await check(launcher, home)
    except LaunchError as error:
        return str(error)
    finally:
        if launcher is not None:
            await launcher.close()
    return None


async def check(launcher: Launcher, home: Path) -> None:
    """Raises `LaunchError` unless a command runs and cannot write into `home`, which is Ferrule's own folder."""
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
    """What is in a pipe now; closes it."""
    os.set_blocking(fd, False)
    with os.fdopen(fd, "rb") as pipe:
        return (pipe.read(1000) or b"").decode("utf-8", "replace").strip()
