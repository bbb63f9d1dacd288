"""The cases again as an ordinary user: other tests of this suite, run by a process of another uid.

A test names no user, so each of them runs as whoever runs it: as root in a container, and here as somebody else.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import ferrule
from tests.sandbox.scene import SYSTEM_PYTHON, as_user

USER = 1001
TOP = Path(__file__).parents[2]
SECONDS = 480
"""For a whole group, on a busy machine; each takes some twenty. Each is an interpreter of its own, so they are few."""
GROUPS = {
    "commands": [
        "test_protection.py",
        "test_layouts.py",
        "test_two_sessions.py",
        "test_clock.py",
        "test_escape.py::test_bwrap_stops_what_the_page_says",
        "test_probe.py",
        "test_held.py",
        "../execpolicy/test_local_host.py",
        "../process/test_shell.py",
    ],
    "files": [
        "test_files.py",
        "test_boundary.py",
        "test_repositories.py",
        "../git/test_programs.py",
        "../test_reading.py",
        "../builtin/test_kernel_files.py",
        "../session/test_project_trust.py",
        "../workspaces/test_layers.py",
        "../workspaces/test_faults.py",
        "../session/test_network_lists.py::test_what_is_listed_is_reached_and_the_rest_refused_in_words",
        "../session/test_network_lists.py::test_remembered_for_good_like_a_prefix",
    ],
    "planted": [
        "-k=s09",
        "test_launcher.py",
        "../session/test_planted_programs.py",
        "../cli/test_planted_programs.py",
        "../cli/test_commands.py",
        "../builtin/test_grep_files.py",
        "../mcp/test_client.py",
        "../mcp/test_session.py",
    ],
    "containers": [
        "../containers/test_root.py",
        "../containers/test_death.py",
        "../containers/test_limits.py::test_memory_of_all_together",
        "../containers/test_life.py::test_sigkill_of_the_process",
        "../containers/test_removal.py",
        "../containers/test_refusal.py",
        "../containers/test_contained_agent.py",
        "../config/test_trust.py",
        "../cli/test_trust.py::test_s04_what_the_model_plants_is_not_started_before_you_confirm_it",
        "../cli/test_trust.py::test_s04_a_confined_command_cannot_confirm",
    ],
}
VERSION = "import sys; print(*sys.version_info[:2])"


@pytest.fixture
def python() -> list[str]:
    """What runs Python as the user: ours, or that of the system where ours lies in a closed folder."""
    for program in (os.path.realpath(sys.executable), SYSTEM_PYTHON):
        words = [*as_user(USER), "env", program]  # `setpriv` itself would start what the user may not
        done = subprocess.run([*words, "-I", "-c", VERSION], capture_output=True, text=True, check=False)
        if done.stdout.split() == [str(part) for part in sys.version_info[:2]]:
            return words
    pytest.skip("no Python of this version that an ordinary user can start")


@pytest.fixture
def users_home() -> Iterator[Path]:
    """A home folder of the user's."""
    folder = Path(tempfile.mkdtemp(prefix="ferrule-user-", dir="/var/tmp"))
    os.chown(folder, USER, USER)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes somebody else")
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("group", GROUPS)
def test_as_an_ordinary_user(python: list[str], users_home: Path, group: str) -> None:
    folders = [TOP, Path(ferrule.__file__).parents[1], *map(Path, sysconfig.get_paths().values())]
    env = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "FERRULE_REQUIRE_LEVEL")}
    env |= {"HOME": str(users_home), "PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONDONTWRITEBYTECODE": "1"}
    chosen = [word if word.startswith("-") else os.path.join("tests/sandbox", word) for word in GROUPS[group]]
    words = [
        *python,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:anyio",
        "-p",
        "no:xdist",
        f"--basetemp={users_home}/tests",
        *chosen,
    ]
    done = subprocess.run(words, cwd=TOP, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
