"""A whole agent in a container: its commands, its file tools, what it may not do, and what approval changes."""

import asyncio
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from ferrule import Agent, InContainer, InContainerReadOnly, Toolset
from ferrule.containers import ContainerError
from ferrule.containers.images import ImageError
from ferrule.dispatch.workspace import Workspace
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import ReviewDecision, SandboxPolicy
from ferrule.testing import ScriptedModel, custom_tool_call, function_call
from ferrule.testing.steps import StepLike
from tests.containers.small import import_root, small_root
from tests.sandbox.projects import git
from tests.sandbox.scene import temporary_folder

PROGRAMS = ("sh", "bash", "cat", "env", "grep", "id", "ls", "mkdir", "mv", "rm", "sleep")
TOOLS = [
    "shell_command", "exec_command", "write_stdin", "bash", "python", "js_repl", "apply_patch", "read_file", "list_dir",
    "grep_files", "grep", "glob", "view_image", "file_editor",
]  # fmt: skip
PATCH = """\
*** Begin Patch
*** Update File: greet.sh
@@
-echo helo
+echo hello
*** End Patch
"""


@pytest.fixture(scope="module")
def home(place: Path) -> Iterator[Path]:
    """Ferrule's own folder, with an image of this machine's shell and a few programs."""
    with temporary_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FERRULE_HOME", str(folder / "home"))
        root = folder / "root"
        small_root(root, PROGRAMS)
        (root / "tmp").mkdir()
        import_root(folder / "home", root, "small", {"Env": ["PATH=/bin", "OF_IMAGE=yes"]})
        (root / "etc").mkdir()
        (root / "etc/passwd").write_text("mine:x:7:8::/home/mine:/bin/sh\n")
        import_root(folder / "home", root, "owned", {"Env": ["PATH=/bin"], "User": "mine"})
        shutil.rmtree(root)
        yield folder / "home"


@pytest.fixture(scope="module")
def project(home: Path) -> Path:
    folder = home.parent / "a project"
    folder.mkdir()
    git(folder, "init", "-q", ".")
    (folder / "greet.sh").write_text("echo helo\n")
    (folder / "test.sh").write_text('[ "$(sh ./greet.sh)" = hello ] && echo PASSED || echo FAILED\n')
    return folder


@pytest.fixture
async def tools(project: Path) -> AsyncIterator[Toolset]:
    async with Toolset.for_model("gpt-5", cwd=project, sandbox="container", tools=TOOLS) as toolset:
        yield toolset


async def say(toolset: Toolset, script: str, **more: object) -> str:
    return (await toolset.call("shell_command", {"command": script, "login": False, **more})).text


@pytest.mark.parametrize("image", [None, "small"])
def test_an_agent_edits_and_tests_a_project(project: Path, image: str | None) -> None:
    (project / "greet.sh").write_text("echo helo\n")
    look = "cat /proc/1/comm; id -u; echo $HOME $OF_IMAGE; ls -d /work /root/.bashrc /home/*; echo x > .git/config"
    steps: Sequence[StepLike] = [
        function_call("exec_command", {"cmd": f"sh ./test.sh; {look}"}),
        custom_tool_call("apply_patch", PATCH),
        function_call("exec_command", {"cmd": "sh ./test.sh"}),
        lambda request: str([output.text for output in request.outputs]),
    ]
    with ScriptedModel(steps) as model:
        agent = Agent("gpt-5", base_url=model.base_url, cwd=project, sandbox=InContainer(image=image), api_key="unused")
        result = agent.run_sync("Mend the greeting.")
    told = result.text
    assert "FAILED" in told and "PASSED" in told, told
    assert "Read-only file system" in told and told.count("No such file") >= 2
    assert ("0\\n/root yes" if image else "1000\\n/home/user") in told
    assert (project / "greet.sh").read_text() == "echo hello\n"
    assert "<sandbox_mode>container</sandbox_mode>" in str(model.requests[0].body)
    assert sorted(os.listdir(project)) == [".git", "greet.sh", "test.sh"]


