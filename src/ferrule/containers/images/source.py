"""Find the image for this machine in an OCI layout or in what `docker save` writes, and how to run it.

https://github.com/opencontainers/image-spec: image-layout.md, image-index.md, manifest.md, config.md. An old `docker
save` has a manifest.json of its own kind; the newer ones are OCI layouts, too.
"""

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from ferrule.containers.images.blobs import NO_IMAGE, Blobs, open_blobs, read_all, read_blocks
from ferrule.containers.images.errors import ImageError, readable
from ferrule.containers.images.limits import MAX_DOCUMENT, MAX_DOCUMENTS, MAX_LAYERS, MAX_NESTING, ImportLimits
from ferrule.containers.images.streams import checked_digest, verified

MACHINES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i686": "386",
}
"""The kernel's name of a machine -> the name in images, where the two differ."""
INDEXES = frozenset(
    {
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    }
)
MANIFESTS = frozenset(
    {
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    }
)
CONFIGS = frozenset(
    {
        "application/vnd.oci.image.config.v1+json",
        "application/vnd.docker.container.image.v1+json",
    }
)
LAYER = re.compile(
    r"application/vnd\.oci\.image\.layer\.(nondistributable\.)?v1\.tar(\+gzip|\+zstd)?"
    r"|application/vnd\.docker\.image\.rootfs\.(foreign\.)?diff\.tar(\.gzip|\.zstd)?"
)
FULL_NAME, SHORT_NAME = "io.containerd.image.name", "org.opencontainers.image.ref.name"
ATTESTS = "vnd.docker.reference.type"
AGAIN = "fetch the image again"
_HEX = re.compile(r"[0-9a-f]{64}")
T = TypeVar("T")


class ImageConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to run an image. `env` is a list of NAME=VALUE, in the image's order."""

    architecture: str = ""
    env: tuple[str, ...] = ()
    working_dir: str = ""
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    labels: dict[str, str] = {}

    @property
    def variables(self) -> dict[str, str]:
        """The variables by name."""
        pairs = (entry.partition("=") for entry in self.env)
        return {name: value for name, equals, value in pairs if name and equals}


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer: where its blob is, what the blob must be (unknown in old archives), and the tar archive in it."""

    name: str
    digest: str | None
    size: int | None
    diff_id: str


class ImageSource(msgspec.Struct, frozen=True, kw_only=True):
    """An image that has not been unpacked. `digest` is its manifest's, or its configuration's where there is none."""

    blobs: Blobs
    reference: str
    digest: str
    config: ImageConfig
    layers: tuple[Layer, ...]

    def packed(self, layer: Layer) -> Iterator[bytes]:
        """Yield a layer's blob in blocks. Raises `ImageError`, at the end if it is another one."""
        blocks = read_blocks(self.blobs, layer.name)
        return blocks if layer.digest is None else verified(blocks, layer.digest, layer.size)


class _Platform(msgspec.Struct):
    architecture: str = ""
    os: str = ""
    variant: str | None = None

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


class _Descriptor(msgspec.Struct, rename="camel"):
    digest: str
    size: int
    media_type: str = ""
    platform: _Platform | None = None
    annotations: dict[str, str] | None = None
    artifact_type: str | None = None

    def note(self, key: str) -> str:
        return (self.annotations or {}).get(key, "")


class _Index(msgspec.Struct):
    manifests: list[_Descriptor]


class _Manifest(msgspec.Struct):
    config: _Descriptor
    layers: list[_Descriptor]


class _Run(msgspec.Struct, rename="pascal"):
    env: list[str] | None = None
    working_dir: str | None = None
    user: str | None = None
    entrypoint: list[str] | str | None = None
    cmd: list[str] | str | None = None
    labels: dict[str, str] | None = None


class _RootFs(msgspec.Struct):
    diff_ids: list[str] | None = None


class _Config(msgspec.Struct):
    architecture: str = ""
    os: str = ""
    config: _Run | None = None
    rootfs: _RootFs | None = None


class _Archived(msgspec.Struct, rename="pascal"):
    """An entry of the manifest.json of `docker save`."""

    config: str
    layers: list[str] | None = None
    repo_tags: list[str] | None = None


class _Found(msgspec.Struct):
    """A manifest that some index names, and the name of the image."""

    descriptor: _Descriptor
    names: tuple[str, ...]


