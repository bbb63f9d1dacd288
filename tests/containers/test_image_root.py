"""A container on a file system of its own: a small one, made of this machine's shell and a few programs."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule.cli.main import main
from ferrule.containers import Container, ContainerError, ContainerSettings, LocalHost
from ferrule.containers.images import Way
from ferrule.sandbox.linux.root import bind_in_place
from tests.containers.layouts import layout
from tests.containers.small import packed, small_root
from tests.sandbox.scene import temporary_folder

PROGRAMS = ("sh", "ls", "cat", "id", "rm", "mkdir", "head", "chown")


@pytest.fixture(scope="module")
def root(place: Path) -> Iterator[Path]:
    with temporary_folder() as folder:
        root = folder / "a root, with: odd letters"
        small_root(root, PROGRAMS)
        (root / "etc").mkdir()
        (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (root / "etc" / "hosts").symlink_to("/etc/passwd")
        (root / "tmp").symlink_to("../../../../var/tmp")
        yield root


def listing(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in folder.rglob("*")
    }


async def changed(container: Container) -> None:
    (container.skills_folder / "SKILL.md").write_text("read me")
    await container.run("cat /mnt/skills/SKILL.md && echo x > /mnt/skills/SKILL.md || rm -r /mnt/skills")
    assert (container.skills_folder / "SKILL.md").read_text() == "read me"
    done = await container.run(
        "id -u; cat /etc/hosts | head -1; rm /etc/passwd /bin/rm; mkdir /new; echo x > /etc/x; ls /"
    )
    first, second, *names = done.stdout.text().splitlines()
    assert (first, second) == ("0", "127.0.0.1 localhost container"), done
    assert "new" in names and "usr" not in names


async def test_changes_lie_in_a_layer(host: LocalHost, root: Path) -> None:
    before = listing(root)
    settings = ContainerSettings(root=str(root))
    first, second = await host.create(settings), await host.create(settings)
    await changed(first)
    assert (await second.run("ls /etc/passwd /bin/rm")).exit_code == 0, "containers share changes"
    await first.stop()
    again = await first.run("ls /new /etc; cat /proc/self/mountinfo")
    assert "passwd" not in again.stdout.text().split("-")[0] and "odd letters" not in again.stdout.text()
    assert (await first.run("chown 1 /etc/x")).exit_code == (0 if first.mapped else 1)
    for refused in ("echo 1 > /proc/sys/kernel/core_pattern", "cat /usr/bin/env"):
        assert (await first.run(refused)).exit_code, refused
    for container in (first, second):
        await container.aclose()
    assert listing(root) == before


def test_an_imported_image_runs_with_its_own_settings(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    run: dict[str, object] = {"Env": ["GREETING=hello", "PATH=/bin"], "WorkingDir": "/etc"}
    layout(tmp_path / "layout", packed(root), run=run)
    assert main(["runtime", "import", str(tmp_path / "layout"), "--name", "small"]) == 0
    capfd.readouterr()
    script = "echo $GREETING $MORE; pwd; id -u; cat passwd"
    assert main(["container", "run", "--image", "small", "--env", "MORE=x", "--", "sh", "-c", script]) == 0
    assert capfd.readouterr().out == "hello x\n/etc\n0\nroot:x:0:0:root:/root:/bin/sh\n"
    assert main(["container", "run", "--image", "none", "--", "sh"]) == 1
    assert "none" in capfd.readouterr().err
    assert main(["container", "run", "--image", "small", "--root", "/", "--", "sh"]) == 2


async def test_its_layer_is_bounded(host: LocalHost, root: Path) -> None:
    container = await host.create(ContainerSettings(root=str(root), disk_bytes=10 << 20))
    flood = "n=0; while true; do n=$((n + 1)); head -c 3000000 /dev/zero > /f$n; done"
    done = await container.run(flood, timeout=50)
    assert done.status.signal == 9 and "remove some" in done.stderr.text()
    await container.aclose()


async def test_no_such_root(host: LocalHost, tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match="no folder with the files"):
        await host.create(ContainerSettings(root=str(tmp_path / "missing")))


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[Path]:
    """A folder over which no overlay can be laid, because it is one itself, as in Docker."""
    if os.getuid():
        pytest.skip("only root can mount an overlay for this test")
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    done = subprocess.run(["mount", "-t", "overlay", "-o", options, "none", tmp_path / "merged"], check=False)
    if done.returncode:
        pytest.skip("this kernel mounts no overlay")
    yield tmp_path / "merged"
    subprocess.run(["umount", tmp_path / "merged"], check=True)


async def test_where_no_overlay_can_be_laid_a_container_has_a_copy(refusing: Path, root: Path) -> None:
    async with LocalHost.open(refusing / "containers") as host:
        container = await host.create(ContainerSettings(root=str(root)))
        assert container.layer in (Way.REFLINK, Way.COPY)
        assert (await container.run("echo x > /new; rm /bin/cat; ls /new")).stdout.text() == "/new\n"
        await container.stop()
        assert (await container.run("ls /new /bin")).stdout.text().split() == [
            "/new",
            "/bin:",
            *sorted({*PROGRAMS} - {"cat"}),
        ]
        assert not (root / "new").exists() and (root / "bin/cat").exists()
        await container.aclose()


def test_plain_code_on_a_root(root: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(place.parent))
    with Container.open(root=str(root)) as container:
        assert container.run_sync("ls /bin").stdout.text().split() == sorted(PROGRAMS)


async def test_a_link_where_a_folder_has_to_be_shown(host: LocalHost, root: Path, tmp_path: Path) -> None:
    """A command could replace the link, and then nothing would protect what is shown."""
    path = os.path.realpath(tmp_path)
    top = root / path.split("/")[1]
    before = os.readlink(top) if top.is_symlink() else None
    top.unlink(missing_ok=True)
    top.symlink_to("bin")
    with pytest.raises(ContainerError, match="there is a link in the image"):
        await host.create(ContainerSettings(root=str(root), binds=(bind_in_place(path),)))
    top.unlink()
    if before is not None:
        top.symlink_to(before)


@pytest.mark.parametrize("target", ["/proc/1/root", "mnt"])
async def test_an_image_whose_links_lead_to_no_folder_is_refused_as_what_it_is(
    host: LocalHost, tmp_path: Path, target: str
) -> None:
    (tmp_path / "mnt").symlink_to(target)
    with pytest.raises(ContainerError, match=r"could not be made: (open|move_mount) /"):
        await host.create(ContainerSettings(root=str(tmp_path)))