async def test_commands_run_as_the_images_user_and_files_are_the_callers(project: Path) -> None:
    async with Toolset.for_model("gpt-5", cwd=project, sandbox=InContainer(image="owned"), tools=TOOLS) as toolset:
        told = await say(toolset, "echo as $(id -u) $HOME $USER; echo x > made; echo x >> test.sh; ls -n made test.sh")
        box = toolset.workspace.container
        assert box is not None
        mapped = box.box().mapped
    assert ("as 7 /home/mine mine\n" if mapped else "as 0 /root root\n") in told, told
    assert told.count(" 7 8 " if mapped else " 0 0 ") == 2, told
    made = (project / "made").stat()
    assert (made.st_uid, made.st_gid) == (os.getuid(), os.getgid())
    (project / "made").unlink()


async def test_every_tool_runs_inside(tools: Toolset, project: Path) -> None:
    assert (await tools.call("python", {"code": "import os; os.getcwd(), os.getuid()"})).text == repr(
        (str(project), 1000)
    )
    nested = "call_tool('shell_command', {'command': 'hostname; echo from $PWD'})"
    assert f"from {project}" in (await tools.call("python", {"code": nested})).text
    assert (await tools.call("js_repl", {"code": "process.cwd()"})).text.strip() == str(project)
    await tools.call("bash", {"command": "cd /tmp && kept=here"})
    assert "/tmp here" in (await tools.call("bash", {"command": "echo $PWD $kept"})).text
    begun = await tools.call(
        "exec_command", {"cmd": "read line; tty; echo $line-$line", "tty": True, "yield_time_ms": 250}
    )
    number = int(re.findall(r"session ID (\d+)", begun.text)[0])
    ended = await tools.call("write_stdin", {"session_id": number, "chars": "word\n", "yield_time_ms": 20000})
    assert "/dev/pts/" in ended.text and "word-word" in ended.text
    assert "cannot use the working directory /none" in await say(tools, "true", workdir="/none")
    assert "\n/mnt/data\n" in await say(tools, "pwd", workdir="/mnt/data")


HIDDEN = "not among the folders that the container shows"


async def test_file_tools_see_no_more_than_commands(tools: Toolset, project: Path) -> None:
    (project / "secret").symlink_to("/etc/passwd")
    (project / "away").symlink_to("/etc")
    try:
        calls: list[tuple[str, dict[str, object]]] = [
            (name, {key: path})
            for name, key, paths in (
                ("read_file", "file_path", ("/etc/passwd", f"{project}/secret", f"{project}/away/passwd")),
                ("list_dir", "dir_path", ("/etc", f"{project}/away", "/")),
                ("view_image", "path", ("/etc/passwd", f"{project}/secret")),
            )
            for path in paths
        ]
        calls += [("grep_files", {"pattern": "root", "path": path}) for path in ("/etc", f"{project}/secret", "/")]
        calls += [("grep", {"pattern": "root", "path": f"{project}/away"}), ("glob", {"pattern": "/etc/*"})]
        calls += [
            ("file_editor", {"command": command, "path": path, **more})
            for command, more in (
                ("view", {}),
                ("create", {"file_text": "x"}),
                ("insert", {"insert_line": 0, "new_str": "x"}),
            )
            for path in ("/etc/new", f"{project}/secret", f"{project}/away/new")
        ]
        for name, arguments in calls:
            output = await tools.call(name, arguments)
            assert not output.success and HIDDEN in output.text and "Error" not in output.text, (
                name,
                arguments,
                output.text,
            )
        assert "root:" not in (await tools.call("grep_files", {"pattern": "root:"})).text
        for path in ("/tmp/new", "secret", "away/new"):
            patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
            assert HIDDEN in (await tools.call("apply_patch", patch)).text, path
    finally:
        (project / "secret").unlink()
        (project / "away").unlink()
    assert "L1: " in (await tools.call("read_file", {"file_path": f"{project}/test.sh"})).text


async def test_approval_opens_what_is_protected_and_nothing_else(project: Path) -> None:
    asked: list[str] = []

    def approve(question: object) -> ReviewDecision:
        asked.append(str(question))
        return ReviewDecision.APPROVED

    more = {"sandbox_permissions": "require_escalated", "justification": "to set a remote"}
    async with Toolset.for_model(
        "gpt-5", cwd=project, sandbox="container", tools=TOOLS, on_approval=approve
    ) as toolset:
        script = f"git config a.b c; id -u; ls -d /work /etc/shadow {project.parent}/home; echo x > /usr/x"
        told = await say(toolset, script, **more)
        assert len(asked) == 1 and "\n1000\n" in told and "/etc/shadow" not in told.replace("'/etc/shadow'", ""), told
        assert "Read-only file system" in told
        assert "[a]" in (project / ".git/config").read_text()
        patch = "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch"
        assert "Success" in (await toolset.call("apply_patch", patch.format(".git/hooks/made"))).text
        for outside in ("/tmp/new", "../beside"):
            assert HIDDEN in (await toolset.call("apply_patch", patch.format(outside))).text
        assert len(asked) == 2


