"""A container's listening sockets are served outside; nothing inside can stand in their place."""

from pathlib import Path

import pytest

from ferrule.containers import ContainerSettings, HostLimits, LocalHost
from ferrule.sandbox.linux.root import HOST_NAME
from tests.containers.test_escape import readable_by
from tests.sandbox.conftest import USERS
from tests.sandbox.listening import ANSWERS, CONNECT, GIVEN, HOSTS, TAKE, Answering
from tests.sandbox.scene import Scene

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


@pytest.mark.parametrize("user", USERS, ids=lambda user: "root" if user == 0 else "user")
async def test_commands_reach_who_serves_them_and_cannot_take_their_place(place: Path, user: int) -> None:
    way_out = Answering({HOSTS: GIVEN, BUNDLE: b"our roots\n"})
    host_files = [Path(path).read_bytes() for path in (HOSTS, BUNDLE)]
    with Scene(user) as scene:
        limits = HostLimits(groups=not user)
        host = LocalHost.open(scene.base / "kept" / "containers", limits=limits, interpreter=scene.interpreter)
        container, closed = host.adopt(ContainerSettings()), host.adopt(ContainerSettings())
        readable_by(user, container.folder.parent)
        readable_by(user, closed.folder.parent)
        container.way_out = way_out
        async with host:
            reached = await container.run(["bash", "-c", CONNECT])
            assert reached.stdout.text().splitlines() == ANSWERS, reached.stderr.text()
            shown = await container.run(["cat", HOSTS, BUNDLE])
            assert shown.stdout.text() == GIVEN.decode() + "our roots\n"
            taken = await container.run(["python3", "-c", TAKE])
            assert taken.stdout.text() == "", "something could be taken"
            assert HOST_NAME in (await closed.run(["cat", HOSTS])).stdout.text()
            refused = await closed.run(["bash", "-c", CONNECT])
            assert refused.stdout.text() == ""
            await container.aclose()
    assert len(way_out.served) == 1
    assert way_out.stopped == way_out.served
    assert [Path(path).read_bytes() for path in (HOSTS, BUNDLE)] == host_files
