"""Images in every form that they are passed on in, and what is no image."""

import gzip
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule.containers.images import ImageConfig, ImageError, Images, ImportLimits, read_image
from ferrule.containers.images.source import machine
from tests.containers.layouts import (
    DOCKER_CONFIG,
    DOCKER_LAYER,
    DOCKER_LIST,
    DOCKER_MANIFEST,
    INDEX,
    LAYER,
    Layout,
    Made,
    as_tar,
    docker_archive,
    file,
    folder,
    gz,
    layer,
    layout,
    sha,
    symlink,
)

BASE = layer(folder("etc"), file("etc/name", b"base\n"), file("old"))
TOP = layer(file("etc/name", b"top\n"), file(".wh.old"))
NAME = "org.opencontainers.image.ref.name"
OTHER = "s390x" if machine() != "s390x" else "amd64"


def zst(data: bytes) -> bytes:
    zstandard = pytest.importorskip("zstandard")
    # As "zstd:chunked" layers are: several frames, and one that holds no data.
    halves = (data[: len(data) // 2], data[len(data) // 2 :])
    packed = b"\x50\x2a\x4d\x18\x04\0\0\0skip".join(zstandard.ZstdCompressor().compress(half) for half in halves)
    assert isinstance(packed, bytes)
    return packed


def members(data: bytes) -> bytes:
    """Gzip in several members, as pigz and eStargz write it, and padded."""
    return gz(data[:700]) + gz(data[700:]) + bytes(100)


def imported(tmp_path: Path, source: Path, **more: object) -> Path:
    return Images(tmp_path / "store").import_(source, "demo", **more).root  # type: ignore[arg-type]


def is_whole(root: Path) -> bool:
    return (root / "etc/name").read_text() == "top\n" and not (root / "old").exists()


def folder_of(path: Path) -> Path:
    return layout(path / "a", BASE, TOP)


def tar_of(path: Path) -> Path:
    return as_tar(folder_of(path), path / "a.tar")


def packed_tar_of(path: Path) -> Path:
    packed = path / "a.tar.gz"
    packed.write_bytes(gz(tar_of(path).read_bytes()))
    return packed


def newer_docker_save(path: Path) -> Path:
    """An OCI layout that has a manifest.json, too."""
    made = folder_of(path)
    (made / "manifest.json").write_text("[]")
    return as_tar(made, path / "a.tar")


def docker_kinds(path: Path) -> Path:
    return layout(path / "a", BASE, TOP, layer_kind=DOCKER_LAYER, kinds=(DOCKER_MANIFEST, DOCKER_CONFIG))


def plain(path: Path) -> Path:
    return layout(path / "a", BASE, TOP, pack=bytes, layer_kind=LAYER)


def zstd(path: Path) -> Path:
    return layout(path / "a", BASE, TOP, pack=zst, layer_kind=f"{LAYER}+zstd")


def several_members(path: Path) -> Path:
    return layout(path / "a", BASE, TOP, pack=members)


def sha512(path: Path) -> Path:
    return layout(path / "a", BASE, TOP, algorithm="sha512")


def old_docker_save(path: Path) -> Path:
    return docker_archive(path / "a.tar", BASE, TOP)


def old_docker_save_packed(path: Path) -> Path:
    packed = path / "a.tgz"
    packed.write_bytes(gz(docker_archive(path / "a.tar", BASE, TOP).read_bytes()))
    return packed


def old_docker_save_with_links(path: Path) -> Path:
    """Docker kept a layer once; where it appears again, a link leads to it."""
    made = docker_archive(path / "b.tar", BASE, TOP, BASE, TOP)
    with_links = layer(
        *(
            symlink(f"{2:064x}/layer.tar", f"../{0:064x}/layer.tar")
            if info.name == f"{2:064x}/layer.tar"
            else (info, data)
            for info, data in entries_of(made)
        )
    )
    (path / "a.tar").write_bytes(with_links)
    return path / "a.tar"


def entries_of(path: Path) -> list[Made]:
    with tarfile.open(path) as archive:
        return [(info, (archive.extractfile(info) or _none()).read()) for info in archive]


def _none() -> gzip.GzipFile:
    raise AssertionError


@pytest.mark.parametrize(
    "make",
    [
        folder_of,
        tar_of,
        packed_tar_of,
        newer_docker_save,
        docker_kinds,
        plain,
        zstd,
        several_members,
        sha512,
        old_docker_save,
        old_docker_save_packed,
        old_docker_save_with_links,
    ],
)
def test_every_form_gives_the_same_root(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    assert is_whole(imported(tmp_path, make(tmp_path)))


def test_how_to_run_it_is_kept(tmp_path: Path) -> None:
    run = {"Env": ["A=b"], "WorkingDir": "/w", "User": "5:6", "Entrypoint": ["sh"], "Cmd": ["-c"], "Labels": {"x": "y"}}
    with read_image(layout(tmp_path / "a", BASE, run=run)) as source:
        assert source.config == ImageConfig(
            architecture=machine(),
            env=("A=b",),
            working_dir="/w",
            user="5:6",
            entrypoint=("sh",),
            cmd=("-c",),
            labels={"x": "y"},
        )
    with read_image(layout(tmp_path / "b", BASE, run=dict.fromkeys(run))) as source:
        assert source.config == ImageConfig(architecture=machine())


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", [INDEX, DOCKER_LIST])
def test_of_several_platforms_this_machines_is_taken(tmp_path: Path, nested: bool, kind: str) -> None:
    made = Layout(tmp_path / "a")
    ours = {"os": "linux", "architecture": machine()}
    told = [
        made.image([BASE], architecture=OTHER, platform={"os": "linux", "architecture": OTHER}),
        made.image([BASE], architecture=machine(), platform={**ours, "variant": "v3"}),
        made.image([BASE, TOP], platform=ours),
        made.image([BASE], platform={"os": "unknown", "architecture": "unknown"}),
    ]
    if nested:
        inner = made.document({"schemaVersion": 2, "manifests": told}, kind, annotations={NAME: "x"})
        told = [made.document({"schemaVersion": 2, "manifests": [inner]}, kind)]
    for blob in (made.path / "blobs/sha256").iterdir():  # as `docker save` leaves it: the others are not there
        if blob.name == str(told[0]["digest"]).partition(":")[2] and not nested:
            blob.unlink()
    assert is_whole(imported(tmp_path, made.index(*told)))


def test_one_of_several_images_is_chosen_by_its_name(tmp_path: Path) -> None:
    made = Layout(tmp_path / "a")
    told = [
        made.image([BASE], annotations={NAME: "one"}),
        made.image([BASE, TOP], annotations={"io.containerd.image.name": "docker.io/library/two:1", NAME: "1"}),
    ]
    source = made.index(*told)
    with pytest.raises(ImageError, match=r"choose one with --ref; there are docker.io/library/two:1, one"):
        imported(tmp_path, source)
    with pytest.raises(ImageError, match="no image named 'three'"):
        imported(tmp_path, source, reference="three")
    assert is_whole(imported(tmp_path, source, reference="docker.io/library/two:1"))


def test_one_of_several_saved_images_is_chosen_by_its_tag(tmp_path: Path) -> None:
    one, two = (
        docker_archive(tmp_path / f"{tag}.tar", BASE, top, tags=[tag]) for tag, top in (("a:1", BASE), ("b:1", TOP))
    )
    kept = {info.name: (info, data) for path in (one, two) for info, data in entries_of(path)}
    # Their layers share names; the second archive's win, so only its image is whole.
    told = [json.loads(dict(entries_by_name(path))["manifest.json"])[0] for path in (one, two)]
    kept["manifest.json"] = file("manifest.json", json.dumps(told).encode())
    (tmp_path / "both.tar").write_bytes(layer(*kept.values()))
    with pytest.raises(ImageError, match="several images: choose one with --ref; there are a:1, b:1"):
        imported(tmp_path, tmp_path / "both.tar")
    assert is_whole(imported(tmp_path, tmp_path / "both.tar", reference="b:1"))


def entries_by_name(path: Path) -> list[tuple[str, bytes]]:
    return [(info.name, data) for info, data in entries_of(path)]


def foreign(path: Path) -> Path:
    return layout(path / "a", BASE, architecture=OTHER)


def foreign_index(path: Path) -> Path:
    made = Layout(path / "a")
    return made.index(made.image([BASE], platform={"os": "linux", "architecture": OTHER}))


def artifact(path: Path) -> Path:
    return layout(
        path / "a",
        BASE,
        kinds=("application/vnd.oci.image.manifest.v1+json", "application/vnd.cncf.helm.config.v1+json"),
    )


def signature(path: Path) -> Path:
    made = Layout(path / "a")
    return made.index(made.image([BASE], artifactType="application/vnd.dev.cosign.artifact.sig.v1+json"))


def old_schema(path: Path) -> Path:
    made = Layout(path / "a")
    return made.index(made.document({}, "application/vnd.docker.distribution.manifest.v1+prettyjws"))


def encrypted(path: Path) -> Path:
    return layout(path / "a", BASE, layer_kind=f"{LAYER}+gzip+encrypted")


def lacking(path: Path) -> Path:
    made = layout(path / "a", BASE)
    (made / "blobs/sha256" / sha(gz(BASE)).partition(":")[2]).unlink()
    return made


def changed(path: Path) -> Path:
    made = layout(path / "a", BASE)
    blob = made / "blobs/sha256" / sha(gz(BASE)).partition(":")[2]
    packed = gzip.compress(BASE, 1, mtime=1)  # the same archive, packed at another time
    assert len(packed) == blob.stat().st_size
    blob.write_bytes(packed)
    return made


def longer(path: Path) -> Path:
    made = layout(path / "a", BASE)
    blob = made / "blobs/sha256" / sha(gz(BASE)).partition(":")[2]
    blob.write_bytes(blob.read_bytes() + bytes(10))
    return made


def another_archive(path: Path) -> Path:
    """The layer's blob is right, but the configuration names another archive."""
    made = Layout(path / "a")
    told = made.image([BASE])
    manifest = json.loads((made.path / "blobs/sha256" / str(told["digest"]).partition(":")[2]).read_text())
    manifest["layers"] = [made.blob(gz(TOP), f"{LAYER}+gzip")]
    return made.index(made.document(manifest, str(told["mediaType"])))


def escaping_digest(path: Path) -> Path:
    made = Layout(path / "a")
    return made.index({**made.image([BASE]), "digest": "sha256:../../../../etc/passwd"})


def cut(path: Path) -> Path:
    whole = tar_of(path).read_bytes().rstrip(b"\0")
    (path / "cut.tar").write_bytes(whole[:-200])
    return path / "cut.tar"


def pipe(path: Path) -> Path:
    os.mkfifo(path / "pipe")
    return path / "pipe"


def index_is_a_pipe(path: Path) -> Path:
    made = folder_of(path)
    (made / "index.json").unlink()
    os.mkfifo(made / "index.json")
    return made


def exported(path: Path) -> Path:
    """What `docker export` writes: a root without anything about it."""
    (path / "root.tar").write_bytes(BASE)
    return path / "root.tar"


def too_many_ids(path: Path) -> Path:
    return docker_archive(path / "a.tar", BASE, rootfs={"diff_ids": []})


def bzip2(path: Path) -> Path:
    import bz2

    return layout(path / "a", BASE, pack=bz2.compress)


def text(path: Path) -> Path:
    (path / "notes").write_text("hello")
    return path / "notes"


def deep_index(path: Path) -> Path:
    made = Layout(path / "a")
    told = made.image([BASE])
    for _ in range(8):
        told = made.document({"manifests": [told]}, INDEX)
    return made.index(told)


def broken_json(path: Path) -> Path:
    made = folder_of(path)
    (made / "index.json").write_text("[" * 100_000)
    return made


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (foreign, f"is an image for linux/{OTHER}; this machine is linux/{machine()}: fetch it"),
        (foreign_index, f"no image for linux/{machine()}, only for linux/{OTHER}: fetch it"),
        (artifact, "holds 'application/vnd.cncf.helm.config.v1.json', which is no image"),
        (signature, "holds 'application/vnd.dev.cosign.artifact.sig.v1.json', which is no image"),
        (old_schema, "manifest.v1.prettyjws', which is no image"),
        (encrypted, r"a layer of the kind '.*\+encrypted', which cannot be unpacked"),
        (lacking, "lacks the layer sha256:[0-9a-f]{64}: fetch the image again"),
        (changed, "the content of sha256:[0-9a-f]{64} is another one"),
        (longer, r"has \d+ bytes or more, not \d+: fetch"),
        (another_archive, "the content of sha256:[0-9a-f]{64} is another one"),
        (escaping_digest, "is not a digest of SHA-256 or SHA-512"),
        (cut, "ends too early: fetch|is no image|or more, not"),
        (pipe, "is not a file"),
        (index_is_a_pipe, "is no image: give an OCI layout"),
        (exported, "is no image: give an OCI layout"),
        (too_many_ids, "has 1 layers, but its configuration names 0"),
        (bzip2, "packed with bzip2"),
        (text, "is no image: give an OCI layout"),
        (deep_index, "indexes within each other"),
        (broken_json, "index.json is not what it should be"),
        (lambda path: path / "nowhere", "nowhere: No such file or directory"),
        (lambda path: path, "is no image: give an OCI layout"),
    ],
)
def test_what_is_no_image_for_us_is_refused_in_a_sentence(
    tmp_path: Path, make: Callable[[Path], Path], told: str
) -> None:
    with pytest.raises(ImageError, match=told):
        imported(tmp_path, make(tmp_path))
    assert Images(tmp_path / "store").list() == []
    assert os.listdir(tmp_path / "store") == [".lock"]


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    limits = ImportLimits(free_bytes=1 << 20, ratio=20)
    bomb = layout(tmp_path / "a", layer(file("zeros", bytes(8 << 20))))
    with pytest.raises(ImageError, match="more than 20 times its size"):
        imported(tmp_path, bomb, limits=limits)
    with pytest.raises(ImageError, match="more than 1,000,000 bytes"):
        imported(tmp_path, bomb, limits=ImportLimits(bytes=1_000_000))
    with pytest.raises(ImageError, match="more than 2 files"):
        imported(tmp_path, layout(tmp_path / "b", BASE), limits=ImportLimits(entries=2))
    packed = tmp_path / "c.tar.gz"
    packed.write_bytes(gz(bytes(8 << 20)))
    with pytest.raises(ImageError, match="more than 20 times its size"):
        imported(tmp_path, packed, limits=limits)
    assert os.listdir(tmp_path / "store") == [".lock"]
    shutil.rmtree(tmp_path / "store")
