"""Starting, as a user has it: the wheel, installed and byte-compiled in an environment of its own; an empty home.

Imports and an `Agent` with an open session are CPU time over a bare interpreter's; the start of a headless run is the
time from `execve` to the arrival of the first request at the model server, and the most memory until then.
"""

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.headless import Headless, contestants, environment
from benchmarks.measure import Row, Sample, bounded, is_installed, medians, row
from benchmarks.peers import NAMES
from ferrule.testing import ScriptedModel, message
from ferrule.testing.request import Request

ROUNDS = 11
PEER_ROUNDS = 3
PEER_START = 1.5
USABLE = """\
import asyncio, ferrule
async def main():
    async with await ferrule.Agent("gpt-5.5", base_url="http://127.0.0.1:9/v1", sandbox="danger-full-access").open():
        pass
asyncio.run(main())
"""
MODEL = """\
import pydantic
class Model(pydantic.BaseModel):
    a: int
"""
"""What every program pays that has tools of its own: `import pydantic` alone loads a tenth of it."""


def install(folder: Path) -> Path:
    """The wheel and the versions of its dependencies that this interpreter has. Returns the new `bin`."""
    pip = (sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check")
    frozen = subprocess.run([*pip, "freeze", "--exclude-editable"], check=True, capture_output=True).stdout
    (folder / "constraints.txt").write_bytes(frozen)
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), "."], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    [wheel] = folder.glob("*.whl")
    into = ("--python", str(folder / "venv"), "install", "--constraint", str(folder / "constraints.txt"))
    subprocess.run([*pip, *into, "--compile", str(wheel)], check=True)
    return folder / "venv" / "bin"


async def python(interpreter: Path, code: str, env: dict[str, str]) -> float:
    """Seconds of CPU time of a whole interpreter."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([interpreter, "-c", code], env=env, check=True, stdout=subprocess.DEVNULL)  # noqa: ASYNC221
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def imports(bin_folder: Path, home: Path) -> list[Row]:
    """The rows of imports."""
    ours, here = partial(python, bin_folder / "python"), partial(python, Path(sys.executable))
    env = environment(home)
    codes = ("pass", "import ferrule", "from ferrule import Agent, Toolset, tool", USABLE, MODEL)
    bare, public, names, usable, model = await medians([partial(ours, code, env) for code in codes], ROUNDS)
    floor = model - bare
    modules = [module for module in NAMES if is_installed(module)]
    samples: list[Sample] = [partial(here, f"import {module}", env) for module in modules]
    figures = await medians(samples, PEER_ROUNDS)
    peers = {NAMES[module]: spent - bare for module, spent in zip(modules, figures, strict=True)}
    return [
        bounded("import ferrule, over a bare interpreter", public - bare, 60, "ms", 1e3, peers=peers),
        row("import of Agent, Toolset, tool, floor a pydantic model", names - bare, floor, 2.4, "ms", 1e3),
        row("an Agent with an open session, floor a pydantic model", usable - bare, floor, 1.6, "ms", 1e3),
        bounded("bare interpreter", bare, None, "ms", 1e3),
    ]


async def first_request(contestant: Headless, cwd: Path, peaks: dict[str, list[float]]) -> float:
    """Seconds until the first request; `peaks` gets the mebibytes of memory."""
    started: list[subprocess.Popen[bytes]] = []

    def answer(request: Request) -> object:
        status = Path(f"/proc/{started[0].pid}/status").read_text()
        peaks.setdefault(contestant.name, []).append(int(status.split("VmHWM:")[1].split()[0]) / 1024)
        return message("done")

    with ScriptedModel(answer) as model:  # type: ignore[arg-type]
        at = time.monotonic_ns()
        started.append(contestant.start(model, cwd))
        assert await asyncio.to_thread(started[0].wait) == 0, contestant.name
        return (model.last_request.arrived_ns - at) / 1e9


async def ending(contestant: Headless, cwd: Path, thinks: float) -> float:
    """Seconds from an answer in words to the end of the run. `thinks`: seconds that the model takes before."""
    answered: list[float] = []

    def answer(request: Request) -> object:
        time.sleep(thinks)
        answered.append(time.monotonic())
        return message("done")

    with ScriptedModel(answer) as model:  # type: ignore[arg-type]
        assert await asyncio.to_thread(contestant.start(model, cwd).wait) == 0
        return time.monotonic() - answered[0]


async def ends(bin_folder: Path) -> Row:
    """What an answer that is there at once still waits for. After a second all has been done that needs no answer: the
    tools are loaded, which such a run does not need, the server was asked for its abilities, the sandbox is ready."""
    with contestants(bin_folder) as (programs, cwd):
        samples = [partial(ending, programs[0], cwd, thinks) for thinks in (0, 1)]
        at_once, loaded = await medians(samples, ROUNDS)
    return row("end of a headless run after an answer at once, floor after a second", at_once, loaded, 2, "ms", 1e3)


async def headless(bin_folder: Path) -> list[Row]:
    """The rows of the first request. Its ratio is to Codex where that is installed."""
    peaks: dict[str, list[float]] = {}
    with contestants(bin_folder) as (programs, cwd):
        samples = [partial(first_request, program, cwd, peaks) for program in programs]
        times = await medians(samples, ROUNDS)
    figures = dict(zip((program.name for program in programs), times, strict=True))
    memory = {name: statistics.median(taken) for name, taken in peaks.items()}
    ours, ours_memory, codex = figures.pop("ferrule"), memory.pop("ferrule"), figures.get("codex")
    limit = None if codex is None else round(PEER_START * codex * 1e3)
    return [
        bounded("start of a headless run to its first request", ours, limit, "ms", 1e3, peers=figures),
        bounded("memory of a headless run at its first request", ours_memory, 60, "MiB", peers=memory),
    ]


def main() -> None:
    """Print one line a row."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="ferrule-bench-") as name:
        folder = Path(name)
        bin_folder = install(folder)
        for line in asyncio.run(imports(bin_folder, folder)):
            print(line, flush=True)
        for line in asyncio.run(headless(bin_folder)):
            print(line, flush=True)
        print(asyncio.run(ends(bin_folder)), flush=True)


if __name__ == "__main__":
    main()
