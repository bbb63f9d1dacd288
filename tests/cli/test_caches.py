"""Real tools with a cache that they cannot write, and with one of the project's own."""

import io
import json
import shlex
import tarfile

import pytest

from tests.cli.command import Done, Place
from tests.programs import need
from tests.sandbox.scene import temporary_folder

INSTALL = "npm install --no-audit --no-fund ./dep.tgz"
COMPILE = "ccache cc -c p.c"
CACHES = ("-c", "sandbox_workspace_write.caches=true")


TOOLS = {
    "npm": ("npm_config_cache", INSTALL),
    "uv": ("UV_CACHE_DIR", "uv run --offline --no-project python -c 'print(1)'"),
    "go": ("GOCACHE", "go vet ./p.go"),
    "ccache": ("CCACHE_DIR", COMPILE),
}


@pytest.fixture
def project(place: Place) -> Place:
    """It needs a package from a file; the user's cache is outside of what may be written."""
    place.home.mkdir(parents=True)
    (place.cwd / "p.c").write_text("int main(void) { return 0; }")
    (place.cwd / "p.go").write_text("package main\nfunc main() {}\n")
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
    need("ccache")
    more = {"yield_time_ms": 30_000} if tool == "exec_command" else {}
    more |= {"timeout_ms": 30_000} if tool == "shell_command" else {}
    arguments = {"cmd" if tool == "exec_command" else "command": COMPILE, **more}
    done = run(project, "call", "--profile", "all", tool, json.dumps(arguments))
    assert "ccache is a cache that commands in the sandbox cannot write. Set CCACHE_DIR to a folder" in done.out
    done = run(project, "call", "--profile", "all", *CACHES, tool, json.dumps(arguments))
    assert done.code == 0 and "note:" not in done.out
    assert [path.name for path in (project.home / "caches").glob("*/ccache/*") if path.is_dir()]


@pytest.mark.parametrize("program", TOOLS)
def test_n014_the_command_says_it_too(project: Place, program: str) -> None:
    need(program)
    variable, command = TOOLS[program]
    done = run(project, "sandbox", "--", *shlex.split(command))
    assert done.code != 0 and "ferrule: " in done.err and f"Set {variable} to a folder" in done.err
    done = run(project, "sandbox", *CACHES, "--", *shlex.split(command))
    assert done.code == 0 and "ferrule: " not in done.err
