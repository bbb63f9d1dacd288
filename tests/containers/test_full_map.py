"""Containers with many user ids, on a small Debian root: what works with them, what is told without, what gets out."""

import os
import shutil
from pathlib import Path

import pytest

from ferrule.containers import ContainerSettings, HostLimits, LocalHost
from ferrule.containers.images import Image, Images
from ferrule.sandbox.linux.holders import FIRST_ID, IDS, can_map_ids
from ferrule.sandbox.linux.root import Bind
from tests.containers.debian import debian, package
from tests.containers.test_escape import readable_by
from tests.sandbox.scene import Scene


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, place: Path) -> Image:
    place.mkdir(exist_ok=True)
    folder = tmp_path_factory.mktemp("debian")
    return Images(place.parent / "images").import_(debian(folder, "games"), "debian", own=can_map_ids(place))


@pytest.fixture
def mapped(place: Path) -> None:
    place.mkdir(exist_ok=True)
    if not can_map_ids(place):
        pytest.skip("it takes root, and a file system that can be mounted with other ids")


async def test_debian_runs(host: LocalHost, image: Image) -> None:
    container = await host.create(ContainerSettings(root=str(image.root)))
    done = await container.run("dpkg -l | grep -c '^ii'; . /etc/os-release; echo $ID; bash -c 'echo $((6 * 7))'")
    count, *rest = done.stdout.text().split()
    assert (int(count) > 20, rest) == (True, ["debian", "42"]), done


@pytest.mark.usefixtures("mapped")
async def test_chown_su_and_packages_work(host: LocalHost, image: Image, tmp_path: Path) -> None:
    binds = (Bind(str(tmp_path), "/mnt/work", True),)
    container = await host.create(ContainerSettings(root=str(image.root), binds=binds))
    shutil.copy(package(tmp_path), container.folder)
    script = "dpkg -i demo.deb >&2 && ls -l /usr/games/mine && su games -c 'id -un; cat /usr/games/mine; ls /root' 2>&1"
    done = await container.run(script)
    first, *rest = done.stdout.text().splitlines()
    assert first.startswith("-rw------- 1 games games "), done
    assert rest == ["games", "of games", "ls: cannot open directory '/root': Permission denied"]
    assert (await container.run("kill -0 1; sleep 60 & su games -c 'kill $(pidof sleep)'")).exit_code != 0
    done = await container.run("echo x > /mnt/work/new; mkdir /mnt/work/d; chown games /mnt/work/new; ls -n /mnt/work")
    assert "Invalid argument" in done.stderr.text() or "Value too large" in done.stderr.text()
    assert {(path.stat().st_uid, path.stat().st_gid) for path in tmp_path.iterdir()} == {(os.getuid(), os.getgid())}
    status = Path(f"/proc/{container.holder_pid}/status").read_text()
    assert f"Uid:\t{FIRST_ID}\t{FIRST_ID}" in status
    maps = Path(f"/proc/{container.holder_pid}/uid_map").read_text().split()
    assert maps == ["0", str(FIRST_ID), str(IDS)]


@pytest.mark.usefixtures("mapped")
async def test_commands_run_as_the_images_user(host: LocalHost, image: Image) -> None:
    container = await host.create(ContainerSettings(root=str(image.root), user=image.config.user))
    done = await container.run(
        "id; echo $HOME $USER; touch /mnt/data/mine; touch /etc/x; grep 'Cap[IPEA].*[^0]$' /proc/self/status"
    )
    assert done.stdout.text() == "uid=5(games) gid=60(games) groups=60(games),8(mail)\n/usr/games games\n", done
    assert "/etc/x" in done.stderr.text() and "data" not in done.stderr.text()
    other = await host.create(ContainerSettings(root=str(image.root), user="8:mail"))
    assert (await other.run("id")).stdout.text() == "uid=8 gid=8(mail) groups=8(mail)\n"


async def test_without_a_map_the_images_user_is_told_of_once(image: Image) -> None:
    with Scene(65534) as scene:
        folder = scene.base / "kept" / "containers"
        shutil.copytree(image.root, scene.base / "kept" / "root", symlinks=True)
        readable_by(65534, scene.base / "kept" / "root")
        host = LocalHost.open(folder, limits=HostLimits(groups=False), interpreter=scene.interpreter)
        container = host.adopt(ContainerSettings(root=str(scene.base / "kept" / "root"), user="games"))
        readable_by(65534, container.folder.parent)
        async with host:
            first, second = await container.run("id -u"), await container.run("id -u")
            assert not container.mapped
            assert (first.stdout.text(), second.stdout.text()) == ("0\n", "0\n")
            assert "[the image's user games cannot be had" in first.stderr.text()
            assert second.stderr.text() == ""
            await container.aclose()
