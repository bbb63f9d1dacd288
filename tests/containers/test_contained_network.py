"""A list of domains for commands in a container: the same way out, questions and refusals as in a sandbox."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from ferrule import InContainerReadOnly
from ferrule.containers import HostLimits, LocalHost
from ferrule.containers.project import ProjectContainer, ProjectLauncher
from ferrule.dispatch.workspace import Workspace
from ferrule.process.run import run
from ferrule.protocol.permissions import ReviewDecision
from ferrule.sandbox.local_way import ListOnly, LocalWay
from ferrule.sandbox.plan import ConfinementPlan, Root
from ferrule.sandbox.policy import reach_of
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox
from ferrule.tools.questions import Decision
from tests.containers.small import import_root, small_root
from tests.containers.test_escape import readable_by
from tests.package_index import NAME, SAID, PackageIndex
from tests.sandbox.conftest import USERS
from tests.sandbox.scene import Scene
from tests.session import test_network_lists
from tests.session.test_network_lists import BY_ITSELF, FETCH, GOT, opened

ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "to write what is protected"}
PROGRAMS = ("sh", "bash", "cat")
ASK = r"ask() { exec 3<>/dev/tcp/$1/$2; printf 'GET %s HTTP/1.0\r\nHost: %s\r\n\r\n' $3 $4 >&3; cat <&3; }; "
"""For bash: ask whom (address, port) for what of whose (path, host)."""

home, index, workspace = test_network_lists.home, test_network_lists.index, test_network_lists.workspace


async def test_what_is_listed_is_reached_and_the_rest_refused_in_words(index: PackageIndex, workspace: Path) -> None:
    async with opened(index.contained(), workspace, approval="never") as session:
        assert GOT in await session.run(FETCH)
        assert GOT in await session.run(f"curl -sS http://{NAME}/project.git/HEAD")
        assert GOT in await session.run(FETCH + " --noproxy '*'"), "a program that knows no proxy"
        assert SAID in await session.run(f"git clone -q https://{NAME}/project.git cloned && cat cloned/said")
        refused = await session.run(
            "curl -sS http://other.example.com/ -o /dev/null; curl -sS https://other.example.com/"
        )
        assert f"other.example.com is not an allowed domain. Allowed: {NAME}. The user can add it" in refused
        assert GOT in await session.run(f"python3 -c '{BY_ITSELF}'"), "its own server"
        assert "container" in await session.run("getent hosts $(hostname)")
        assert f"only ports 80 and 443 of {NAME}" in str(session.tools.specs("responses"))
    assert session.asked == []
    assert {(event.host, event.port) for event in session.refused} == {
        ("other.example.com", 80), ("other.example.com", 443),
    }  # fmt: skip


async def test_another_domain_is_asked_for_also_by_commands_that_were_approved(
    index: PackageIndex, workspace: Path
) -> None:
    yes = Decision(ReviewDecision.APPROVED)
    async with opened(index.contained("elsewhere.example.com"), workspace, yes) as session:
        assert (await session.run(f"{FETCH} & {FETCH} & wait")).count(GOT) == 2
        assert [(question.kind, question.text) for question in session.asked] == [("network", f"https://{NAME}")]
        session.asked.clear()
        assert GOT in await session.run(FETCH, **ESCALATED)
        assert [question.kind for question in session.asked] == ["command", "network"]
        assert session.asked[0].call_id == session.asked[1].call_id
        session.answer = Decision(ReviewDecision.DENIED, "not that one")
        for _ in range(2):
            assert "network access rejected by user: not that one" in await session.run(FETCH)
        assert len(session.asked) == 3


async def test_read_only_and_a_command_of_the_user(index: PackageIndex, workspace: Path) -> None:
    whole = index.contained()
    policy = InContainerReadOnly(network_access=whole.network_access, hosts=whole.hosts, ca_file=whole.ca_file)
    async with opened(policy, workspace, approval="never") as session:
        assert GOT in await session.run(f"{FETCH}; touch x")
    assert not (workspace / "x").exists()


@pytest.fixture(scope="module")
def root(index: PackageIndex) -> Path:
    """A small root file system."""
    folder = Path(index.ca_file).parent / "root"
    small_root(folder, PROGRAMS)
    (folder / "tmp").mkdir()
    return folder


@pytest.mark.parametrize(("image", "user"), [(None, USERS[-1]), *(("small", user) for user in USERS)], ids=str)
async def test_on_an_image_and_as_an_ordinary_user(
    index: PackageIndex, root: Path, image: str | None, user: int
) -> None:
    """The helpers run as the scene's user; a program that knows no proxy finds the way as well."""
    with Scene(user) as scene:
        if image is not None:
            import_root(scene.home, root, image, {"Env": ["PATH=/bin"]})
            readable_by(user, scene.home / "images")
        project = str(scene.base / "nogit")
        policy = index.contained(image=image)
        reach = reach_of(policy)
        assert reach is not None
        limits = HostLimits(groups=not user)
        host = LocalHost.open(scene.base / "kept" / "containers", limits=limits, interpreter=scene.interpreter)
        container = ProjectContainer(policy, project, str(scene.home), host)
        told: list[str] = []
        way = container.way_out = LocalWay(reach, ListOnly(reach.names, told.append), contained=True)
        readable_by(user, container.box().folder.parent)
        protection = Protection(ConfinementPlan((Root(project),)), scene.home, None)
        launcher = partial(ProjectLauncher, container, protection, lambda: protection.boundary.covers)
        sandbox = Sandbox(protection, way_out=way, container=launcher)
        try:
            proxy, path = "127.0.0.1 3128", "/project.git/HEAD"
            script = f"{ASK} ask {NAME} 80 {path} {NAME}; ask {proxy} http://{NAME}{path} {NAME}; "
            script += f"ask {proxy} http://b.example b.example"
            done = await run(sandbox, ["/bin/bash", "-c", script], env=container.environment, cwd=project)
            assert done.stdout.text().count(GOT) == 2, done.output.text()
            assert "b.example is not an allowed domain" in (done.notice or "") and len(told) == 1
        finally:
            await sandbox.close()
            await container.close()


