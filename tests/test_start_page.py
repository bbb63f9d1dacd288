"""docs/start.md, followed to the letter. Only the installation is replaced, and the address of the model's server."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule.sandbox.plan import Level
from ferrule.testing import ScriptedModel, function_call
from ferrule.testing.steps import StepLike
from tests.programs import need
from tests.sandbox.conftest import require

PAGE = (Path(__file__).parents[1] / "docs" / "start.md").read_text()
STEPS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
PATCH = """*** Begin Patch
*** Update File: slugs.py
@@
-    return "-".join(re.findall(r"[a-z0-9]+", title))
+    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))
*** End Patch"""
SCRIPT: list[StepLike] = [
    function_call("shell_command", {"command": "python3 -m unittest"}),
    function_call("apply_patch", {"input": PATCH}),
    function_call("shell_command", {"command": "python3 -m unittest"}),
    "It dropped capital letters.",
    "The pattern knew small letters only.",
    function_call("count_words", {"path": "slugs.py"}),
    "It has ten.",
]
NEXT = "echo --- next step ---; echo --- next step --- >&2"


@pytest.fixture
def home() -> Iterator[Path]:
    """A home folder outside of /tmp, which commands may write."""
    folder = Path(tempfile.mkdtemp(prefix="ferrule-start-", dir="/var/tmp")).resolve()
    yield folder
    shutil.rmtree(folder)


def follow(home: Path, model_url: str) -> tuple[list[str], list[str]]:
    """Run every step of the page in one shell; return what each wrote to standard output and to standard error."""
    (home / "ferrule-env").symlink_to(sys.prefix)
    install, *steps = STEPS
    script = f"\n{NEXT}\n".join([install.splitlines()[-1], *steps])
    done = subprocess.run(
        ["/bin/bash", "-c", script.replace("http://localhost:11434/v1", model_url)],
        check=False,
        cwd=home,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.split("--- next step ---\n"), done.stderr.split("--- next step ---\n")


async def test_the_page_does_what_it_says(home: Path) -> None:
    await require(Level.NAMESPACES)
    need("git", "curl")
    with ScriptedModel(SCRIPT) as model:
        output, progress_of_steps = follow(home, model.base_url)
        model.check()
    _, _, doctor, sandboxed, task, later, tool = output
    *_, refused, progress, _, _ = progress_of_steps

    assert "server         lists 1 models" in doctor
    assert "PROBLEM" not in doctor

    assert sandboxed == ""
    told = re.search(r"^```text\n(touch.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert told is not None
    assert refused == told[1].replace("/home/you", str(home))
    assert sorted(path.name for path in home.iterdir() if path.name[0] != ".") == ["ferrule-env", "slugs"]

    assert task == "It dropped capital letters.\n"
    assert "FAILED (failures=1)" in progress
    assert "✓ changed slugs.py (+1 -1)" in progress
    assert "OK\n" in progress

    answer, listed, undone, *_ = later.splitlines()
    assert answer == "The pattern knew small letters only."
    assert listed.endswith("The test fails. Find out why and fix it.")
    assert undone == f"taken back: {home}/slugs/slugs.py"
    assert "title.lower()" not in (home / "slugs" / "slugs.py").read_text()

    assert tool == 'It has ten.\ncount_words {"path":"slugs.py"} -> 10\n'
