"""A real npm with a cache that it cannot write, and with one of the project's own."""

import io
import json
import shutil
import tarfile

import pytest

from tests.cli.command import Done, Place
from tests.sandbox.scene import temporary_folder

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")

INSTALL = "npm install --no-audit --no-fund ./dep.tgz"
CACHES = ("-c", "sandbox_workspace_write.caches=true")


@pytest.fixture
def project(place: Place) -> Place:
    """It needs a package from a file; the user's cache is outside of what may be written."""
    place.home.mkdir(parents=True)
    (place.cwd / "package.json").write_text('{"name": "p", "version": "1.0.0"}')
    data = b'{"name": "dep", "version": "1.0.0"}'
    with tarfile.open(place.cwd / "dep.tgz", "w:gz") as archive:
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return place


def run(place: Place, *arguments: str) -> Done:
    with temporary_folder() as home:  # below no root
        return place.run(*arguments, env={"HOME": str(home), "npm_config_update_notifier": "false"})


@pytest.mark.parametrize("tool", ["exec_command", "shell_command", "execute_bash"])
def test_n014_the_answer_names_the_cache_and_the_remedy(project: Place, tool: str) -> None:
    more = {"yield_time_ms": 30_000} if tool == "exec_command" else {}
    more |= {"timeout_ms": 30_000} if tool == "shell_command" else {}
    arguments = {"cmd" if tool == "exec_command" else "command": INSTALL, **more}
    done = run(project, "call", "--profile", "all", tool, json.dumps(arguments))
    assert ".npm is a cache that commands in the sandbox cannot write. Set npm_config_cache to a folder" in done.out
    done = run(project, "call", "--profile", "all", *CACHES, tool, json.dumps(arguments))
    assert "added 1 package" in done.out and "note:" not in done.out
    assert [path.name for path in (project.home / "caches").glob("*/npm/*") if path.is_dir()]


def test_n014_the_command_says_it_too(project: Place) -> None:
    done = run(project, "sandbox", "--", *INSTALL.split())
    assert done.code != 0 and "ferrule: " in done.err and "Set npm_config_cache to a folder" in done.err
    done = run(project, "sandbox", *CACHES, "--", *INSTALL.split())
    assert done.code == 0 and "added 1 package" in done.out
