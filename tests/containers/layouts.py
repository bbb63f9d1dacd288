"""Images of our own making: layers from entries, OCI layouts and archives of `docker save` from layers."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ferrule.containers.images.source import machine

CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
Made = tuple[tarfile.TarInfo, bytes]


def entry(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", **fields: object) -> Made:
    """Any entry at all."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, 0o644, 1_600_000_000
    for key, value in fields.items():
        setattr(info, key, value)
    info.size = len(data)
    return info, data


def file(name: str, data: bytes = b"", mode: int = 0o644, **fields: object) -> Made:
    return entry(name, tarfile.REGTYPE, data, mode=mode, **fields)


def folder(name: str, mode: int = 0o755, **fields: object) -> Made:
    return entry(name, tarfile.DIRTYPE, b"", mode=mode, **fields)


def symlink(name: str, target: str) -> Made:
    return entry(name, tarfile.SYMTYPE, linkname=target, mode=0o777)


def link(name: str, target: str) -> Made:
    return entry(name, tarfile.LNKTYPE, linkname=target)


def layer(*entries: Made, form: int = tarfile.PAX_FORMAT) -> bytes:
    """The tar archive of a layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def gz(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def sha(data: bytes, algorithm: str = "sha256") -> str:
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


class Layout:
    """An OCI layout in a folder, that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, data: bytes, kind: str, algorithm: str = "sha256", **more: object) -> dict[str, object]:
        """Keep a blob; return its descriptor."""
        digest = sha(data, algorithm)
        place = self.path / "blobs" / algorithm / digest.partition(":")[2]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return {"mediaType": kind, "digest": digest, "size": len(data), **more}

    def document(self, value: object, kind: str, **more: object) -> dict[str, object]:
        return self.blob(json.dumps(value).encode(), kind, **more)  # type: ignore[arg-type]

    def image(
        self,
        layers: Sequence[bytes],
        pack: Callable[[bytes], bytes] = gz,
        layer_kind: str = f"{LAYER}+gzip",
        run: dict[str, object] | None = None,
        architecture: str | None = None,
        kinds: tuple[str, str] = (MANIFEST, CONFIG),
        algorithm: str = "sha256",
        **more: object,
    ) -> dict[str, object]:
        """Keep an image; return the descriptor of its manifest."""
        config = self.document(config_of(layers, run, architecture), kinds[1])
        blobs = [self.blob(pack(one), layer_kind, algorithm) for one in layers]
        return self.document(
            {"schemaVersion": 2, "mediaType": kinds[0], "config": config, "layers": blobs}, kinds[0], **more
        )

    def index(self, *manifests: dict[str, object]) -> Path:
        """Write index.json."""
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))
        return self.path


def config_of(layers: Iterable[bytes], run: dict[str, object] | None, architecture: str | None) -> dict[str, object]:
    return {
        "architecture": architecture or machine(),
        "os": "linux",
        "config": run or {},
        "rootfs": {"type": "layers", "diff_ids": [sha(one) for one in layers]},
    }


def layout(path: Path, *layers: bytes, **more: object) -> Path:
    """An OCI layout with one image."""
    made = Layout(path)
    return made.index(made.image(layers, **more))  # type: ignore[arg-type]


def docker_archive(path: Path, *layers: bytes, tags: Sequence[str] | None = ("demo:1",), **config: object) -> Path:
    """What an old `docker save` writes."""
    told = json.dumps({**config_of(layers, None, None), **config}).encode()
    names = [f"{number:064x}/layer.tar" for number in range(len(layers))]
    image = {"Config": f"{sha(told).partition(':')[2]}.json", "RepoTags": tags, "Layers": names}
    blobs = [file(name, data) for name, data in zip(names, layers, strict=True)]
    whole = layer(*blobs, file(image["Config"], told), file("manifest.json", json.dumps([image]).encode()))  # type: ignore[arg-type]
    path.write_bytes(whole)
    return path


def as_tar(folder_path: Path, path: Path) -> Path:
    """A layout as an archive."""
    with tarfile.open(path, "w") as archive:
        archive.add(folder_path, ".")
    return path