async def test_read_only(project: Path) -> None:
    beside = project.parent / "beside"
    beside.mkdir()
    (beside / "word").write_text("there\n")
    policy = InContainerReadOnly(folders=(str(beside),))
    async with Toolset.for_model("gpt-5", cwd=project, sandbox=policy, tools=TOOLS) as toolset:
        told = await say(
            toolset, "touch new; touch /tmp/own && echo written; cat test.sh ../beside/word; touch ../beside/x"
        )
        assert told.count("Read-only file system") == 2 and "written" in told and "PASSED" in told and "there" in told
        assert "there" in (await toolset.call("read_file", {"file_path": f"{beside}/word"})).text
        patch = "*** Begin Patch\n*** Add File: new\n+x\n*** End Patch"
        assert not (await toolset.call("apply_patch", patch)).success
    assert not (project / "new").exists()


async def test_what_is_left_running_stays_confined(tools: Toolset, project: Path) -> None:
    told = await say(tools, "(until mkdir .codex; do sleep 0.01; done) > /dev/null 2>&1 &")
    assert "Left running" in told
    await asyncio.sleep(0.3)  # longer than the folder in the place of a reserved name stays after a command
    assert not (project / ".codex").stat().st_mode & 0o222, "the command has made it"


async def test_the_container_is_killed_below_a_terminal(tools: Toolset) -> None:
    begun = await tools.call("exec_command", {"cmd": "sleep 1000", "tty": True, "yield_time_ms": 250})
    number = int(re.findall(r"session ID (\d+)", begun.text)[0])
    container = tools.workspace.container
    assert container is not None
    os.kill(container.box().holder_pid, signal.SIGKILL)
    lost = await tools.call("write_stdin", {"session_id": number, "chars": "", "yield_time_ms": 20000})
    assert "exited with code" in lost.text, lost.text
    assert "the container was started again" in await say(tools, "echo works")
    assert "the container was started again" not in await say(tools, "echo works")


@pytest.mark.parametrize("image", [None, "small"])
async def test_folders_above_the_project_cannot_be_replaced(home: Path, image: str | None) -> None:
    with temporary_folder() as folder:
        below = Path("/tmp" if image is None else folder) / f"above-{os.getpid()}" / "in between" / "project"
        below.mkdir(parents=True)
        try:
            git(below, "init", "-q", ".")
            async with Toolset.for_model("gpt-5", cwd=below, sandbox=InContainer(image=image), tools=TOOLS) as toolset:
                told = await say(
                    toolset,
                    f"cd /; for at in '{below}' '{below.parent}' '{below.parent.parent}'; do "
                    'mv "$at" "$at-moved" || echo kept; done',
                )
                assert told.count("kept\n") == 3, told
                assert "Read-only file system" in await say(toolset, "echo > .git/config")
        finally:
            shutil.rmtree(below.parent.parent)


@pytest.mark.parametrize(
    ("policy", "cwd", "error", "said"),
    [
        (InContainer(network_access=True), "", UsageError, "cannot reach all of the network"),
        (InContainer(image="none"), "", ImageError, "no image 'none'"),
        (InContainerReadOnly(), "/", UsageError, "choose a folder below it"),
        (InContainerReadOnly(), "/var/tmp", UsageError, "choose a folder below it"),
        (InContainerReadOnly(), "/tmp", UsageError, "choose a folder below it"),
        (InContainer(writable_roots=("/dev/shm",)), "", UsageError, "cannot be shown"),
    ],
)
def test_what_cannot_be(
    home: Path, project: Path, policy: SandboxPolicy, cwd: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        Workspace(policy, cwd or str(project), str(home))


def test_without_containers_nothing_weaker_is_taken(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ContainerError, match="containers need Linux"):
        Agent("m", cwd=project, sandbox="container", base_url="http://127.0.0.1:9", api_key="x").run_sync("x")
