"""Loopback servers that hold one package each of pip, npm and git, behind names that are mapped to them."""

import base64
import hashlib
import io
import json
import ssl
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import msgspec

from ferrule.egress.authority import Authority
from ferrule.protocol.permissions import InContainer, WorkspaceWrite
from tests.http_servers import HttpServer, Silent, listening

NAME = "index.example.com"
SAID = "from the index\n"


class PackageIndex(msgspec.Struct, frozen=True):
    """What a policy needs to let commands reach the server, and nothing else of this machine."""

    ca_file: str
    https: int
    http: int

    @property
    def hosts(self) -> dict[str, str]:
        return {f"{NAME}:443": f"127.0.0.1:{self.https}", f"{NAME}:80": f"127.0.0.1:{self.http}"}

    def policy(self, *names: str) -> WorkspaceWrite:
        return WorkspaceWrite(network_access=names or (NAME,), hosts=self.hosts, ca_file=self.ca_file)

    def contained(self, *names: str, image: str | None = None) -> InContainer:
        return InContainer(network_access=names or (NAME,), hosts=self.hosts, ca_file=self.ca_file, image=image)


@contextmanager
def package_index(folder: Path) -> Iterator[PackageIndex]:
    """Serve what is made in the folder."""
    authority = Authority()
    ca_file, site = folder / "ca.pem", folder / "site"
    site.mkdir()
    ca_file.write_bytes(authority.pem)
    _pip_package(site)
    _npm_package(site)
    _repository(folder / "work", site / "project.git")
    with _served(site, authority.context(NAME)) as https, _served(site, None) as http:
        yield PackageIndex(str(ca_file), https, http)


class _Handler(Silent, SimpleHTTPRequestHandler):
    """Serves files."""


@contextmanager
def _served(site: Path, context: ssl.SSLContext | None) -> Iterator[int]:
    with listening(HttpServer(partial(_Handler, directory=str(site)), context)) as server:
        yield server.server_port


def _pip_package(site: Path) -> None:
    page = site / "simple" / "tiny-package"
    page.mkdir(parents=True)
    wheel = "tiny_package-1.0-py3-none-any.whl"
    meta = "tiny_package-1.0.dist-info"
    files = {
        "tiny_package.py": f"SAID = {SAID!r}\n",
        f"{meta}/METADATA": "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n",
        f"{meta}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{meta}/RECORD"])
    with zipfile.ZipFile(page / wheel, "w") as archive:
        for name, text in {**files, f"{meta}/RECORD": record}.items():
            archive.writestr(name, text)
    (page / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')


def _npm_package(site: Path) -> None:
    packed = io.BytesIO()
    files = {"package.json": '{"name": "tiny", "version": "1.0.0"}', "index.js": f"module.exports = {json.dumps(SAID)}"}
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    digest = base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()
    version = {
        "name": "tiny",
        "version": "1.0.0",
        "dist": {"tarball": f"https://{NAME}/tiny-1.0.0.tgz", "integrity": f"sha512-{digest}"},
    }
    (site / "tiny-1.0.0.tgz").write_bytes(packed.getvalue())
    (site / "tiny").write_text(
        json.dumps({"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}})
    )


def _repository(work: Path, bare: Path) -> None:
    """Make a repository that git reads as plain files."""
    work.mkdir()
    (work / "said").write_text(SAID)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
    for words in (
        ["init", "-q"],
        ["add", "said"],
        ["commit", "-qm", "first"],
        ["clone", "-q", "--bare", ".", str(bare)],
    ):
        subprocess.run(["git", *who, *words], cwd=work, check=True)
    subprocess.run(["git", "update-server-info"], cwd=bare, check=True)
