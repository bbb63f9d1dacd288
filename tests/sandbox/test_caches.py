"""Caches of build tools: a folder of the project's own, and a word where the user's is closed."""

import os
from pathlib import Path

import pytest

from ferrule.lookup import is_exposed
from ferrule.protocol.permissions import ReadOnly, WorkspaceWrite
from ferrule.protocol.settings import Settings
from ferrule.sandbox.boundary import boundary_of
from ferrule.sandbox.caches import VARIABLES, cache_hint, project_caches
from ferrule.sandbox.plan import Level
from ferrule.sandbox.policy import command_places, plan_confinement
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox
from ferrule.session.caches import with_caches
from tests.sandbox.conftest import require
from tests.sandbox.running import run

ENV = {"HOME": "/home/me"}


@pytest.mark.parametrize(
    ("line", "folder", "variable"),
    [
        (
            "error: Failed to initialize cache at `/home/me/.cache/uv`: Read-only file system (os error 30)",
            "/home/me/.cache/uv", "UV_CACHE_DIR",
        ),
        (
            "npm error rofs EROFS: read-only file system, mkdtemp '/home/me/.npm/_cacache/tmp/x'",
            "/home/me/.npm", "npm_config_cache",
        ),
        (
            "npm error enoent ENOENT: no such file or directory, mkdir '/home/me/.npm'",
            "/home/me/.npm",
            "npm_config_cache",
        ),
        ("open /home/me/.cache/go-build/ab/c: read-only file system", "/home/me/.cache/go-build", "GOCACHE"),
        ("go: mkdir /home/me/go/pkg/mod: permission denied", "/home/me/go/pkg/mod", "GOMODCACHE"),
        (
            "ccache: error: failed to create /home/me/.cache/ccache/tmp: Permission denied",
            "/home/me/.cache/ccache", "CCACHE_DIR",
        ),
        (
            "PermissionError: [Errno 13] Permission denied: '/home/me/.cache/pip/http'",
            "/home/me/.cache/pip", "PIP_CACHE_DIR",
        ),
        ("failed to open: /home/me/.cargo/registry/x (Read-only file system)", "/home/me/.cargo", "CARGO_HOME"),
        ("OSError: [Errno 30] Read-only file system: '/home/me/.cache/tool/x'", "/home/me/.cache", "XDG_CACHE_HOME"),
    ],
)  # fmt: skip
def test_n014_a_closed_cache_is_named_with_its_remedy(line: str, folder: str, variable: str) -> None:
    hint = cache_hint(f"begun\n{line}\nmore\n", ENV)
    assert hint is not None and f"{folder} is a cache" in hint and f"Set {variable} to a folder" in hint
    assert ("caches = true" in hint) == (variable in VARIABLES)


def test_n014_a_cache_that_the_user_has_moved() -> None:
    hint = cache_hint("EROFS: /srv/uv/x", {**ENV, "UV_CACHE_DIR": "/srv/uv/"})
    assert hint is not None and hint.startswith("note: /srv/uv is a cache")


@pytest.mark.parametrize(
    "output",
    ["", "Read-only file system: '/etc/x'", "/home/me/.cache/uv is fine", "/home/me/.npmrc: permission denied",
     "cp: '/home/me/.cached/x': Permission denied"],
)  # fmt: skip
def test_n014_other_failures_get_no_hint(output: str) -> None:
    assert cache_hint(output, ENV) is None


def settings(cwd: Path, home: Path, **fields: object) -> Settings:
    return Settings(cwd=str(cwd), home=str(home), **fields)  # type: ignore[arg-type]