@contextmanager
def read_image(
    path: Path, reference: str | None = None, *, scratch: Path | None = None, limits: ImportLimits | None = None
) -> Iterator[ImageSource]:
    """Open an OCI layout (a folder, or a tar of it) or an archive of `docker save`, packed as a whole or not.

    `reference` chooses one of several images. Raises `ImageError`.
    """
    with open_blobs(path, scratch, limits or ImportLimits()) as blobs:
        if blobs.has("index.json") and blobs.has("oci-layout"):
            yield _of_layout(blobs, path, reference)
        elif blobs.has("manifest.json"):
            yield _of_archive(blobs, path, reference)
        elif blobs.has("repositories"):
            raise ImageError(f"{path} was written by a Docker older than 1.10: load and save it with a newer one")
        else:
            raise ImageError(NO_IMAGE.format(path))


def machine() -> str:
    """Return what images call this machine."""
    return MACHINES.get(platform.machine(), platform.machine())


def _of_layout(blobs: Blobs, path: Path, reference: str | None) -> ImageSource:
    index = _decoded(read_all(blobs, "index.json", MAX_DOCUMENT), _Index, "index.json")
    reader = _Reader(blobs)
    chosen = _chosen(list(_manifests(reader, index.manifests, ())), path, reference)
    manifest = reader.document(chosen.descriptor, _Manifest)
    if manifest.config.media_type not in CONFIGS:
        raise ImageError(
            f"{path} holds {readable(manifest.config.media_type) or 'something'!r}, which is no image of a system"
        )
    config = reader.document(manifest.config, _Config)
    for layer in manifest.layers:
        if not LAYER.fullmatch(layer.media_type):
            raise ImageError(f"{path} has a layer of the kind {readable(layer.media_type)!r}, which cannot be unpacked")
        if not blobs.has(_blob(layer.digest)):
            raise ImageError(f"{path} lacks the layer {layer.digest}: {AGAIN}, with all its layers")
    layers = tuple(
        Layer(name=_blob(layer.digest), digest=layer.digest, size=layer.size, diff_id=diff_id)
        for layer, diff_id in zip(manifest.layers, _diff_ids(config, len(manifest.layers), path), strict=True)
    )
    return ImageSource(
        blobs=blobs,
        reference=next(iter(chosen.names), ""),
        digest=chosen.descriptor.digest,
        config=_run_config(config, path),
        layers=layers,
    )


