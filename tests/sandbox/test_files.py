"""Files that are written only inside the roots of a plan."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule.patch.files import FileLayer
from ferrule.sandbox.files import ConfinedFiles
from ferrule.sandbox.plan import ConfinementPlan, Root
from tests.patch.file_layer_contract import FileLayerContract


class TestContract(FileLayerContract):
    """Inside a root it is a file layer like any other."""

    @pytest.fixture
    def files(self, tmp_path: Path) -> Iterator[FileLayer]:
        files = ConfinedFiles(ConfinementPlan(roots=(Root(os.path.realpath(tmp_path)),)))
        yield files
        files.close()


class Scene:
    """A root with a neighbour, both with a file."""

    def __init__(self, tmp_path: Path) -> None:
        self.root, self.outside = tmp_path / "root", tmp_path / "outside"
        for folder in (self.root, self.outside, self.root / ".git", self.root / "sub"):
            folder.mkdir()
        (self.root / "file").write_text("inside")
        (self.outside / "file").write_text("outside")
        plan = ConfinementPlan(roots=(Root(str(self.root)),), read_only=(str(self.root / "kept"),))
        self.files = ConfinedFiles(plan)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.files.close()


@pytest.mark.parametrize(
    "path",
    [
        "../outside/x",
        ".git/config",
        ".GIT/config",
        ".codex/x",
        "sub/.git/hooks/post-checkout",
        "kept/x",
        "kept",
        "../root2",
    ],
)
def test_every_change_is_refused_outside_and_below_protected_names(path: str, scene: Scene) -> None:
    target = f"{scene.root}/{path}"
    inside = f"{scene.root}/file"
    for change in (
        lambda: scene.files.create(target, b"x"),
        lambda: scene.files.rename(inside, target),
        lambda: scene.files.link(inside, target),
        lambda: scene.files.unlink(target),
        lambda: scene.files.rmdir(target),
        lambda: scene.files.rewrite(target, b"x"),
        lambda: scene.files.make_parents(target + "/deeper/still"),
    ):
        with pytest.raises(PermissionError):
            change()
    assert (scene.root / "file").read_text() == "inside"
    assert os.listdir(scene.outside) == ["file"]
    assert os.listdir(scene.root / ".git") == []


def test_links_lead_nowhere_outside(scene: Scene) -> None:
    (scene.root / "link").symlink_to(scene.outside)
    (scene.root / "secret").symlink_to(scene.outside / "file")
    (scene.root / "metadata").symlink_to(".git")
    for path in ("link/x", "metadata/config"):
        with pytest.raises(PermissionError):
            scene.files.create(f"{scene.root}/{path}", b"x")
    with pytest.raises(PermissionError):
        scene.files.rewrite(f"{scene.root}/secret", b"x")
    assert (scene.outside / "file").read_text() == "outside"
    scene.files.unlink(f"{scene.root}/secret")
    assert (scene.outside / "file").exists()


def test_what_git_really_uses_is_protected_wherever_it_lies(scene: Scene) -> None:
    (scene.root / ".git").rmdir()
    (scene.root / "meta" / "p.git").mkdir(parents=True)
    (scene.root / ".git").symlink_to("meta/p.git")
    for path in ("meta/p.git/config", ".git/config"):
        with pytest.raises(PermissionError, match="protected"):
            scene.files.create(f"{scene.root}/{path}", b"x")
    with pytest.raises(PermissionError, match="protected"):
        scene.files.unlink(f"{scene.root}/.git")
    (scene.root / ".git").unlink()
    (scene.root / ".git").write_text(f"gitdir: {scene.root}/meta/p.git\n")
    with pytest.raises(PermissionError, match="protected"):
        scene.files.create(f"{scene.root}/meta/p.git/config", b"x")
    scene.files.create(f"{scene.root}/meta/other", b"x")


def test_a_root_stays_the_folder_that_it_was(scene: Scene) -> None:
    moved = scene.root.with_name("moved")
    scene.root.rename(moved)
    scene.root.symlink_to(scene.outside)
    with pytest.raises(OSError):  # noqa: PT011 - as the path now lies outside, or is not found
        scene.files.create(f"{scene.root}/x", b"x")
    assert os.listdir(scene.outside) == ["file"]


def test_a_nested_root_is_reached_from_the_outer_one(tmp_path: Path) -> None:
    outer, inner, outside = tmp_path / "outer", tmp_path / "outer" / "inner", tmp_path / "outside"
    inner.mkdir(parents=True)
    outside.mkdir()
    files = ConfinedFiles(ConfinementPlan(roots=(Root(str(outer)), Root(str(inner)))))
    inner.rmdir()
    inner.symlink_to(outside)
    with pytest.raises(PermissionError):
        files.create(f"{inner}/x", b"x")
    files.close()
    assert os.listdir(outside) == []


def test_reading_is_not_confined_and_a_plan_without_roots_writes_nothing(scene: Scene) -> None:
    reading = ConfinedFiles(ConfinementPlan())
    assert reading.read(str(scene.outside / "file")) == b"outside"
    with pytest.raises(PermissionError):
        reading.create(f"{scene.root}/x", b"x")


def test_after_closing_nothing_is_written(scene: Scene) -> None:
    scene.files.close()
    with pytest.raises(PermissionError):
        scene.files.create(f"{scene.root}/x", b"x")
