"""The first hour of a new user, step by step, with the time to the first line of each: `scripts/first_hour`.

A fresh clone and empty caches; the model is scripted unless `--local` names one.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.testing import ScriptedModel, function_call

ROOT = Path(__file__).parents[2]
FIRST_SIGN = 1.0
"""Seconds in which a command must have said something, on a machine that does nothing else."""
EVERYTHING = "@modelcontextprotocol/server-everything"
LLAMA_SECONDS = 300.0
"""Seconds that a local model may take to load."""

PROGRAM = """\
print("asking", flush=True)
from ferrule import Agent, tool

@tool
def word_count(text: str) -> int:
    "Count the words of a text."
    return len(text.split())

agent = Agent(model="m", base_url="{url}", tools=[word_count])
print(agent.run_sync("How many words has `a b c`?").text)
"""


class Skipped(Exception):
    """The step cannot be taken here; the text says why."""


@dataclass
class Hour:
    """The clone, and what its commands share."""

    folder: Path
    steps: list[tuple[str, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clone = self.folder / "ferrule"
        self.work = self.folder / "work"
        self.env = {**os.environ, "FERRULE_HOME": str(self.folder / "home")}
        for name, key in (("pip", "PIP_CACHE_DIR"), ("uv", "UV_CACHE_DIR"), ("npm", "npm_config_cache")):
            self.env[key] = str(self.folder / f"cache-{name}")

    @property
    def ferrule(self) -> str:
        return str(self.clone / ".venv/bin/ferrule")

    def run(self, name: str, *command: str | Path, cwd: Path | None = None) -> str:
        """Run a command, note when its first line came and when it ended, and return what it said."""
        began, first, said = time.monotonic(), None, []
        with subprocess.Popen(
            command, cwd=cwd or self.work, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        ) as child:  # fmt: skip
            assert child.stdout is not None
            for line in child.stdout:
                first = first or time.monotonic() - began
                said.append(line)
        code, took = child.returncode, time.monotonic() - began
        text = "".join(said)
        if code:
            raise SystemExit(f"{name} failed with exit code {code}:\n{text}")
        self.steps.append((name, took if first is None else first, took))
        print(f"{name:<34} first line {self.steps[-1][1]:6.2f} s, done {took:6.1f} s", flush=True)
        return text


def demo(hour: Hour, options: argparse.Namespace) -> None:
    """The two commands: a clone, the demo."""
    if options.tree is not None:
        hour.clone = options.tree
        hour.work.mkdir()
        return
    subprocess.run(["git", "clone", "-q", str(ROOT), str(hour.clone)], check=True)
    hour.work.mkdir()
    said = hour.run("./scripts/demo", "./scripts/demo", cwd=hour.clone)
    assert "FAILED (failures=2)" in said and "The tests pass." in said, said
    hour.run("./scripts/demo, again", "./scripts/demo", cwd=hour.clone)


def own_task(hour: Hour, options: argparse.Namespace) -> None:
    """A task of one's own, and going on with it."""
    call = function_call("shell_command", {"command": "echo hello > note.txt; cat note.txt"})
    with ScriptedModel([[call], "Written.", "It says hello."]) as model:
        url = ("-m", "m", "--base-url", model.base_url)
        said = hour.run("ferrule exec", hour.ferrule, "exec", *url, "Write a note")
        assert "Written." in said and (hour.work / "note.txt").read_text() == "hello\n", said
        said = hour.run("ferrule exec resume --last", hour.ferrule, "exec", "resume", "--last", "What does it say?")
        assert "It says hello." in said, said


def program(hour: Hour, options: argparse.Namespace) -> None:
    """A Python program of ten lines."""
    with ScriptedModel([[function_call("word_count", {"text": "a b c"})], "Three."]) as model:
        path = hour.work / "count.py"
        path.write_text(PROGRAM.format(url=model.base_url))
        said = hour.run("a program of ten lines", hour.clone / ".venv/bin/python", path)
        assert said == "asking\nThree.\n" and '"3"' in json.dumps(model.outputs()), said


def mcp_server(hour: Hour, options: argparse.Namespace) -> None:
    """An MCP server that npx downloads when it is first started."""
    if shutil.which("npx") is None:
        raise Skipped("there is no npx: install Node.js")
    python = hour.clone / ".venv/bin/python"
    base = Path(sys.base_prefix, "bin/python3")  # the environment's own may lack pip
    hour.run("pip install 'ferrule[mcp]'", base, "-m", "pip", "--python", python, "install", "mcp>=2.3,<3")
    settings = f'mcp_servers.all={{command="npx", args=["-y", "{EVERYTHING}"], required=true, approval="allow"}}'
    with ScriptedModel([[function_call("mcp__all__echo", {"message": "hi"})], "Echoed."]) as model:
        flags = ("-m", "m", "--base-url", model.base_url, "-c", settings)
        said = hour.run("ferrule exec with npx", hour.ferrule, "exec", *flags, "Say hi")
        assert "Echoed." in said and "hi" in model.requests[-1].outputs[0].text, said


def local_model(hour: Hour, options: argparse.Namespace) -> None:
    """A local model, served by llama.cpp's wheel."""
    if options.local is None:
        raise Skipped("give --local MODEL.gguf")
    venv = hour.folder / "llama"
    hour.run("python -m venv", sys.executable, "-m", "venv", venv)
    hour.run("pip install llama-cpp-python", venv / "bin/pip", "install", "llama-cpp-python[server]")
    with llama(venv / "bin/python", options.local) as url:
        hour.run("ferrule exec with llama.cpp", hour.ferrule, "exec", "--base-url", url, "Say hello in one word")


@contextmanager
def llama(python: Path, model: Path) -> Iterator[str]:
    """Serve a model until the block ends; yield its address once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    child = subprocess.Popen([python, "-m", "llama_cpp.server", "--model", model, "--port", str(port)])
    try:
        deadline = time.monotonic() + LLAMA_SECONDS
        while child.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        child.terminate()
        child.wait()


STEPS: tuple[Callable[[Hour, argparse.Namespace], None], ...] = (demo, own_task, program, mcp_server, local_model)


def main() -> int:
    """Take all steps. Return 1 if a command of ours was silent for longer than it may be."""
    parser = argparse.ArgumentParser(prog="scripts/first_hour", description=__doc__)
    parser.add_argument("--local", type=Path, metavar="MODEL.gguf", help="a model for llama.cpp")
    parser.add_argument("--tree", type=Path, help="a tree in which ./scripts/demo has run, instead of a fresh clone")
    parser.add_argument("--first-sign", type=float, default=FIRST_SIGN, metavar="SECONDS", help="for a busy machine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ferrule-first-hour-") as folder:
        hour = Hour(Path(folder).resolve())
        for step in STEPS:
            try:
                step(hour, options)
            except Skipped as why:
                print(f"{step.__name__}: skipped, {why}", flush=True)
    silent = [
        name for name, first, _ in hour.steps if first > options.first_sign and not name.startswith(("pip", "python"))
    ]
    if silent:
        print(f"said nothing for more than {options.first_sign:g} s: {', '.join(silent)}")
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
