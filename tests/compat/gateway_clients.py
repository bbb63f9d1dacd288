"""Clients of the Responses API, each with a task against `ferrule serve`, over both upstream wires.

`scripts/compat_clients` installs them and runs this.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from ferrule.testing import ScriptedModel
from ferrule.testing.request import Wire
from tests.compat.clients.upstream import says
from tests.gateway.served import Served, new_place, serving
from tests.hosted.remote import Remote, remote

CLIENT_SECONDS = 600
"""What all points of a client may take together, on a busy machine: one that hangs is to end."""
ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "clients"
WIRES: tuple[Wire, ...] = ("chat", "responses")


class Installed(msgspec.Struct, frozen=True):
    """Where the clients are."""

    python: Path
    modules: Path
    codex: Path


def clients(installed: Installed) -> Mapping[str, Callable[[str], list[str]]]:
    """The commands, by the client's name. Each takes the gateway's address."""

    def python(module: str) -> Callable[[str], list[str]]:
        return lambda url: [str(installed.python), "-m", f"tests.compat.clients.{module}", url]

    def node(script: str) -> Callable[[str], list[str]]:
        return lambda url: ["node", str(installed.modules.parent / script), url]

    return {
        "openai (Python)": python("openai_python"),
        "openai (Node)": node("openai_node.mjs"),
        "openai-agents": python("agents_python"),
        "AI SDK": node("ai_sdk.mjs"),
        "LangChain": python("langchain_python"),
        "Codex": lambda url: [sys.executable, "-m", "tests.compat.clients.codex", str(installed.codex), url],
    }


def lines_of(command: list[str], gateway: Served) -> Iterator[str]:
    """Run a client. Yield a line for each of its points, and one if it breaks."""
    env = {"PATH": os.environ["PATH"], "HOME": str(gateway.place.home.parent), "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=CLIENT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        yield from str(error.stdout or "").splitlines()
        yield f"failed: the client still ran after {CLIENT_SECONDS} s"
        return
    points = [line for line in done.stdout.splitlines() if line.startswith(("passed: ", "failed: "))]
    yield from points
    if done.returncode or not points:
        said = " ".join((done.stderr or done.stdout).split())[-1500:]
        yield f"failed: exit code {done.returncode}: {said}"


def main() -> int:
    """Let each client show its points. Exits with 1 if one fails."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path, help="where they are installed")
    options.add_argument("--only", default="", help="run the clients whose name has this in it")
    given = options.parse_args()
    folder = given.folder.resolve()
    installed = Installed(folder / "python/bin/python", folder / "node/node_modules", _codex(folder))
    for script in SCRIPTS.glob("*.mjs"):
        (folder / "node" / script.name).write_bytes(script.read_bytes())
    failures = passes = 0
    for wire in WIRES:
        with (
            tempfile.TemporaryDirectory(dir="/var/tmp", prefix="ferrule-clients-") as place,
            ScriptedModel(says) as model,
            remote() as tools,
            serving(new_place(Path(place)), model.base_url, "-c", _hosts(tools), wire=wire) as gateway,
        ):
            for name, command in clients(installed).items():
                if given.only.lower() not in name.lower():
                    continue
                for line in lines_of(command(gateway.url), gateway):
                    print(f"upstream {wire}, {name}: {line}", flush=True)
                    failures += line.startswith("failed")
                    passes += line.startswith("passed")
            code, said = gateway.stop()
            if code or "Traceback" in said:
                failures += 1
                print(f"failed: the gateway: exit code {code}: {said}")
    print(f"{passes} passed, {failures} failed")
    return 1 if failures else 0


def _hosts(tools: Remote) -> str:
    """Return the setting by which the gateway reaches an MCP server of ours."""
    hosts = ", ".join(f'"{name}" = "{address}"' for name, address in tools.hosts.items())
    return f"gateway.network.hosts={{{hosts}}}"


def _codex(folder: Path) -> Path:
    return next(path for path in folder.glob("codex/**/bin/codex") if path.stat().st_size > 1 << 20)


if __name__ == "__main__":
    sys.exit(main())
