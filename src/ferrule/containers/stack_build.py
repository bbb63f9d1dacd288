"""Make the data stack: download wheels as pip is configured, install them in a container without a network.

Wheels only, because what builds a package would run here unconfined. Nothing of a package runs outside of a container.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ferrule.containers.container import Container
from ferrule.containers.data_stack import NAME, PACKAGES, RECORD, DataStack, StackRecord
from ferrule.containers.errors import ContainerError
from ferrule.containers.host import ContainerSettings
from ferrule.containers.images.errors import ImageError, explained
from ferrule.containers.local import LocalHost
from ferrule.containers.removal import remove_tree
from ferrule.process.launcher import LaunchError
from ferrule.process.run import Completed
from ferrule.sandbox.linux.root import Bind

MODULES = {
    "numpy": "numpy", "pandas": "pandas", "matplotlib": "matplotlib.pyplot", "pillow": "PIL", "openpyxl": "openpyxl",
    "pypdf": "pypdf",
}  # fmt: skip
"""Each package of the stack, and the module to try it with."""
PYTHON = "/usr/bin/python3"
WHEELS = "wheels"
DOWNLOAD_SECONDS = 1800.0
"""60 MB, on a slow line."""
INSTALL_SECONDS = 600.0
"""It takes 20 seconds, most of them for byte code."""
MEMORY_BYTES = 2 << 30
PIP_SECONDS = 20
LAST_WORDS = 600
"""Characters of a failed program's output that are shown."""
ASK = """
import json, os, platform, site, sys
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION")
except (OSError, ValueError):
    libc = None
print(json.dumps({
    "version": list(sys.version_info[:2]), "implementation": sys.implementation.name, "libc": libc or "",
    "machine": platform.machine(), "places": [place for place in site.getsitepackages() if os.path.isdir(place)],
}))
"""
TRY = """
import importlib, json, os, sys
from importlib.metadata import version
os.environ["MPLBACKEND"] = "Agg"
found = {}
for name, module in json.loads(sys.argv[1]).items():
    path = os.path.realpath(importlib.import_module(module).__file__)
    if not path.startswith(os.path.realpath(sys.argv[2]) + "/"):
        sys.exit(f"{name} was taken from {path}")
    found[name] = version(name)
print(json.dumps(found))
"""
NO_PYTHON = "there is no " + PYTHON + ", which containers run: install it (`apt install python3`), then build again"
NO_PIP = "pip is needed to download the packages: `apt install python3-pip`, or `python3 -m ensurepip`"
Say = Callable[[str], None]


class Interpreter(msgspec.Struct, frozen=True):
    """The Python of containers. `places` are the folders in which it looks for packages."""

    version: tuple[int, int]
    implementation: str
    libc: str
    machine: str
    places: tuple[str, ...]

    def pip_flags(self) -> Iterator[str]:
        """Yield pip's flags for what this interpreter can load, whichever interpreter pip itself runs on."""
        major, minor = self.version
        yield from ("--python-version", f"{major}.{minor}", "--implementation", "cp", "--abi", f"cp{major}{minor}")
        yield from ("--abi", "abi3", "--abi", "none")
        for platform in self._platforms():
            yield from ("--platform", f"{platform}_{self.machine}")

    def _platforms(self) -> Iterator[str]:
        name, _, version = self.libc.partition(" ")
        if name == "glibc" and version.startswith("2."):
            newest = int(version.split(".")[1])
            yield from (f"manylinux_2_{minor}" for minor in range(newest, 4, -1))
            yield from ("manylinux2014", "manylinux2010", "manylinux1")
        else:
            yield from (f"musllinux_1_{minor}" for minor in (2, 1, 0))
        yield "linux"


async def build_stack(stack: DataStack, say: Say, *, index_url: str | None = None) -> StackRecord:
    """Make the stack, or a new one in its place; containers that run keep theirs. `say` is told of the progress.

    Raises `ImageError`, `ContainerError`. Nothing of a failed or killed attempt is used; the next one removes it.
    """
    if not os.access(PYTHON, os.X_OK):
        raise ImageError(NO_PYTHON)
    pip = await asyncio.to_thread(find_pip)
    await asyncio.to_thread(stack.shelf.sweep)
    async with LocalHost.open() as host:
        interpreter = await ask_interpreter(host)
        with stack.shelf.staging() as (staged, lock):
            await download(pip, interpreter, staged / WHEELS, say, index_url)
            await install(host, pip, staged, say)
            record = await tried(host, interpreter, staged, say)
            with explained(staged):
                remove_tree(staged / WHEELS)
                (staged / RECORD).write_bytes(msgspec.json.encode(record))
            with stack.shelf.locked():
                stack.shelf.publish(staged, lock, NAME, replace=True)
    with suppress(ImageError):
        await asyncio.to_thread(stack.shelf.sweep)  # what it has replaced, unless it is used
    return record


class Pip(msgspec.Struct, frozen=True):
    """A pip that runs here: the interpreter, and the folder with its files."""

    python: str
    folder: str