async def test_sessions_that_share_a_container_hear_of_their_own_refusals(index: PackageIndex, workspace: Path) -> None:
    policy, own = index.contained(), str(workspace.parent / "home")
    reach, told = reach_of(policy), {"first": [""], "second": [""]}
    assert reach is not None
    first = Workspace(policy, str(workspace), own, decider=ListOnly(reach.names, told["first"].append))
    second = Workspace(policy, str(workspace), own, parent=first, decider=ListOnly(reach.names, told["second"].append))
    shared = first.container
    assert shared is not None and second.container is shared

    async def said(workspace_of: Workspace, script: str) -> str:
        done = await run(workspace_of, ["sh", "-c", script], env=shared.environment, cwd=str(workspace))
        return f"{done.output.text()} {done.notice}"

    try:
        one, other = await asyncio.gather(
            said(first, f"{FETCH}; curl -sS https://one.example.com"),
            said(second, f"{FETCH}; curl -sS https://other.example.com"),
        )
        assert one.count(GOT) == other.count(GOT) == 1
        assert "one.example.com is not an allowed" in one and "other.example" not in one
        assert "other.example.com is not an allowed" in other and "one.example" not in other
        unnamed = "curl -sS --noproxy '*' -H 'Host: third.example.com' http://index.example.com"
        assert "third.example.com" in await said(second, unnamed), "nobody can tell whose it is: all are told"
        assert [len(texts) for texts in told.values()] == [3, 3]
        await second.close()
        assert GOT in await said(first, f"{FETCH}; {FETCH} --noproxy '*'")
    finally:
        await second.close()
        await first.close()