def test_n014_one_folder_a_project(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("a/p", "b/p", "a/p/.git", "a/p/sub"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    policies = [with_caches(settings(tmp_path / name, home, caches=True)) for name in ("a/p", "b/p", "a/p/sub")]
    roots = [policy.writable_roots for policy, _ in policies if isinstance(policy, WorkspaceWrite)]
    assert roots[0] == roots[2] != roots[1]
    assert roots[0][0] == project_caches(str(home), str(tmp_path / "a/p"))
    assert set(policies[0][1]) == set(VARIABLES) and policies[0][1]["UV_CACHE_DIR"] == f"{roots[0][0]}/uv"
    assert with_caches(settings(tmp_path, home)) == (WorkspaceWrite(), {})
    assert with_caches(settings(tmp_path, home, caches=True, sandbox_policy=ReadOnly())) == (ReadOnly(), {})


def opened_plan(workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[WorkspaceWrite, str]:
    monkeypatch.setenv("TMPDIR", str(home.parent))
    policy, _ = with_caches(settings(workspace, home, caches=True))
    assert isinstance(policy, WorkspaceWrite)
    return policy, policy.writable_roots[0]


@pytest.mark.parametrize("level", [Level.NAMESPACES, Level.BWRAP])
async def test_n014_only_this_folder_of_a_closed_home_is_open(
    workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    """Where Ferrule's home lies in a root it is read-only, but for the caches of this project."""
    await require(level)
    policy, folder = opened_plan(workspace, home, monkeypatch)
    other = Path(project_caches(str(home), "/other"))
    other.mkdir()
    sandbox = Sandbox(Protection(plan_confinement(policy, str(workspace), str(home)), home), levels=[level])
    line = f"""
    echo x > {folder}/fine && mkdir {folder}/.git && echo x > {folder}/.git/config && echo written
    echo x > {other}/x; echo x > {home}/config.toml; mkdir {home}/caches/new; mv {folder} {folder}-2
    rm -r {home}/caches
    """
    try:
        outcome = await run(sandbox, line, str(workspace))
    finally:
        await sandbox.close()
    assert outcome.output.startswith("written\n"), outcome.output
    assert sorted(path.name for path in home.iterdir()) == ["caches", "sandbox"]
    assert sorted((home / "caches").iterdir()) == sorted([Path(folder), other]) and not list(other.iterdir())


async def test_n014_landlock_alone_opens_the_folder_beside_the_home(workspace: Path, home: Path) -> None:
    await require(Level.LANDLOCK)
    policy, _ = with_caches(settings(workspace, home, caches=True))
    assert isinstance(policy, WorkspaceWrite)
    folder = policy.writable_roots[0]
    plan = plan_confinement(policy, str(workspace), str(home))
    sandbox = Sandbox(Protection(plan, home), levels=[Level.LANDLOCK])
    try:
        line = f"echo x > {folder}/fine && echo written; echo x > {home}/caches/x; echo x > {home}/x"
        outcome = await run(sandbox, line, str(workspace))
    finally:
        await sandbox.close()
    assert outcome.output.startswith("written\n") and not (home / "x").exists() and not (home / "caches/x").exists()


def test_n014_patches_may_write_there_and_nowhere_else_of_the_home(
    workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, folder = opened_plan(workspace, home, monkeypatch)
    boundary = boundary_of(plan_confinement(policy, str(workspace), str(home)))
    assert boundary.refusal(f"{folder}/uv/x") is None
    for path in (home, home / "config.toml", home / "caches", Path(f"{folder}x/y"), home / "rules/default.rules"):
        assert boundary.refusal(str(path)) is not None


def test_n014_nothing_there_is_ever_run(workspace: Path, home: Path) -> None:
    """Whatever the setting is now: a session before may have written it."""
    program = home / "caches/any/uv/bin/git"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    for policy in (WorkspaceWrite(), ReadOnly()):
        assert is_exposed(str(program), command_places(policy, str(workspace), str(home)))
        assert is_exposed(
            str(program), command_places(policy, str(home.parent), str(home), {"TMPDIR": str(home.parent)})
        )
    assert not is_exposed(os.path.realpath("/bin/sh"), command_places(WorkspaceWrite(), str(workspace), str(home)))