def find_pip() -> Pip:
    """Find a pip: of our own environment, or of the machine; none that lies in the working directory. Raises
    `ImageError`."""
    for python in dict.fromkeys((sys.executable, PYTHON)):
        words = [python, "-c", "import os, pip; print(os.path.dirname(os.path.realpath(pip.__file__)))"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=PIP_SECONDS, check=False, cwd="/")
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return Pip(python, done.stdout.strip())
    raise ImageError(NO_PIP)


async def ask_interpreter(host: LocalHost) -> Interpreter:
    """Ask the Python of containers what it is. Raises `ContainerError`, `ImageError`."""
    done = await _in_container(host, [PYTHON, "-I", "-c", ASK], ())
    if done.exit_code != 0:
        raise ImageError(f"{PYTHON} does not run in a container: {_last_words(done)}")
    found = msgspec.json.decode(done.stdout.text(), type=Interpreter)
    if found.implementation != "cpython" or not found.places:
        raise ImageError(f"{PYTHON} is no usual CPython: the data stack needs one, like Debian's python3")
    return found


async def download(pip: Pip, interpreter: Interpreter, folder: Path, say: Say, index_url: str | None) -> None:
    """Download the wheels, with pip's own configuration. Raises `ImageError`."""
    say(f"downloading wheels for Python {'.'.join(map(str, interpreter.version))}: {', '.join(MODULES)}")
    where = ["--index-url", index_url] if index_url else []
    words = ["download", "--only-binary=:all:", "--no-input", "--progress-bar=off", "--disable-pip-version-check"]
    process = await asyncio.create_subprocess_exec(
        *(pip.python, "-m", "pip", *words, *interpreter.pip_flags(), *where, "--dest", str(folder), *MODULES),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder.parent,
    )
    try:
        async with asyncio.timeout(DOWNLOAD_SECONDS):
            said = await _progress(process, say)
    except TimeoutError as error:
        raise ImageError(f"pip did not end in {DOWNLOAD_SECONDS / 60:g} minutes: look at the network") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ImageError(f"pip could not download the packages; look at `pip config list` or give --index-url: {said}")


async def _progress(process: asyncio.subprocess.Process, say: Say) -> str:
    """Tell of each wheel; return pip's last words."""
    assert process.stdout is not None
    said = ""
    while line := await process.stdout.readline():
        text = line.decode("utf-8", "replace").strip()
        said = f"{said}\n{text}"[-LAST_WORDS:] if not text.startswith("WARNING") else said
        if text.startswith("Saved "):
            say(f"  {os.path.basename(text.removeprefix('Saved '))}")
    await process.wait()
    return said.strip()


async def install(host: LocalHost, pip: Pip, staged: Path, say: Say) -> None:
    """Install the wheels into a folder, in a container. Raises `ContainerError`, `ImageError`."""
    say("installing them in a container without a network")
    (staged / PACKAGES).mkdir(mode=0o755)
    binds = (
        Bind(str(staged / WHEELS), "/mnt/wheels"),
        Bind(pip.folder, "/mnt/pip/pip"),
        Bind(str(staged / PACKAGES), "/mnt/packages", True),
    )
    line = f"PYTHONPATH=/mnt/pip {PYTHON} -m pip install --no-index --no-deps --no-input --no-cache-dir "
    line += "--disable-pip-version-check --no-warn-script-location --target /mnt/packages /mnt/wheels/*.whl"
    done = await _in_container(host, ["/bin/sh", "-c", line], binds)
    if done.exit_code != 0:
        raise ImageError(f"the packages could not be installed: {_last_words(done)}")


async def tried(host: LocalHost, interpreter: Interpreter, staged: Path, say: Say) -> StackRecord:
    """Import all of it in a container. Raises `ContainerError`, `ImageError`."""
    say("trying them")
    target = interpreter.places[0]
    words = [PYTHON, "-I", "-c", TRY, msgspec.json.encode(MODULES).decode(), target]
    done = await _in_container(host, words, (Bind(str(staged / PACKAGES), target),))
    if done.exit_code != 0:
        raise ImageError(f"the packages do not work in a container: {_last_words(done)}")
    return StackRecord(
        python=".".join(map(str, interpreter.version)),
        target=target,
        versions=msgspec.json.decode(done.stdout.text(), type=dict[str, str]),
        size=sum(path.lstat().st_size for path in (staged / PACKAGES).rglob("*")),
        created_at=time.time(),
    )


async def _in_container(host: LocalHost, words: Sequence[str], binds: tuple[Bind, ...]) -> Completed:
    settings = ContainerSettings(binds=binds, memory_bytes=MEMORY_BYTES, temporary=True)
    container: Container = await host.create(settings)
    try:
        return await container.run(words, timeout=INSTALL_SECONDS)
    except LaunchError as error:
        raise error if isinstance(error, ContainerError) else ContainerError(str(error)) from error
    finally:
        await container.aclose()


def _last_words(done: Completed) -> str:
    return (done.stderr.text() or done.stdout.text()).strip()[-LAST_WORDS:] or f"exit code {done.exit_code}"
