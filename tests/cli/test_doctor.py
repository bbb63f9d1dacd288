"""`ferrule doctor` on machines that lack something: it says what it tried, each thing once."""

import os
import platform
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from ferrule.sandbox.environment import NESTED
from tests.cli.command import COMMAND, SOURCE, Place
from tests.cli.warm import Warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes of Linux")

LANDLOCK, MOUNT, UNSHARE = 444, 165, 272
WITHOUT = """
import ctypes, struct
load, equal, done = 0x20, 0x15, 0x06
program = [(load, 0, 0, 0), *((equal, len(numbers) - at, 0, each) for at, each in enumerate(numbers))]
program += [(done, 0, 0, 0x7FFF0000), (done, 0, 0, 0x00050000 | 38)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
assert libc.prctl(22, 2, header, 0, 0) == 0, ctypes.get_errno()
"""
"""Makes the kernel one that has not got the system calls of these `numbers`: a filter answers them with ENOSYS."""


def doctor(place: Place, forker: Warm, *missing: int) -> str:
    place.home.mkdir(parents=True, exist_ok=True)
    before = f"numbers = {missing}\n{WITHOUT}" if missing else ""
    done = forker.run(("doctor",), b"", place.env(), place.cwd, before)
    assert done.code == 0 and not done.err, done.out + done.err
    return done.out


def sandbox_lines(report: str) -> list[str]:
    lines = report.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("Sandbox: "))
    return [lines[start], *(line for line in lines[start + 1 :] if line.startswith("  not "))] + [
        line for line in lines[start + 1 :] if line.startswith("  missing")
    ]


def repeated(report: str) -> list[str]:
    """Sentences and parts of sentences of some length that stand there twice."""
    parts = [part.strip() for line in report.splitlines() for part in re.split(r"[:;.(]\s", line)]
    return [part for part, count in Counter(parts).items() if count > 1 and part.count(" ") >= 3]


def test_a_kernel_without_landlock_is_told(place: Place, forker: Warm) -> None:
    said = sandbox_lines(doctor(place, forker, LANDLOCK))
    if said[0].startswith("Sandbox: bwrap"):
        pytest.skip("no namespaces here")
    assert said[0] == "Sandbox: namespaces and a system call filter"
    assert said[-1].startswith("  missing: Landlock, a second layer behind the namespaces: the kernel lacks it, or")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of system calls are this machine's")
def test_a_machine_without_a_sandbox_says_each_reason_once(place: Place, forker: Warm) -> None:
    report = doctor(place, forker, LANDLOCK, MOUNT, UNSHARE)
    said = sandbox_lines(report)
    assert said[0] == "Sandbox: nothing"
    assert any("this kernel has no Landlock, or it was not enabled at boot" in line for line in said)
    assert any(line.startswith("  not available: namespaces, Landlock and a system call filter: ") for line in said)
    assert repeated(report) == []


def test_no_sentence_stands_twice(place: Place, forker: Warm) -> None:
    assert repeated(doctor(place, forker)) == []


def test_a_home_that_cannot_be_written_is_said_once(place: Place) -> None:
    place.home.parent.mkdir(parents=True, exist_ok=True)
    place.home.write_text("a file")
    done = place.run("doctor")
    assert done.code == 0, done.err
    assert done.out.count("is not a directory") == 1
    assert sandbox_lines(done.out)[0].startswith("Sandbox: not tried: it would keep its state in the home folder")
    assert repeated(done.out) == []


def test_inside_of_a_sandbox_it_tries_none(place: Place) -> None:
    place.home.mkdir(parents=True)
    done = place.run("sandbox", "--", *COMMAND, "doctor")
    assert sandbox_lines(done.out) == [f"Sandbox: not tried: {NESTED}"]


def test_a_variable_that_somebody_else_set_hinders_no_sandbox(place: Place) -> None:
    place.home.mkdir(parents=True)
    done = place.run("sandbox", "--", "true", env={"FERRULE_SANDBOX": "1"})
    assert NESTED not in done.err
    assert "not tried" not in sandbox_lines(place.run("doctor", env={"FERRULE_SANDBOX": "1"}).out)[0]


def test_without_the_variable_there_is_no_sandbox_in_a_sandbox_either(place: Place) -> None:
    place.home.mkdir(parents=True)
    inner = ["env", "-u", "FERRULE_SANDBOX", *COMMAND, "sandbox", "--", "echo", "fine"]
    done = place.run("sandbox", "--", *inner)
    assert done.code != 0 and "fine" not in done.out and len(done.err.splitlines()) == 1, done.err


@pytest.mark.parametrize("tool", ["exec_command", "shell_command"])
def test_a_sandbox_in_a_sandbox_says_so_in_one_sentence(place: Place, tool: str) -> None:
    place.home.mkdir(parents=True)
    parameter = "cmd" if tool == "exec_command" else "command"
    inner = [*COMMAND, "call", "--profile", "all", tool, f'{{"{parameter}": "true"}}']
    done = place.run("sandbox", "--", *inner)
    assert done.code == 1
    assert done.out.removeprefix("exec_command failed: ").strip() == NESTED


def test_an_extra_that_does_not_load_and_a_browser_that_is_not_there_are_told(
    cold_place: Place, tmp_path: Path
) -> None:
    cold_place.home.mkdir(parents=True)
    (cold_place.home / "config.toml").write_text('[computer]\nbrowser = "/nowhere/chromium"\n')
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp/__init__.py").write_text("import no_such_module_of_ours\n")
    (tmp_path / "PIL.py").write_text("raise ImportError('libjpeg.so.8: cannot open shared object file')\n")
    done = cold_place.run("doctor", env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{SOURCE}"})
    assert "extra mcp      PROBLEM: mcp needs no_such_module_of_ours, which is not installed" in done.out
    assert "extra images   PROBLEM: PIL cannot be loaded" in done.out and "libjpeg.so.8" in done.out
    assert re.search(r"(?m)^chromium       not found: .*/nowhere/chromium", done.out)
