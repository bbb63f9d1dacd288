"""The public Open Responses suite against `ferrule serve`, over both upstream wires."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ferrule.testing import ScriptedModel, function_call
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.gateway.served import new_place, serving

TESTS = 17
"""Tests of the suite, as of its version of July 2026."""


def says(request: Request) -> Simple:
    """What the model answers: a call where there is a tool, else a text."""
    if "get_weather" in request.tool_names and not request.outputs:
        return function_call("get_weather", {"location": "San Francisco, CA"})
    return "Hello there, my friend."


def run(suite: Path, modules: Path, wire: str, folder: Path) -> str:
    """Run the suite over one wire. Return what it printed; raises if a test of it fails."""
    with ScriptedModel(says) as model, serving(new_place(folder), model.base_url, wire=wire) as gateway:
        bun = str(modules / ".bin" / "bun")
        command = [bun, "run", "bin/compliance-test.ts", "--base-url", gateway.url, "--api-key", "x", "--model", "m"]
        done = subprocess.run(command, cwd=suite, capture_output=True, text=True, timeout=300, check=False)
        return done.stdout + done.stderr + ("" if done.returncode == 0 else f"exit code {done.returncode}\n")


def suite_copy(checkout: Path, modules: Path, folder: Path) -> Path:
    """Copy what runs of the checkout, which stays as it is."""
    suite = folder / "suite"
    for part in ("bin", "src"):
        shutil.copytree(checkout / part, suite / part)
    for part in ("package.json", "tsconfig.json"):
        shutil.copy(checkout / part, suite / part)
    (suite / "node_modules").symlink_to(modules.resolve())
    return suite


def main(checkout: str, modules: str) -> int:
    """Run the suite over both wires."""
    code = 0
    with tempfile.TemporaryDirectory() as temporary:
        suite = suite_copy(Path(checkout), Path(modules), Path(temporary))
        for wire in ("chat", "responses"):
            folder = Path(temporary, wire)
            folder.mkdir()
            said = run(suite, Path(modules).resolve(), wire, folder)
            print(f"upstream wire {wire}:\n{said}")
            code |= "exit code" in said
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
