"""A client's roots narrow the workspace, and never widen it."""

import os
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

from ferrule.doors.mcp_server.roots import folder_of, narrowed, place_in
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import DangerFullAccess, ReadOnly, SandboxPolicy, WorkspaceWrite
from ferrule.protocol.settings import Settings
from mcp import types
from tests.mcp_server.served import ERAS, connected, roots, served, settings_in, text_of
from tests.processes import running, until


def folders(tmp_path: Path, *names: str) -> list[str]:
    for name in names:
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    return [os.path.realpath(tmp_path / name) for name in names]


def test_roots_inside_become_the_workspace_and_others_are_told(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    one, two, outside = folders(tmp_path, "work/one", "work/two", "outside")
    found = narrowed(settings, [outside, one, two])
    assert found.outside == (outside,) and found.settings.cwd == one
    assert isinstance(found.settings.sandbox_policy, WorkspaceWrite)
    assert found.settings.sandbox_policy.writable_roots == (two,)


@pytest.mark.parametrize("root", ["/", "work", "."])
def test_a_root_around_the_workspace_changes_nothing(tmp_path: Path, root: str) -> None:
    settings = settings_in(tmp_path)
    found = narrowed(settings, [os.path.realpath(tmp_path / root)])
    assert found.settings == settings and not found.outside


def test_roots_outside_alone_change_nothing(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (outside,) = folders(tmp_path, "outside")
    assert narrowed(settings, [outside]).settings == settings


def test_a_link_in_the_workspace_leads_nowhere_else(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (outside,) = folders(tmp_path, "outside")
    Path(settings.cwd, "link").symlink_to(outside)
    assert narrowed(settings, [f"{settings.cwd}/link"]).outside == (outside,)


def test_what_the_user_lets_be_written_stays_writable(tmp_path: Path) -> None:
    more, inside = folders(tmp_path, "more", "more/inside")
    settings = settings_in(tmp_path, sandbox_policy=WorkspaceWrite(writable_roots=(more,)))
    found = narrowed(settings, [inside])
    assert found.settings.cwd == inside
    assert isinstance(found.settings.sandbox_policy, WorkspaceWrite)
    assert found.settings.sandbox_policy.writable_roots == (more,)


@pytest.mark.parametrize("policy", [ReadOnly(), DangerFullAccess()])
def test_in_other_modes_roots_say_where_to_work_inside_the_directory(tmp_path: Path, policy: SandboxPolicy) -> None:
    inside, outside = folders(tmp_path, "work/in", "outside")
    settings = settings_in(tmp_path, sandbox_policy=policy)
    found = narrowed(settings, [outside, inside]).settings
    assert found.cwd == inside and found.sandbox_policy == policy
    assert narrowed(settings, [outside]).settings == settings


def test_a_place_to_work_lies_in_the_workspace(tmp_path: Path) -> None:
    settings: Settings = settings_in(tmp_path)
    (inside,) = folders(tmp_path, "work/in")
    assert place_in(settings, inside) == inside
    for wrong in (str(tmp_path), "/", f"{settings.cwd}/..", f"{settings.cwd}/none", f"{settings.cwd}-other"):
        with pytest.raises(UsageError, match="cwd"):
            place_in(settings, wrong)


@pytest.mark.parametrize(
    "uri", ["http://a/b", "file:///none/such", "file://host/tmp", "file:", "", "file:///%00", "file://[", "relative"]
)
def test_a_uri_that_is_no_folder_here_is_none(uri: str) -> None:
    assert folder_of(uri) is None


def test_a_uri_is_decoded(tmp_path: Path) -> None:
    (named,) = folders(tmp_path, "a b%")
    assert folder_of(f"file://{tmp_path}/a%20b%25") == named


@pytest.mark.parametrize("era", ERAS)
async def test_commands_write_in_the_clients_roots_and_nowhere_else(tmp_path: Path, era: str) -> None:
    settings = settings_in(tmp_path)
    inside, outside = folders(tmp_path, "work/in", "outside")
    script = f"pwd; touch in {settings.cwd}/beside {outside}/x"
    answer = roots(outside, inside)
    async with served(settings) as server, connected(server, era, list_roots_callback=answer) as client:
        await client.list_tools()
        result = await client.call_tool("exec_command", {"cmd": script})
    assert f"\n{inside}\n" in text_of(result)
    assert os.listdir(inside) == ["in"] and os.listdir(settings.cwd) == ["in"] and os.listdir(outside) == []


async def test_a_client_that_starts_us_at_the_root_of_the_disk_says_where_to_work(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, cwd="/")
    (inside,) = folders(tmp_path, "work")
    async with served(settings) as server:
        async with connected(server, "legacy") as client:
            with pytest.raises(MCPError, match="choose a project folder"):
                await client.list_tools()
        async with connected(server, "legacy", list_roots_callback=roots(inside)) as client:
            assert (await client.list_tools()).tools
            assert inside in text_of(await client.call_tool("exec_command", {"cmd": "pwd"}))


async def test_roots_that_change_are_read_again(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    one, two = folders(tmp_path, "work/one", "work/two")
    known, mark = [one], f": roots{os.getpid()}"

    async def answer(context: object) -> object:
        return await roots(*known)(context)

    async with served(settings) as server, connected(server, "legacy", list_roots_callback=answer) as client:
        begun = {"cmd": f"pwd; {mark}; sleep 1000; :", "yield_time_ms": 250}
        assert one in text_of(await client.call_tool("exec_command", begun)) and running(mark)
        known[:] = [two]
        await client.session.send_notification(types.RootsListChangedNotification())
        assert two in text_of(await client.call_tool("exec_command", {"cmd": "pwd"}))
        await until(lambda: not running(mark))
