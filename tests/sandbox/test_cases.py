"""Cases from the field, by their ids, end to end."""

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ferrule.protocol.permissions import ReadOnly, WorkspaceWrite
from ferrule.sandbox.plan import ConfinementPlan, Level, Root
from ferrule.sandbox.sandbox import open_launcher
from tests.patch.tree import snapshot
from tests.sandbox.conftest import OpenSandbox, require
from tests.sandbox.running import run

PYTHON = "/usr/bin/python3"


def git(*words: str, cwd: Path) -> None:
    subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})


async def test_b133_nested_repository_of_the_start(open_sandbox: OpenSandbox, workspace: Path) -> None:
    git("init", "vendor/s", cwd=workspace)
    sandbox = await open_sandbox()
    line = "echo x > vendor/s/.git/hooks/post-checkout; echo x > vendor/s/.git/config; echo x > vendor/s/fine"
    outcome = await run(sandbox, line, str(workspace))
    assert outcome.output.count("Read-only file system") == 2
    assert (workspace / "vendor/s/fine").exists()
    assert not (workspace / "vendor/s/.git/hooks/post-checkout").exists()


async def test_b133_nested_repository_made_by_a_command(
    open_sandbox: OpenSandbox, workspace: Path, reports: list[str]
) -> None:
    hook = "vendor/s/.git/hooks/post-checkout"
    line = f"mkdir -p vendor/s/.git/hooks && echo evil > {hook} && chmod +x {hook}"
    outcome = await run(await open_sandbox(), line, str(workspace))
    assert outcome.status.code == 0
    assert outcome.left is not None and "vendor/s/.git/hooks/post-checkout: hook" in outcome.left
    assert reports == [outcome.left]
    assert os.listdir(workspace / "vendor/s/.git/hooks") == ["post-checkout"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root sees into another user's closed folder")
async def test_b133_a_repository_of_another_user(open_sandbox: OpenSandbox, workspace: Path) -> None:
    """Closed to the command as it is to the sandbox: no reason to refuse every command."""
    theirs = workspace / "theirs"
    theirs.mkdir(mode=0o700)
    (theirs / ".git").symlink_to("elsewhere")
    os.chown(theirs, 65534, 65534)
    assert (await run(await open_sandbox(), "echo fine; ls theirs", str(workspace))).output.startswith("fine\n")


async def test_b133_git_init_in_an_empty_workspace(open_sandbox: OpenSandbox, workspace: Path) -> None:
    outcome = await run(await open_sandbox(), "git init -q && git config core.hooksPath h", str(workspace))
    assert outcome.status.code == 0
    assert outcome.left is not None and f"{workspace}/.git/config: core.hookspath = h" in outcome.left


async def test_b133_a_second_root(open_sandbox: OpenSandbox, workspace: Path, outside: Path) -> None:
    git("init", "second", cwd=outside)
    plan = ConfinementPlan((Root(str(outside / "second")), Root(str(workspace))))
    outcome = await run(await open_sandbox(plan), f"echo x > {outside}/second/.git/config", str(workspace))
    assert "Read-only file system" in outcome.output


async def test_b133_the_parent_repository_is_found(open_sandbox: OpenSandbox, workspace: Path, outside: Path) -> None:
    """The workspace is a folder of a repository that lies above it; an empty placeholder does not hide it."""
    git("init", ".", cwd=outside)
    outcome = await run(await open_sandbox(), "git rev-parse --show-toplevel", str(workspace))
    assert outcome.output == f"{outside}\n"


async def test_b134_a_git_that_is_a_link(open_sandbox: OpenSandbox, workspace: Path) -> None:
    (workspace / "meta").mkdir()
    git("init", "--separate-git-dir", "meta/p.git", "project", cwd=workspace)
    project = workspace / "project"
    (project / ".git").unlink()
    (project / ".git").symlink_to("../meta/p.git")
    sandbox = await open_sandbox(ConfinementPlan((Root(str(workspace)), Root(str(project)))))
    line = "git status --short; rm .git; ln -s .git lnk; echo x > lnk/config; mv ../meta ../m"
    line += "; echo x > ../meta/p.git/config"
    outcome = await run(sandbox, line, str(project))
    assert "not a git repository" not in outcome.output
    assert "cannot remove '.git'" in outcome.output
    assert outcome.output.count("Read-only file system") == 1
    assert "cannot move '../meta'" in outcome.output
    assert (project / ".git").is_symlink()
    assert "x" not in (workspace / "meta/p.git/config").read_text().split()


async def test_b134_a_link_that_changes_between_look_and_write(open_sandbox: OpenSandbox, workspace: Path) -> None:
    """The kernel decides at the time of the write, on the resolved path: there is nothing to race."""
    git("init", ".", cwd=workspace)
    before = (workspace / ".git/config").read_bytes()
    line = """
    mkdir -p ok
    (while :; do echo x > swap/config; done) 2> /dev/null &
    for i in $(seq 200); do ln -sfn ok swap; ln -sfn .git swap; done; ln -sfn ok swap
    until [ -e ok/config ]; do :; done; kill %1
    """
    await run(await open_sandbox(), line, str(workspace))
    assert (workspace / ".git/config").read_bytes() == before
    assert (workspace / "ok/config").exists()


UNIX_SERVER = """
import socket
server = socket.socket(socket.AF_UNIX)
server.bind("s.sock")
server.listen()
socket.socket(socket.AF_UNIX).connect("s.sock")
"""
IPV6_SERVER = """
import socket
server = socket.create_server(("::1", 0), family=socket.AF_INET6)
socket.create_connection(server.getsockname()[:2])
"""
WORKER = """
import multiprocessing
queue = multiprocessing.Queue()
worker = multiprocessing.Process(target=queue.put, args=(1,))
worker.start()
assert queue.get(timeout=5) == 1
worker.join()
"""
TALK_TO_NEIGHBOUR = """
import socket, time
while True:
    try:
        print(socket.create_connection(("127.0.0.1", 5055)).recv(2))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
"""


@pytest.mark.parametrize(
    "program",
    [
        "import asyncio; asyncio.run(asyncio.sleep(0))",
        "import socket; a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'",
        UNIX_SERVER,
        "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())",
        IPV6_SERVER,
        WORKER,
    ],
)
async def test_b136_sockets_inside(open_sandbox: OpenSandbox, workspace: Path, program: str) -> None:
    outcome = await run(await open_sandbox(), [PYTHON, "-c", program], str(workspace))
    assert (outcome.status.code, outcome.output) == (0, "")


async def test_b136_a_server_of_one_command_is_reached_by_the_next(open_sandbox: OpenSandbox, workspace: Path) -> None:
    sandbox = await open_sandbox()
    serve = "import socket; s = socket.create_server(('127.0.0.1', 5055)); open('up', 'w'); s.accept()[0].send(b'hi')"
    served, connected = await asyncio.gather(
        run(sandbox, [PYTHON, "-c", serve], str(workspace)),
        run(sandbox, [PYTHON, "-c", TALK_TO_NEIGHBOUR], str(workspace)),
    )
    assert (served.status.code, connected.output) == (0, "b'hi'\n")


async def test_b136_the_outside_fails_at_once(open_sandbox: OpenSandbox, workspace: Path) -> None:
    started = time.monotonic()
    outcome = await run(await open_sandbox(), "curl -sS https://example.org; curl -sS http://192.0.2.1", str(workspace))
    assert time.monotonic() - started < 20
    assert "Could not resolve host" in outcome.output
    assert outcome.status.code != 0


async def test_network_access_reaches_the_host(open_sandbox: OpenSandbox, workspace: Path) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    line = f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo ${{CODEX_SANDBOX_NETWORK_DISABLED:-on}}"
    async with server:
        sandbox = await open_sandbox(ConfinementPlan((Root(str(workspace)),), network=True))
        assert (await run(sandbox, line, str(workspace), env={"PATH": os.environ["PATH"]})).output == "on\n"


async def test_b137_temporary_files_and_programs_in_tmp(open_sandbox: OpenSandbox, workspace: Path) -> None:
    sandbox = await open_sandbox()
    line = "f=$(mktemp) && printf '#!/bin/sh\\necho ran\\n' > $f && chmod +x $f && $f; rm $f; mktemp -p /dev/shm"
    outcome = await run(sandbox, line, str(workspace))
    assert outcome.output.startswith("ran\n/dev/shm/")
    assert not Path(outcome.output.split()[1]).exists()


async def test_b137_descriptors_of_the_agent(open_sandbox: OpenSandbox, workspace: Path) -> None:
    with (workspace / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        outcome = await run(await open_sandbox(), "ls /proc/self/fd", str(workspace))
    assert outcome.output.split() == ["0", "1", "2", "3"]  # the last is the listing itself


async def test_b140_side_effects_happen_once(open_sandbox: OpenSandbox, workspace: Path, outside: Path) -> None:
    outcome = await run(await open_sandbox(), f"echo x >> log; touch {outside}/f", str(workspace))
    assert outcome.status.code == 1
    assert (workspace / "log").read_text() == "x\n"


async def test_read_only_mode(namespaces: None, home: Path, workspace: Path) -> None:
    sandbox = await open_launcher(ReadOnly(), str(workspace), home)
    try:
        line = f"touch x /tmp/ferrule-x; echo x > /dev/null; cat {__file__} | head -c 3; touch /dev/shm/x && echo shm"
        outcome = await run(sandbox, line, str(workspace))
        assert outcome.output.count("Read-only file system") == 2
        assert outcome.output.endswith('"""shm\n')
        assert os.listdir(workspace) == []
    finally:
        await sandbox.close()


async def test_the_session_entry(namespaces: None, home: Path, workspace: Path) -> None:
    policy = WorkspaceWrite(writable_roots=("/no/such",))
    sandbox = await open_launcher(policy, str(workspace), home)
    try:
        assert sandbox.warnings == ("writable root /no/such does not exist and is not writable",)
        assert (await run(sandbox, "echo x > file", str(workspace))).status.code == 0
        assert await sandbox.level() is Level.NAMESPACES
    finally:
        await sandbox.close()


@pytest.mark.parametrize("kind", ["folder", "file", "link to a file", "link to a folder", "dangling link"])
@pytest.mark.parametrize("name", [".git", ".codex", ".mcp.json"])
async def test_n008_whatever_stands_under_a_reserved_name(
    open_sandbox: OpenSandbox, workspace: Path, outside: Path, kind: str, name: str
) -> None:
    """Commands run, can read what it says, and change neither it nor what it leads to."""
    path, meta = workspace / name, outside / "meta"
    meta.mkdir()
    (meta / "x").write_text("kept\n")
    match kind:
        case "folder":
            shutil.copytree(meta, path)
        case "file":
            path.write_text("kept\n")
        case "link to a file":
            path.symlink_to("../meta/x")
        case "link to a folder":
            path.symlink_to(meta)
        case _:
            path.symlink_to(outside / "gone")
    script = f"cat {name} {name}/x; echo x > {name}/x; echo x > {name}; rm -r {name}; mkdir {name}; echo x > {name}/y"
    plan = ConfinementPlan((Root(str(workspace)), Root(str(meta), reserve=False)))
    outcome = await run(await open_sandbox(plan), script, str(workspace))
    told = {"link to a folder": f"{meta}\n", "dangling link": f"{outside}/gone\n"}
    assert told.get(kind, "kept\n") in outcome.output
    assert path.is_symlink() == ("link" in kind) and os.path.lexists(path)
    assert snapshot(outside / "meta") == {"x": b"kept\n"} and not (outside / "gone").exists()
    if "link" not in kind:
        assert [path.read_text() for path in (path.iterdir() if path.is_dir() else [path])] == ["kept\n"]


async def test_n008_git_works_behind_a_link(open_sandbox: OpenSandbox, workspace: Path, outside: Path) -> None:
    """To a repository, and to the file that points to one."""
    git("init", "--separate-git-dir", "meta", "first", cwd=outside)
    for name, target in (("a", outside / "meta"), ("b", outside / "first" / ".git")):
        (workspace / name).mkdir()
        (workspace / name / ".git").symlink_to(target)
    outcome = await run(await open_sandbox(), "git -C a rev-parse --git-dir; git -C b status -sb", str(workspace))
    assert outcome.output.startswith(f"{outside}/meta\n## No commits yet")


async def test_s13_a_command_sets_its_own_process_and_no_other(open_sandbox: OpenSandbox, workspace: Path) -> None:
    """Where other processes are visible: the one that started it, and one that it started, are both other ones."""
    await require(Level.LANDLOCK)
    sandbox = await open_sandbox(ConfinementPlan((Root(str(workspace)),)), level=Level.LANDLOCK)
    line = """
    set_all() { taskset -cp PROCESSOR $1 && renice -n 5 -p $1 && prlimit --pid $1 --core=0; }
    set_all $$ > log && echo own; set_all $PPID 2> log || echo above; sleep 9 & set_all $! 2> log || echo below; kill $!
    """
    outcome = await run(sandbox, line.replace("PROCESSOR", str(min(os.sched_getaffinity(0)))), str(workspace))
    assert [word for word in outcome.output.split() if word in ("own", "above", "below")] == ["own", "above", "below"]
