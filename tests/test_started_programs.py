"""Which modules start programs or look for them. A new one must say here why no command can have put them there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ferrule
from tests.sources import module, parse

SOURCE = Path(ferrule.__file__).parent

WHY = {
    "batch/attempt.py": "the check of a task, as its commands are",
    "batch/pool.py": "our interpreter",
    "builtin/exec_command.py": "commands, by ctx.run",
    "builtin/execution.py": "commands, by ctx.run",
    "builtin/kept_shell.py": "bash, located; by ctx.run",
    "builtin/searching/ripgrep.py": "rg, located",
    "builtin/shell_keeper.py": "bash, located; by ctx.run",
    "cli/commands/demo.py": "git, located; whether commands would find a python3",
    "cli/commands/container.py": "the command of the user, in a container",
    "cli/commands/doctor.py": "--version of what was located",
    "cli/commands/mcp.py": "our interpreter, which looks for a browser in a safe PATH",
    "cli/commands/sandbox.py": "the user's own command",
    "containers/background.py": "what its caller chose",
    "containers/container.py": "commands, in a container",
    "containers/hosted_build.py": "mmdebstrap from the PATH of whoever runs the build, at the user's own command",
    "containers/languages.py": "the programs of a container, in it",
    "containers/project.py": "commands, in a container",
    "containers/screen/screen.py": "a browser, located, in a container",
    "containers/stack_build.py": "the system's python3, and pip, at the user's own command",
    "containers/subordinate.py": "our interpreter",
    "doors/app_server/others.py": "a command of the client, whose user is ours, confined",
    "doors/terminal/clipboard.py": "what reads the clipboard, located",
    "doors/terminal/editor.py": "the user's editor, located",
    "documents/parsing/answers.py": "itself, by fork",
    "execpolicy/local_host.py": "looks for what a command would start, to judge it",
    "execpolicy/load.py": "our interpreter",
    "image_generation/command.py": "the user's image program, located and confined",
    "integrations/mini_swe_agent.py": "no program: the error of those that took too long",
    "integrations/task_sandboxes/in_container.py": "commands, in a container",
    "integrations/task_sandboxes/outputs.py": "commands, in a container or confined",
    "lookup.py": "passes over what commands can write",
    "mcp/stdio.py": "servers, located",
    "process/interactive.py": "commands",
    "process/kernel.py": "what its caller chose",
    "process/plain.py": "what its caller chose; setsid from a system folder",
    "process/run.py": "what its caller chose",
    "process/shell.py": "the login shell, located, with a safe PATH; looks for a shell by its path",
    "process/tree.py": "/bin/ps",
    "sandbox/linux/bwrap.py": "/bin/sh; bwrap, located; looks for a command's program, which is confined",
    "sandbox/linux/cgroups.py": "/bin/sh",
    "sandbox/linux/holders.py": "our interpreter",
    "sandbox/linux/id_map.py": "itself, by fork; newuidmap from a system folder",
    "sandbox/linux/init.py": "commands, confined",
    "sandbox/linux/mother.py": "itself, by fork",
    "sandbox/linux/mothers.py": "our interpreter",
    "sandbox/linux/socket_search.py": "itself, by fork",
    "sandbox/macos.py": "/usr/bin/sandbox-exec",
    "sandbox/pool.py": "commands, confined",
    "sandbox/probe.py": "/bin/sh",
    "sandbox/watched.py": "commands",
    "session/hooks.py": "/bin/sh, with a safe PATH",
    "dispatch/workspace.py": "commands",
    "workspaces/mounts.py": "itself, by fork",
    "workspaces/run_git.py": "git, located, with settings of nobody",
    "web/other_backends.py": "the user's search program, located",
}
_STARTS = re.compile(
    r"os\.(exec|spawn|posix_spawn|system|fork|popen|startfile)\w*|(subprocess|webbrowser|pty|multiprocessing)\b.*"
    r"|asyncio\.(create_subprocess|subprocess)\w*|(shutil|.*)\.which|ctypes\.util.*|ferrule\.process\.run\.run"
    r"|Session\.start|KeptShell\.start|\.launch"
)


def names(tree: ast.Module) -> Iterator[str]:
    """What is imported, with its module; attributes of names, as `os.fork`; attributes of anything, as `.launch`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield f".{node.attr}"
            if isinstance(node.value, ast.Name):
                yield f"{node.value.id}.{node.attr}"


def starts(tree: ast.Module) -> bool:
    return any(map(_STARTS.fullmatch, names(tree)))


def test_s09_every_module_that_starts_programs_is_known() -> None:
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if starts(module(path))}
    assert found == set(WHY)


def test_s09_each_way_of_starting_is_seen() -> None:
    for source in (
        "import subprocess", "from subprocess import run", "import os; os.posix_spawnp('x')", "from os import execvp",
        "from shutil import which", "import shutil as s; s.which('x')", "import webbrowser", "import pty",
        "import asyncio; asyncio.create_subprocess_exec('x')", "launcher.launch()", "self.a.launch()",
        "import ctypes.util",
    ):  # fmt: skip
        assert starts(parse(source)), source
    assert not starts(parse("import os, platform; os.path.join(platform.system())"))
