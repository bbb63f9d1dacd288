"""The store of images: names, removal, several processes, kills, a full disk; and the command."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.cli.main import main
from ferrule.containers.images import ImageError, Images, UnknownImage
from ferrule.containers.images.store import default_name
from tests.containers.layouts import docker_archive, file, folder, layer, layout

ONE, TWO = layer(folder("a"), file("a/x", b"1")), layer(file("a/x", b"2"))
IMPORT = "import sys; from pathlib import Path; from ferrule.containers.images import Images\n"
IMPORT += "print(Images(Path(sys.argv[1])).import_(Path(sys.argv[2]), 'demo').digest)"


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "store")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return layout(tmp_path / "one", ONE)


def names(images: Images) -> list[str]:
    """What lies in the store's folder."""
    return sorted(set(os.listdir(images.store)) - {".lock"})


def importing(images: Images, source: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", IMPORT, images.store, source], stdout=subprocess.PIPE, text=True)


def test_an_image_is_imported_once_and_its_name_stays_its(images: Images, source: Path, tmp_path: Path) -> None:
    first = images.import_(source, "demo")
    (first.root / "mark").touch()
    assert images.import_(source, "demo") == first
    assert (first.root / "mark").exists()
    with pytest.raises(ImageError, match="another image demo: `ferrule runtime rm demo` first, or choose a --name"):
        images.import_(layout(tmp_path / "two", TWO), "demo")
    assert images.list() == [first]
    images.remove("demo")
    with pytest.raises(UnknownImage, match="there is no image 'demo'"):
        images.remove("demo")
    assert names(images) == []


def test_what_is_not_ours_is_left_alone(images: Images, source: Path) -> None:
    (images.store / "demo").mkdir(parents=True)
    (images.store / "demo" / "mine").touch()
    with pytest.raises(ImageError, match="is no image of ours"):
        images.import_(source, "demo")
    with pytest.raises(UnknownImage):
        images.remove("demo")
    assert images.list() == []
    assert (images.store / "demo" / "mine").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/x", ".hidden", "a/b", "a:b", "a,b", "x" * 101, "a\n"])
def test_a_bad_name_is_refused(images: Images, source: Path, name: str) -> None:
    with pytest.raises(ImageError, match="is no name for an image"):
        images.import_(source, name)
    with pytest.raises(UnknownImage):
        images.remove(name)


@pytest.mark.parametrize(
    ("reference", "path", "name"),
    [
        ("docker.io/library/python:3.11-slim", "x", "python-3.11-slim"),
        ("swebench/sweb.eval.x86_64.a_1776_b:latest", "x", "sweb.eval.x86_64.a_1776_b"),
        ("latest", "/tmp/debian.tar", "debian"),
        ("", "/tmp/my image.tar.gz", "my-image"),
        ("localhost:5000/a@sha256:00", "x", "a"),
    ],
)
def test_the_name_of_an_image_that_was_given_none(reference: str, path: str, name: str) -> None:
    assert default_name(reference, Path(path)) == name


def test_an_image_in_use_is_not_removed(images: Images, source: Path) -> None:
    images.import_(source, "demo")
    with images.using("demo"), images.using("demo") as image:
        with pytest.raises(ImageError, match="the image demo is in use: end the containers"):
            images.remove("demo")
        assert (image.root / "a/x").exists()
    images.remove("demo")


def test_several_processes_import_one_image(images: Images, source: Path) -> None:
    processes = [importing(images, source) for _ in range(3)]
    digests = {process.communicate(timeout=50)[0] for process in processes}
    assert {process.returncode for process in processes} == {0}
    assert digests == {images.get("demo").digest + "\n"}
    assert names(images) == ["demo"]


def test_what_a_killed_import_left_is_not_listed_and_goes_at_the_next(
    images: Images, source: Path, tmp_path: Path
) -> None:
    """The killed one waits for the rest of an archive that comes through a pipe, in the middle of a layer."""
    blob = max((source / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    slow = "from ferrule.containers.images import unpack\nimport time\nold = unpack._fill\n"
    slow += (
        "def fill(*words):\n    old(*words)\n    print('there', flush=True)\n    time.sleep(60)\nunpack._fill = fill\n"
    )
    words = [sys.executable, "-c", slow + IMPORT, str(images.store), str(source)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        images.sweep()
        assert len(names(images)) == 1  # it is still being made
        process.kill()
    assert blob.exists()
    assert images.list() == []
    (left,) = names(images)
    assert left.startswith(".import-")
    images.import_(source, "demo")
    assert names(images) == ["demo"]


def test_a_removal_that_was_killed_goes_on_at_the_next(images: Images, source: Path) -> None:
    images.import_(source, "demo")
    (images.store / "demo").rename(images.store / ".removed-00")
    images.sweep()
    assert names(images) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_is_told_and_nothing_stays(images: Images, tmp_path: Path) -> None:
    source = layout(tmp_path / "big", layer(*(file(str(number), os.urandom(1 << 19)) for number in range(6))))
    images.store.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", images.store], check=False)
    if done.returncode:
        pytest.skip("this root cannot mount a disk")
    try:
        with pytest.raises(ImageError, match=r"there is no space left to write .*: free some, or set FERRULE_HOME"):
            images.import_(source, "demo")
        assert names(images) == []
    finally:
        subprocess.run(["umount", images.store], check=True)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    archive = docker_archive(tmp_path / "saved.tar", ONE, tags=["demo:1"])
    assert main(["runtime", "list"]) == 0
    assert (
        "there are no images and no data stack; `ferrule runtime import LAYOUT|TAR` unpacks an image"
        in capsys.readouterr().err
    )
    assert main(["runtime", "import", str(archive)]) == 0
    assert capsys.readouterr().out.startswith("demo-1  ")
    assert main(["runtime", "import", str(archive), "--name", "other", "--ref", "demo:1"]) == 0
    capsys.readouterr()
    assert main(["runtime", "list", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == ["demo-1", "other"]
    assert lines[0]["root"] == str(tmp_path / "home/images/demo-1/rootfs")
    assert main(["runtime", "rm", "other"]) == 0
    capsys.readouterr()
    for words, code, told in (
        (["rm", "other"], 1, "ferrule: there is no image 'other': `ferrule runtime list` lists them"),
        (["import", str(tmp_path)], 1, f"ferrule: {tmp_path} is no image: give an OCI layout"),
        (["import", str(tmp_path / "no")], 1, f"ferrule: {tmp_path / 'no'}: No such file or directory"),
        (["build?"], 2, "ferrule: argument action: invalid choice"),
        ([], 2, "ferrule: `ferrule runtime` knows build, import, list and rm"),
    ):
        assert main(["runtime", *words]) == code
        assert capsys.readouterr().err.startswith(told)


def test_a_signal_ends_an_import_and_nothing_stays(images: Images, source: Path, tmp_path: Path) -> None:
    slow = "from ferrule.containers.images import unpack\nimport sys, time\nfrom ferrule.cli.main import main\n"
    slow += "def fill(*words):\n    print('there', flush=True)\n    time.sleep(60)\nunpack._fill = fill\n"
    slow += "sys.exit(main(['runtime', 'import', sys.argv[1], '--name', 'demo']))"
    env = {**os.environ, "FERRULE_HOME": str(tmp_path / "home")}
    words = [sys.executable, "-c", slow, str(source)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(50) == 130
    assert os.listdir(tmp_path / "home/images") == [".lock"]
