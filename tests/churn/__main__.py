"""Eight sessions run commands for some minutes while other programs churn: no call lost, nothing changed."""

import argparse
import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from ferrule.process.launcher import LaunchError
from ferrule.process.run import run
from ferrule.sandbox.plan import ConfinementPlan, Level, Root
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox
from tests.churn.churner import GIT

SESSIONS, CHURNERS = 8, 3
WRITTEN = ".git/config"
"""Of the fixed project: commands try to write it. The third level does not stop them, and reports each time."""
COMMAND_SECONDS = 60.0
"""No command here takes a second; one that takes this long hangs."""


async def main(minutes: float, seed: int, level: Level) -> int:
    """Returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="ferrule-churn-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        base = Path(name)
        fixed, home = base / "ws/fixed", base / "home"
        home.mkdir(mode=0o700)
        fixed.mkdir(parents=True)
        make_fixed(fixed)
        before = every_file(fixed)
        churners = [start_churner(base / f"ws/churn{number}", seed + number) for number in range(CHURNERS)]
        until = time.monotonic() + 60 * minutes
        counts: Counter[str] = Counter()
        try:
            await asyncio.gather(*(session(base, number, level, until, counts) for number in range(SESSIONS)))
        finally:
            ended = [churner for churner in churners if churner.poll() is not None]
            for churner in churners:
                os.killpg(churner.pid, signal.SIGKILL)  # also a git that it waits for
                churner.wait()
        after = every_file(fixed)
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    if level is Level.LANDLOCK:
        changed = [path for path in changed if path != str(fixed / WRITTEN)]
    print(f"level {level.name.lower()}, {minutes:g} minutes: {dict(counts)}, {len(changed)} files changed", flush=True)
    for problem in (*changed, *(f"a churner ended: {churner.args!r}" for churner in ended)):
        print(f"FAILED: {problem}", file=sys.stderr)
    return 1 if changed or ended or counts["lost"] else 0


def make_fixed(fixed: Path) -> None:
    """Repositories that nobody touches: a project with a hook, settings, a worktree, a nested and a bare one."""
    for words in (
        ("init", "-q", "-b", "main", "."),
        ("commit", "-q", "--allow-empty", "-m", "x"),
        ("remote", "add", "origin", "https://example.org/x"),
        ("config", "core.hooksPath", ".husky"),
        ("worktree", "add", "-q", "wt"),
        ("clone", "-q", ".", "nested"),
        ("clone", "-q", "--bare", ".", "bare.git"),
    ):
        subprocess.run([*GIT, *words], cwd=fixed, check=True, capture_output=True)
    hook = fixed / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)


def start_churner(folder: Path, seed: int) -> "subprocess.Popen[bytes]":
    folder.mkdir()
    program = Path(__file__).with_name("churner.py")
    return subprocess.Popen([sys.executable, str(program), str(folder), str(seed)], start_new_session=True)


def every_file(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


async def session(base: Path, number: int, level: Level, until: float, counts: Counter[str]) -> None:
    """Commands of one session after another; each says what it should, or is counted as lost."""
    plan = ConfinementPlan((Root("/tmp", reserve=False, scan=False), Root(str(base / "ws"))))
    env = {**os.environ, "GIT_CONFIG_COUNT": "2"}
    for index, key in enumerate(("user.name", "user.email")):
        env |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": "x"}
    own = f"own{number}"
    commands = [
        ("echo hi", "hi\n"),
        ("git -C fixed remote", "origin\n"),
        ("git -C fixed/nested status --porcelain", ""),
        (f"rm -rf {own}; git init -q {own} && git -C {own} commit -q --allow-empty -m x && echo made", "made\n"),
        (f"cd {own} && git worktree add -q wt && git worktree remove wt && echo done", "done\n"),
        (f"(echo '# x' >> fixed/{WRITTEN}) 2>/dev/null || echo kept", "" if level is Level.LANDLOCK else "kept\n"),
    ]
    while time.monotonic() < until:
        sandbox = Sandbox(Protection(plan, base / "home"), levels=[level])
        try:
            for line, expected in commands * 3:
                await one(sandbox, line, expected, env, str(base / "ws"), counts)
        finally:
            await sandbox.close()
        counts["sessions"] += 1


async def one(sandbox: Sandbox, line: str, expected: str, env: dict[str, str], cwd: str, counts: Counter[str]) -> None:
    counts["calls"] += 1
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            done = await run(sandbox, ["/bin/bash", "-c", line], env=env, cwd=cwd)
    except (LaunchError, TimeoutError) as error:
        counts["lost"] += 1
        print(f"LOST: {line}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return
    said = done.output.text()
    if WRITTEN in line and not expected:
        counts["writes reported"] += 1
        if done.notice is None or f"{cwd}/fixed/{WRITTEN}" not in done.notice:
            said += "a write that was not reported"
    if said != expected:
        counts["lost"] += 1
        print(f"LOST: {line}: said {said!r}, exit code {done.exit_code}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts/churn", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--level", type=int, default=1, help="1 namespaces, 2 bwrap, 3 Landlock, which reports")
    options = parser.parse_args()
    sys.exit(asyncio.run(main(options.minutes, options.seed, Level(options.level))))
