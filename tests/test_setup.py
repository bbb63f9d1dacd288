"""`scripts/setup`: what it installs and what it says, with a stand-in for uv, since a test downloads nothing."""

import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]

UV = """#!/bin/sh
echo "$@" >>"$LOG"
cat "$GATE" >/dev/null
"""


class Clone:
    """A fresh copy of what the scripts need, and a PATH on which uv is a stand-in that waits for `let_go`."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree with blanks"
        self.log, self.gate = folder / "log", folder / "gate"
        shutil.copytree(ROOT / "scripts", self.tree / "scripts")
        for name in ("pyproject.toml", "requirements-dev.lock"):
            shutil.copy(ROOT / name, self.tree)
        (self.tree / "src").symlink_to(ROOT / "src")
        programs = folder / "programs"
        programs.mkdir()
        (programs / "uv").write_text(UV)
        (programs / "uv").chmod(0o755)
        os.mkfifo(self.gate)
        self.env = {"PATH": f"{programs}:/usr/bin:/bin", "FERRULE_PYTHON": sys.executable}
        self.env |= {"LOG": str(self.log), "GATE": str(self.gate)}

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [self.tree / "scripts/setup", *arguments],
            env=self.env, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def let_go(self) -> None:
        """Let the stand-in end; it has begun then."""
        self.gate.write_text("")


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def core_of(lock: str) -> str:
    loader = SourceFileLoader("core_lock", str(ROOT / "scripts/core_lock"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    core: str = module.core(lock)
    return core


def names_in(lock: str) -> set[str]:
    return set(re.findall(r"^([\w-]+)==", lock, re.MULTILINE))


def needed_by(name: str) -> set[str]:
    """The distributions that are installed for another one, without extras."""
    wanted = map(Requirement, distribution(name).requires or ())
    named = {canonicalize_name(one.name) for one in wanted if not one.marker or one.marker.evaluate({"extra": ""})}
    return named.union(*map(needed_by, named))


def test_the_demo_is_installed_what_ferrule_needs_and_nothing_else() -> None:
    lock = (ROOT / "requirements-dev.lock").read_text()
    core = names_in(core_of(lock))
    assert core - {"httpx2-jsfetch"} == needed_by("ferrule")
    assert {"mypy", "pytest", "mcp"} <= names_in(lock) - core


def test_setup_speaks_before_it_works_and_does_it_once(clone: Clone) -> None:
    child = clone.start("demo")
    assert child.stderr is not None
    assert child.stderr.readline() == "setup: installing what Ferrule needs into .venv, once: some seconds\n"
    clone.let_go()
    out, _ = child.communicate(timeout=50)
    assert child.returncode == 0
    assert out == f"{clone.tree}/.venv/bin\n"
    assert "--require-hashes -r .venv/core.lock" in clone.log.read_text()
    assert "pytest" not in names_in((clone.tree / ".venv/core.lock").read_text())
    made = subprocess.run([clone.tree / ".venv/bin/ferrule", "--version"], capture_output=True, check=True)
    assert made.stdout.startswith(b"ferrule ")
    again = clone.start("demo")
    assert again.communicate(timeout=50) == (f"{clone.tree}/.venv/bin\n", "")
    assert len(clone.log.read_text().splitlines()) == 1


def test_setup_that_fails_says_why_and_leaves_no_stamp(clone: Clone) -> None:
    (clone.tree.parent / "programs/uv").unlink()
    (clone.tree / "requirements-dev.lock").write_text(
        "thing==1 \\\n    --hash=sha256:00\n    # via ferrule (pyproject.toml)\n"
    )
    clone.env |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    clone.env["FERRULE_PYTHON"] = os.path.realpath(sys.executable)  # it may have a pip, which need not be made first
    child = clone.start("demo")
    out, err = child.communicate(timeout=50)
    assert child.returncode != 0
    assert out == ""
    assert "No matching distribution found for thing==1" in err
    assert not (clone.tree / ".venv/stamp-demo").exists()


def test_setup_knows_no_other_word(clone: Clone) -> None:
    child = clone.start("everything")
    assert child.communicate(timeout=50) == ("", "setup: there is only `setup` and `setup demo`\n")
    assert child.returncode == 2
