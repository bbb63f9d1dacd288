"""macOS: the same policies as a Seatbelt profile for `/usr/bin/sandbox-exec`.

The profile language is undocumented; sources: sandbox-exec(1), sandbox(7) and Apple's own profiles in
`/System/Library/Sandbox/Profiles`. Tested only as text: it has never been run on a Mac.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ferrule.process.launcher import Child, LaunchError, Limits, Stdio
from ferrule.process.plain import PlainLauncher
from ferrule.sandbox.boundary import WRITABLE, Boundary
from ferrule.sandbox.plan import RESERVED_NAMES, folders_between

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_ALWAYS = """\
(version 1)
(deny default)
(allow file-read*)
(allow process-exec process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo") (global-name "com.apple.trustd.agent"))
(allow ipc-posix-sem ipc-posix-shm)
(allow pseudo-tty)
(allow file-ioctl file-read* file-write* (regex #"^/dev/(ptmx|tty|ttys[0-9]+|null|zero|random|urandom|fd/[0-9]+)$"))
"""
_LOOPBACK = """\
(allow network-bind network-inbound (local ip "localhost:*"))
(allow network-outbound (remote ip "localhost:*"))
"""
_NETWORK = "(allow network*)\n(allow system-socket)\n"


def seatbelt_profile(boundary: Boundary) -> str:
    """Write the profile. Later rules win, so protected paths come after the roots that contain them."""
    return _ALWAYS + "".join(_rules(boundary))


def _rules(boundary: Boundary) -> Iterator[str]:
    plan, kept = boundary.plan, [cover.path for cover in boundary.covers if cover.kind not in WRITABLE]
    for root in plan.roots:
        yield f"(allow file-write* (subpath {_quoted(root.path)}))\n"
    for root in plan.roots:
        yield _deny_moving(root.path)
        # Even if it does not exist: no placeholder is needed.
        kept += [f"{root.path}/{name}" for name in RESERVED_NAMES]
    for path in dict.fromkeys(kept):
        yield f"(deny file-write* (literal {_quoted(path)}) (subpath {_quoted(path)}))\n"
        for root in plan.roots:
            # A folder on the way must not be moved, or the rule would no longer apply.
            yield from (_deny_moving(folder) for folder in folders_between(root.path, path))
    for path in plan.opened:
        yield f"(allow file-write* (subpath {_quoted(path)}))\n"
        yield _deny_moving(path)
    yield _NETWORK if plan.network else _LOOPBACK


def _deny_moving(folder: str) -> str:
    return f"(deny file-write-unlink (literal {_quoted(folder)}))\n"


def _quoted(path: str) -> str:
    if "\n" in path or "\0" in path:
        raise LaunchError(f"a path with a line break cannot be confined: {path!r}")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class SeatbeltLauncher:
    """A `Launcher` that runs commands through `sandbox-exec`."""

    def __init__(self, boundary: Callable[[], Boundary]) -> None:
        if not Path(SANDBOX_EXEC).exists():
            raise LaunchError(f"{SANDBOX_EXEC} is missing")
        self._boundary = boundary
        self._plain = PlainLauncher()

    async def launch(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
    ) -> Child:
        profile = seatbelt_profile(self._boundary())
        return await self._plain.launch([SANDBOX_EXEC, "-p", profile, "--", *argv], env, cwd, stdio, limits)

    async def close(self) -> None:
        """Do nothing: nothing is open."""
