"""From a policy to a plan."""

from pathlib import Path

import pytest

from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import DangerFullAccess, ExternalSandbox, ReadOnly, WorkspaceWrite
from ferrule.sandbox.plan import ConfinementPlan, Root, folders_between, is_within
from ferrule.sandbox.policy import HOME_FILES, command_places, plan_confinement

ONLY_CWD = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """The user's home folder."""
    folder = tmp_path / "house"
    (folder / "project").mkdir(parents=True)
    (folder / ".ferrule").mkdir()
    return folder


def plan(policy: WorkspaceWrite, cwd: Path | str, house: Path, **env: str) -> ConfinementPlan:
    return plan_confinement(policy, str(cwd), str(house / ".ferrule"), {"HOME": str(house), **env})


def test_read_only_has_no_roots() -> None:
    assert plan_confinement(ReadOnly(), "/", "/h", {"HOME": "/h"}).enforced() == ConfinementPlan()
    assert plan_confinement(ReadOnly(network_access=True), "/", "/h", {"HOME": "/h"}).network


def test_workspace_write_has_cwd_and_temporary_folders(house: Path, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    made = plan(WorkspaceWrite(network_access=True), house / "project", house, TMPDIR=str(tmp_path / "t"))
    assert set(made.roots) == {
        Root("/tmp", reserve=False, scan=False),
        Root(str(tmp_path / "t"), reserve=False, scan=False),
        Root(str(house / "project")),
    }
    assert made.network and not made.warnings


def test_outer_roots_come_first(house: Path) -> None:
    (house / "project" / "a" / "b").mkdir(parents=True)
    policy = WorkspaceWrite(
        writable_roots=(str(house / "project/a/b"), str(house / "project/a")), exclude_slash_tmp=True
    )
    made = plan(policy, house / "project", house)
    assert [root.path for root in made.roots] == [str(house / "project" / below) for below in ("", "a", "a/b")]


def test_real_paths_and_no_root_twice(house: Path) -> None:
    (house / "link").symlink_to("project")
    policy = WorkspaceWrite(writable_roots=(str(house / "link"), f"{house}/project/../project"), exclude_slash_tmp=True)
    assert plan(policy, house / "link", house).roots == (Root(str(house / "project")),)


def test_slash_tmp_as_the_workspace_is_never_reserved(house: Path) -> None:
    assert plan(WorkspaceWrite(), "/tmp", house, HOME="/nonexistent/h").roots == (Root("/tmp", reserve=False),)


def test_a_root_that_is_not_there(house: Path) -> None:
    (house / "file").write_text("")
    policy = WorkspaceWrite(writable_roots=("/no/such", str(house / "file")), exclude_slash_tmp=True)
    made = plan(policy, house / "project", house)
    assert made.roots == (Root(str(house / "project")),)
    assert made.warnings == (
        "writable root /no/such does not exist and is not writable",
        f"writable root {house}/file is not a folder and is not writable",
    )


@pytest.mark.parametrize("path", ["/", "above", "link"])
def test_a_root_that_holds_everything_is_refused(house: Path, path: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    root = {"above": str(house.parent), "link": str(tmp_path / "link")}.get(path, path)
    with pytest.raises(UsageError, match="choose a project folder"):
        plan(WorkspaceWrite(writable_roots=(root,)), house / "project", house)
    with pytest.raises(UsageError, match="the working directory"):
        plan(ONLY_CWD, root, house)


def test_the_home_folder_is_warned_about_and_its_dotfiles_kept(house: Path) -> None:
    (house / ".ssh").mkdir()
    (house / ".bashrc").write_text("")
    made = plan(ONLY_CWD, house, house)
    assert made.roots == (Root(str(house)),)
    assert "is the home folder" in made.warnings[0]
    assert set(made.read_only) == {f"{house}/{name}" for name in (".ferrule", ".ssh", ".bashrc")}
    assert ".ssh" in HOME_FILES


def test_ferrules_own_folder_is_kept_inside_a_root(house: Path) -> None:
    assert plan(WorkspaceWrite(), house / "project", house).read_only == (f"{house}/.ferrule",)  # pytest's /tmp
    assert plan(ONLY_CWD, house / "project", house).read_only == ()


@pytest.mark.parametrize("policy", [DangerFullAccess(), ExternalSandbox()])
def test_what_is_not_ours(policy: DangerFullAccess | ExternalSandbox) -> None:
    with pytest.raises(UsageError, match="not confined"):
        plan_confinement(policy, "/tmp", "/h", {"HOME": "/h"})


def test_paths() -> None:
    assert is_within("/a/b", "/a") and is_within("/a", "/a") and is_within("/a", "/")
    assert not is_within("/ab", "/a")
    assert folders_between("/a", "/a/b/c/d") == ["/a/b", "/a/b/c"]
    assert folders_between("/", "/b/c") == ["/b"]
    assert folders_between("/a", "/a") == folders_between("/a", "/b/c") == []


def test_where_commands_can_write_is_known_in_every_mode(tmp_path: Path) -> None:
    """Also where the working directory holds the home folder, which no sandbox takes for a root."""
    env = {"HOME": str(tmp_path / "home")}
    places = command_places(DangerFullAccess(), str(tmp_path), f"{tmp_path}/home/.ferrule", env)
    assert places.roots == ("/tmp",)
    places = command_places(ReadOnly(), "/srv/work", f"{tmp_path}/home/.ferrule", env)
    assert places.roots == ("/srv/work", "/tmp")
