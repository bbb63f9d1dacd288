"""What may be written: the protected paths of a plan, without a sandbox around them."""

import os
from pathlib import Path

import pytest

from ferrule.sandbox.boundary import PROTECTED, Cover, boundary_of
from ferrule.sandbox.plan import PROTECTED_NAMES, RESERVED_NAMES, ConfinementPlan, Root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def kinds(plan: ConfinementPlan) -> dict[str, str]:
    return {cover.path: cover.kind for cover in boundary_of(plan).covers}


def test_missing_names_are_placeholders_where_they_are_reserved(root: Path) -> None:
    assert kinds(ConfinementPlan((Root(str(root)),))) == {f"{root}/{name}": "empty" for name in RESERVED_NAMES}
    assert kinds(ConfinementPlan((Root(str(root), reserve=False),))) == {}


def test_existing_names_are_read_only(root: Path) -> None:
    for name in PROTECTED_NAMES:
        (root / name).mkdir()
    assert set(kinds(ConfinementPlan((Root(str(root), reserve=False),))).values()) == {"read"}


def test_a_symbolic_link_and_its_target(root: Path) -> None:
    (root / "meta" / "p.git").mkdir(parents=True)
    (root / ".git").symlink_to("meta/p.git")
    covers = boundary_of(ConfinementPlan((Root(str(root), reserve=False),))).covers
    target = f"{root}/meta/p.git"
    assert covers == (
        Cover("pin", f"{root}/meta"),
        Cover("read", target),
        Cover("link", f"{root}/.git", f"gitdir: {target}\n"),
    )


def test_a_link_out_of_the_roots(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (root / ".git").symlink_to(tmp_path / "elsewhere")
    assert kinds(ConfinementPlan((Root(str(root), reserve=False),))) == {f"{root}/.git": "link"}


def test_a_git_file_its_target_and_the_shared_repository(root: Path) -> None:
    (root / "deep" / "wt").mkdir(parents=True)
    (root / "common").mkdir()
    (root / "deep" / "wt" / "commondir").write_text("../../common\n")
    (root / ".git").write_text("gitdir: deep/wt\n")
    assert kinds(ConfinementPlan((Root(str(root), reserve=False),))) == {
        f"{root}/deep": "pin",
        f"{root}/.git": "read",
        f"{root}/deep/wt": "read",
        f"{root}/common": "read",
    }


@pytest.mark.parametrize("text", ["", "gitdir: gone\n", "nonsense", "gitdir: \n", "\udcff\udcfe"])
def test_a_broken_git_file_is_only_protected(root: Path, text: str) -> None:
    (root / ".git").write_bytes(os.fsencode(text))
    assert boundary_of(ConfinementPlan((Root(str(root), reserve=False),))).covers[-1].path.startswith(str(root))


def test_a_root_below_a_root_is_pinned(root: Path) -> None:
    (root / "a" / "b" / "inner").mkdir(parents=True)
    plan = ConfinementPlan((Root(str(root), reserve=False), Root(f"{root}/a/b/inner", reserve=False)))
    assert kinds(plan) == {f"{root}/a": "pin", f"{root}/a/b": "pin"}


def test_folders_above_a_repository_of_the_users_are_pinned(root: Path) -> None:
    """Else a command could move it while the next one starts, which would then find it unprotected."""
    (root / "a/b/.git").mkdir(parents=True)
    plan = ConfinementPlan((Root(str(root), reserve=False),))
    assert boundary_of(plan, [f"{root}/a/b/.git"]).covers == (
        Cover("pin", f"{root}/a"),
        Cover("pin", f"{root}/a/b"),
        Cover("read", f"{root}/a/b/.git"),
    )


def test_what_is_read_only_needs_no_pin(root: Path) -> None:
    (root / ".git/modules/sub").mkdir(parents=True)
    (root / "sub").mkdir()
    (root / "sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    covers = boundary_of(ConfinementPlan((Root(str(root), reserve=False),)), [f"{root}/sub/.git"]).covers
    assert [cover.path for cover in covers if cover.kind == "pin"] == [f"{root}/sub"]


def test_a_bare_repository_of_our_own_opens_nothing_else(root: Path) -> None:
    for name in ("objects", "refs"):
        (root / name).mkdir()
    (root / "HEAD").touch()
    boundary = boundary_of(ConfinementPlan((Root(str(root), reserve=False),)), own=[str(root), f"{root}/n/.git"])
    assert [boundary.refusal(f"{root}/{path}") for path in ("HEAD", "n/.git/x", "m/.git/x", ".codex/x")] == [
        None, None, PROTECTED, PROTECTED,
    ]  # fmt: skip
