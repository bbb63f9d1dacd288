"""Levels: a test names the one that it needs. Where a machine does not have it the test is skipped and counted, unless
`FERRULE_REQUIRE_LEVEL` is at least that level's number: then it fails."""

import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from ferrule.sandbox.plan import ConfinementPlan, Level, Root
from ferrule.sandbox.probe import openers, try_level
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox
from tests.sandbox.projects import git
from tests.sandbox.scene import Scene, temporary_folder

SKIPPED: Counter[str] = Counter()
USERS = [os.getuid()] if os.getuid() else [0, 1001]


_FOUND: dict[Level, str | None] = {}


async def require(level: Level) -> None:
    if level not in _FOUND:
        with temporary_folder() as folder:
            _FOUND[level] = await try_level(openers(ConfinementPlan(), folder / "state")[level], folder)
    if _FOUND[level] is None:
        return
    text = f"sandbox level {level.value} ({level.name.lower()}) is missing: {_FOUND[level]}"
    if int(os.environ.get("FERRULE_REQUIRE_LEVEL", "0")) >= level.value:
        pytest.fail(text)
    SKIPPED[level.name.lower()] += 1
    pytest.skip(text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for level, count in SKIPPED.items():
        terminalreporter.write_line(f"sandbox tests skipped for want of level {level}: {count}")


@pytest.fixture
async def namespaces() -> None:
    await require(Level.NAMESPACES)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that is below no root: pytest's own folders lie in `/tmp`, which is one."""
    with temporary_folder() as folder:
        yield folder


@pytest.fixture
def workspace(outside: Path) -> Path:
    folder = outside / "ws"
    folder.mkdir()
    return folder


@pytest.fixture
def home(outside: Path) -> Path:
    """Ferrule's own folder."""
    folder = outside / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def reports() -> list[str]:
    """What the user is told."""
    return []


OpenSandbox = Callable[..., Awaitable[Sandbox]]
OpenAt = Callable[[Level], Awaitable[Sandbox]]


@pytest.fixture
async def open_sandbox(namespaces: None, home: Path, workspace: Path, reports: list[str]) -> AsyncIterator[OpenSandbox]:
    """Opens a sandbox for the workspace and `/tmp`, or for another plan; closed at the end."""
    opened: list[Sandbox] = []

    async def open_one(plan: ConfinementPlan | None = None, *, level: Level = Level.NAMESPACES) -> Sandbox:
        plan = plan or ConfinementPlan((Root("/tmp", reserve=False, scan=False), Root(str(workspace))))
        sandbox = Sandbox(Protection(plan, home, reports.append), levels=[level])
        opened.append(sandbox)
        await sandbox.level()
        return sandbox

    yield open_one
    for sandbox in opened:
        await sandbox.close()


@pytest.fixture
def open_at(open_sandbox: OpenSandbox, workspace: Path) -> OpenAt:
    """Opens a sandbox for the workspace alone, at a level that the test needs."""

    async def open_level(level: Level) -> Sandbox:
        await require(level)
        return await open_sandbox(ConfinementPlan((Root(str(workspace)),)), level=level)

    return open_level


@pytest.fixture
def project(workspace: Path) -> Path:
    """A repository as people have them: a remote, odd settings of their tools, a hook."""
    git(workspace, "init", "-q", "-b", "main", ".")
    git(workspace, "commit", "-q", "--allow-empty", "-m", "first")
    git(workspace, "remote", "add", "origin", "https://example.org/x.git")
    git(workspace, "config", "pull.rebase", "true")
    git(workspace, "config", "core.hooksPath", ".husky")
    git(workspace, "config", "branch.main.vscode-merge-base", "origin/main")
    hook = workspace / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    return workspace


@pytest.fixture(params=USERS, ids=lambda user: "root" if user == 0 else "user")
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with Scene(request.param) as scene:
        yield scene
