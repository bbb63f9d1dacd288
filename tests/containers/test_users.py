"""Containers on the machine's programs with users of their own: commands as each of them, files as each would open
them."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from ferrule.containers import Container, ContainerError, ContainerSettings, LocalHost
from ferrule.containers.errors import NoSuchUser
from ferrule.process.launcher import Child, Launcher, LaunchError, Limits, Pipes, Stdio
from ferrule.process.run import Completed, run
from ferrule.sandbox.linux.root import Account

NEW = os.O_WRONLY | os.O_CREAT
ANN = (
    "echo ann:x:1001:1001::/home/ann:/bin/sh >> /etc/passwd; echo ann:x:1001: >> /etc/group; "
    "mkdir -m 700 /home/ann; chown 1001:1001 /home/ann"
)


@pytest.fixture
async def container(host: LocalHost) -> AsyncIterator[Container]:
    made = await host.create(ContainerSettings(users=True, max_processes=400))
    if not made.mapped:
        pytest.skip("it takes root, and a file system that can be mounted with other ids")
    yield made
    await made.aclose()


async def as_user(container: Container, user: str, line: str) -> Completed:
    account = await container.account_named(user)

    class ByUser(Launcher):
        async def launch(
            self, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdio: Stdio, limits: Limits
        ) -> Child:
            return await container.launch(argv, env, cwd, stdio, limits, account=account)

    return await run(ByUser(), ["/bin/sh", "-c", line], env=container.environment, cwd="/tmp")


async def test_root_makes_users_and_each_has_its_own_rights(container: Container) -> None:
    made = await container.run(f"id -un; {ANN}; echo secret > /root/mine; touch /usr/x")
    assert made.stdout.text() == "root\n"
    assert "Read-only" in made.stderr.text()
    line = "id; echo x > /home/ann/x; cat /root/mine /etc/shadow; grep Eff /proc/self/status"
    done = await as_user(container, "ann", line)
    identity, capabilities = done.stdout.text().splitlines()
    assert identity == "uid=1001(ann) gid=1001(ann) groups=1001(ann)"
    assert capabilities.split() == ["CapEff:", "0" * 16]
    assert done.stderr.text().count("Permission denied") == 2
    assert (await as_user(container, "nobody", "cat /home/ann/x")).exit_code == 1
    assert (await as_user(container, "4242", "id -u")).stdout.text() == "4242\n"
    assert (await as_user(container, "root", "cat /home/ann/x")).stdout.text() == "x\n"


async def test_a_user_that_is_not_there_is_named(container: Container) -> None:
    with pytest.raises(NoSuchUser, match="unable to find user nobody-here"):
        await container.account_named("nobody-here")


async def test_a_table_that_is_a_trap_is_none(container: Container) -> None:
    await container.run("rm /etc/passwd; mkfifo /etc/passwd")
    with pytest.raises(NoSuchUser):
        await container.account_named("ann")
    assert (await container.account_named("0")).user == 0


async def test_files_are_opened_as_a_command_would(container: Container) -> None:
    ann = Account(user=1001, group=1001, groups=(1001,))
    await container.run(f"{ANN}; ln -s /root/x /home/ann/link; mkfifo /home/ann/pipe")
    fd = await container.open_file("/srv/new/folders/file", NEW)
    os.write(fd, b"ours\n")
    os.close(fd)
    done = await container.run("cat /srv/new/folders/file; stat -c %U /srv/new/folders")
    assert done.stdout.text() == "ours\nroot\n"
    for path, flags, error in (
        ("/root/mine", NEW, PermissionError),
        ("/home/ann/link", NEW, PermissionError),
        ("/etc/shadow", os.O_RDONLY, PermissionError),
        ("/srv", NEW, IsADirectoryError),
        ("/nothing", os.O_RDONLY, FileNotFoundError),
        ("/proc/self/environ", os.O_RDONLY, PermissionError),
    ):
        with pytest.raises(error):
            await container.open_file(path, flags, ann)
    os.close(await container.open_file("/home/ann/pipe", os.O_RDONLY, ann))  # nobody waits for a writer
    os.close(await container.open_file("/home/ann/of/hers", NEW, ann))
    assert (await container.run("stat -c %U:%G /home/ann/of/hers")).stdout.text() == "ann:ann\n"
    with pytest.raises(ValueError, match="null byte"):
        await container.open_file("/a\0b", os.O_RDONLY)


async def test_no_file_of_the_helper_is_opened(container: Container) -> None:
    for number in range(32):
        with pytest.raises(OSError, match="No such") as caught:
            os.close(await container.open_file(f"/proc/self/fd/{number}", NEW))
        assert caught.value.errno in (2, 6), number  # ENXIO is the channel's, a socket


async def test_links_lead_nowhere_but_inside(container: Container) -> None:
    await container.run("ln -s /etc/hostname inside; ln -s ../../../../../../etc/hostname far")
    for name in ("inside", "far"):
        fd = await container.open_file(f"/mnt/data/{name}", os.O_RDONLY)
        assert os.read(fd, 100) == b"container\n"
        os.close(fd)


async def test_it_starts_again_with_its_files(container: Container) -> None:
    await container.run(ANN)
    await container.stop()
    assert (await as_user(container, "ann", "id -un")).stdout.text() == "ann\n"


async def test_what_is_shown_of_the_machine_counts_not_as_its_files(container: Container) -> None:
    fds = Path(f"/proc/{container.holder_pid}/fd").iterdir()
    looked_at = [[*(fd / "usr").iterdir()] for fd in fds if (fd / "usr").is_dir()]
    assert looked_at == [[]]


async def test_why_a_command_did_not_start_is_told_by_number(container: Container) -> None:
    for argv, cwd, number in ((["/etc/passwd"], "/", 13), (["nothing-here"], "/", 2), (["true"], "/nothing", 2)):
        with pytest.raises(LaunchError) as caught:
            await container.launch(argv, container.environment, cwd, Pipes(), Limits())
        assert caught.value.number == number


async def test_a_user_of_its_own(host: LocalHost) -> None:
    container = await host.create(ContainerSettings(users=True, user="agent"))
    done = await container.run("id -un; pwd; touch here")
    assert not container.mapped or (done.stdout.text(), done.exit_code) == ("agent\n/mnt/data\n", 0)
    await container.aclose()
    with pytest.raises(ContainerError, match="no 'Ann'"):
        await host.create(ContainerSettings(users=True, user="Ann"))


async def test_what_is_kept_outlives_its_host(place: Path) -> None:
    async with LocalHost.open(place) as first:
        made = await first.create(ContainerSettings(users=True, temporary=True))
        await made.run("echo kept > /srv/x")
        made.keep()
    async with LocalHost.open(place) as second:
        again = await second.get(made.id)
        assert (await again.run("cat /srv/x")).stdout.text() == "kept\n"
        await again.aclose()
    assert not made.folder.exists()