class _Reader:
    """Reads the documents of a layout: a bounded number, each of the digest and size that was told."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._left = MAX_DOCUMENTS

    def document(self, told: _Descriptor, kind: type[T]) -> T:
        self._left -= 1
        if self._left < 0:
            raise ImageError(f"the image has more than {MAX_DOCUMENTS} manifests: copy out the one for this machine")
        name = _blob(told.digest)
        data = read_all(self._blobs, name, MAX_DOCUMENT)
        for _ in verified(iter([data]), told.digest, told.size):
            pass
        return _decoded(data, kind, name)

    def has(self, told: _Descriptor) -> bool:
        return self._blobs.has(_blob(told.digest))


def _manifests(reader: _Reader, told: list[_Descriptor], names: tuple[str, ...], depth: int = 0) -> Iterator[_Found]:
    """Yield the manifests below an index; what is missing is only a matter if it is for this machine."""
    if depth > MAX_NESTING:
        raise ImageError(f"the image has more than {MAX_NESTING} indexes within each other: copy out the inner one")
    for one in told:
        own = tuple(filter(None, (one.note(FULL_NAME), one.note(SHORT_NAME)))) or names
        if one.note(ATTESTS) or (one.platform is not None and one.platform.architecture == "unknown"):
            continue
        if one.media_type in INDEXES:
            if _may_run(one) and (reader.has(one) or depth == 0):
                yield from _manifests(reader, reader.document(one, _Index).manifests, own, depth + 1)
        else:
            yield _Found(one, own)


def _may_run(told: _Descriptor) -> bool:
    return told.platform is None or (told.platform.os == "linux" and told.platform.architecture == machine())


def _chosen(found: list[_Found], path: Path, reference: str | None) -> _Found:
    named = [one for one in found if reference is None or reference in one.names]
    if not named:
        raise ImageError(
            f"{path} has no image named {reference!r}; {_listed(found)}" if found else NO_IMAGE.format(path)
        )
    usable = [one for one in named if _may_run(one.descriptor)]
    images = [one for one in usable if one.descriptor.media_type in MANIFESTS and not one.descriptor.artifact_type]
    if not images and usable:
        kind = readable(usable[0].descriptor.artifact_type or usable[0].descriptor.media_type)
        raise ImageError(f"{path} holds {kind!r}, which is no image of a system")
    if not images:
        there = readable(", ".join(sorted({str(one.descriptor.platform) for one in named})))
        raise ImageError(f"{path} has no image for linux/{machine()}, only for {there}: fetch it for this machine")
    if len({one.names for one in images}) > 1 or (not images[0].names and len({_key(one) for one in images}) > 1):
        raise ImageError(f"{path} has several images: choose one with --ref; {_listed(images)}")
    return min(images, key=_preference)


def _key(found: _Found) -> str:
    platform_told = found.descriptor.platform
    return found.descriptor.digest if platform_told is None else "for a platform"


def _preference(found: _Found) -> tuple[bool, str]:
    """Prefer what says that it is for this machine, and of its variants the one that asks least of it."""
    told = found.descriptor.platform
    return told is None, (told.variant or "") if told else ""


def _listed(found: list[_Found]) -> str:
    names = sorted({name for one in found for name in one.names[:1]})
    return (
        f"there are {readable(', '.join(names))}" if names else "they have no names: copy one into a layout of its own"
    )


def _of_archive(blobs: Blobs, path: Path, reference: str | None) -> ImageSource:
    listed = _decoded(read_all(blobs, "manifest.json", MAX_DOCUMENT), list[_Archived], "manifest.json")
    named = [one for one in listed if reference is None or reference in (one.repo_tags or ())]
    if len(named) != 1:
        tags = readable(", ".join(tag for one in listed for tag in one.repo_tags or ())) or "none with a name"
        problem = "several images: choose one with --ref" if named else f"no image named {reference!r}"
        raise ImageError(f"{path} has {problem}; there are {tags}" if listed else NO_IMAGE.format(path))
    image = named[0]
    data = read_all(blobs, image.config, MAX_DOCUMENT)
    digest = _digest_of_name(image.config.removesuffix(".json"))
    if digest is None:
        raise ImageError(
            f"{path} has a configuration whose name is no digest ({readable(image.config)}): save the image again"
        )
    for _ in verified(iter([data]), digest):
        pass
    config = _decoded(data, _Config, image.config)
    names = image.layers or []
    layers = tuple(
        Layer(name=name, digest=_digest_of_name(name), size=None, diff_id=diff_id)
        for name, diff_id in zip(names, _diff_ids(config, len(names), path), strict=True)
    )
    return ImageSource(
        blobs=blobs,
        reference=next(iter(image.repo_tags or ()), ""),
        digest=digest,
        config=_run_config(config, path),
        layers=layers,
    )


def _digest_of_name(name: str) -> str | None:
    last = name.rpartition("/")[2]
    return f"sha256:{last}" if _HEX.fullmatch(last) else None


def _blob(digest: str) -> str:
    return f"blobs/{checked_digest(digest).replace(':', '/')}"


def _diff_ids(config: _Config, layers: int, path: Path) -> list[str]:
    ids = (config.rootfs and config.rootfs.diff_ids) or []
    if layers > MAX_LAYERS:
        raise ImageError(f"{path} has {layers} layers, more than {MAX_LAYERS}: flatten it")
    if len(ids) != layers or not layers:
        raise ImageError(f"{path} has {layers} layers, but its configuration names {len(ids)}: {AGAIN}")
    return [checked_digest(one) for one in ids]


def _run_config(told: _Config, path: Path) -> ImageConfig:
    if (told.os or "linux") != "linux" or (told.architecture or machine()) != machine():
        there = readable(f"{told.os}/{told.architecture}")
        raise ImageError(f"{path} is an image for {there}; this machine is linux/{machine()}: fetch it for this one")
    run = told.config or _Run()
    return ImageConfig(
        architecture=told.architecture,
        env=tuple(run.env or ()),
        working_dir=run.working_dir or "",
        user=run.user or "",
        entrypoint=_words(run.entrypoint),
        cmd=_words(run.cmd),
        labels=run.labels or {},
    )


def _words(told: list[str] | str | None) -> tuple[str, ...]:
    return (told,) if isinstance(told, str) else tuple(told or ())


def _decoded(data: bytes, kind: type[T], name: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ImageError(f"{readable(name)} is not what it should be ({error}): {AGAIN}") from error
