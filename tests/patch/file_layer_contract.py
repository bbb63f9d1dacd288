"""What every `FileLayer` guarantees, as tests: subclass it and give it the fixture `files`."""

import errno
import os
import stat
from pathlib import Path

import pytest

from ferrule.patch import FileLayer, Kind
from tests.patch.tree import snapshot
from tests.processes import gained, held


class FileLayerContract:
    """Runs in `root`, a fresh folder that the layer may change. Subclasses define the fixture `files`."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        folder = tmp_path / "root"
        folder.mkdir()
        return folder

    def test_look_at_a_file(self, files: FileLayer, root: Path) -> None:
        file = root / "f"
        file.write_bytes(b"abc")
        file.chmod(0o640)
        entry = files.look(str(file))
        found = file.stat()
        assert (entry.name, entry.real, entry.kind) == (str(file), str(file), Kind.FILE)
        assert entry.identity == (found.st_dev, found.st_ino)
        assert (entry.mode, entry.links, entry.size, entry.modified_ns) == (0o640, 1, 3, found.st_mtime_ns)
        assert not entry.in_place
        assert entry.writable
        assert files.look(str(file)) == entry

    def test_look_through_links(self, files: FileLayer, root: Path) -> None:
        (root / "real").mkdir()
        (root / "real/f").touch()
        (root / "folder").symlink_to("real")
        (root / "link").symlink_to("folder/f")
        entry = files.look(str(root / "link"))
        assert (entry.name, entry.real, entry.kind) == (str(root / "link"), str(root / "real/f"), Kind.FILE)
        entry = files.look(str(root / "folder/f"))
        assert (entry.name, entry.real) == (str(root / "real/f"), str(root / "real/f"))
        entry = files.look(str(root / "folder/../real/f"))
        assert entry.name == str(root / "real/f")

    def test_look_at_what_is_no_file(self, files: FileLayer, root: Path) -> None:
        (root / "f").touch()
        os.mkfifo(root / "pipe")
        (root / "dead").symlink_to("nowhere")
        assert files.look(str(root)).kind is Kind.DIRECTORY
        assert files.look(str(root / "pipe")).kind is Kind.OTHER
        assert files.look(str(root / "no/such")).kind is Kind.MISSING
        assert files.look(str(root / "f/x")).kind is Kind.MISSING
        dead = files.look(str(root / "dead"))
        assert (dead.name, dead.real, dead.kind) == (str(root / "dead"), str(root / "nowhere"), Kind.MISSING)

    def test_several_links_ask_for_rewriting_in_place(self, files: FileLayer, root: Path) -> None:
        (root / "one").touch()
        (root / "two").hardlink_to(root / "one")
        entry = files.look(str(root / "one"))
        assert (entry.links, entry.in_place) == (2, True)

    def test_read(self, files: FileLayer, root: Path) -> None:
        data = bytes(range(256)) * 1000
        (root / "f").write_bytes(data)
        (root / "link").symlink_to("f")
        assert files.read(str(root / "f")) == data
        assert files.read(str(root / "link")) == data
        with pytest.raises(FileNotFoundError):
            files.read(str(root / "none"))
        with pytest.raises(OSError, match="directory"):
            files.read(str(root))

    @pytest.mark.parametrize("mode", [None, 0o600, 0o755, 0o4711])
    def test_create(self, files: FileLayer, root: Path, mode: int | None) -> None:
        old = os.umask(0o027)
        try:
            files.create(str(root / "f"), b"data", mode)
        finally:
            os.umask(old)
        assert (root / "f").read_bytes() == b"data"
        assert stat.S_IMODE((root / "f").stat().st_mode) == (0o640 if mode is None else mode)

    def test_create_never_replaces(self, files: FileLayer, root: Path) -> None:
        (root / "f").write_bytes(b"old")
        (root / "dead").symlink_to("nowhere")
        for name in ("f", "dead"):
            with pytest.raises(FileExistsError):
                files.create(str(root / name), b"new")
        with pytest.raises(FileNotFoundError):
            files.create(str(root / "no/such"), b"new")
        assert snapshot(root) == {"dead": b"-> nowhere", "f": b"old"}

    def test_rename_replaces_and_does_not_follow(self, files: FileLayer, root: Path) -> None:
        (root / "f").write_bytes(b"f")
        (root / "g").write_bytes(b"g")
        (root / "link").symlink_to("g")
        files.rename(str(root / "f"), str(root / "g"))
        files.rename(str(root / "link"), str(root / "moved"))
        assert snapshot(root) == {"g": b"f", "moved": b"-> g"}
        with pytest.raises(FileNotFoundError):
            files.rename(str(root / "none"), str(root / "x"))

    def test_link(self, files: FileLayer, root: Path) -> None:
        (root / "f").write_bytes(b"f")
        files.link(str(root / "f"), str(root / "g"))
        assert (root / "f").samefile(root / "g")
        with pytest.raises(FileExistsError):
            files.link(str(root / "f"), str(root / "g"))

    def test_rewrite_keeps_the_inode_and_the_mode(self, files: FileLayer, root: Path) -> None:
        file = root / "f"
        file.write_bytes(b"a long text")
        file.chmod(0o640)
        (root / "link").symlink_to("f")
        before = file.stat()
        files.rewrite(str(root / "link"), b"short")
        assert file.read_bytes() == b"short"
        assert (file.stat().st_ino, file.stat().st_mode) == (before.st_ino, before.st_mode)
        with pytest.raises(FileNotFoundError):
            files.rewrite(str(root / "none"), b"x")
        assert not (root / "none").exists()

    def test_unlink(self, files: FileLayer, root: Path) -> None:
        (root / "f").touch()
        (root / "link").symlink_to("f")
        files.unlink(str(root / "link"))
        assert set(snapshot(root)) == {"f"}
        files.unlink(str(root / "f"))
        with pytest.raises(FileNotFoundError):
            files.unlink(str(root / "f"))
        (root / "d").mkdir()
        with pytest.raises(OSError, match=r"directory|permitted"):
            files.unlink(str(root / "d"))

    def test_make_parents_tells_what_it_created(self, files: FileLayer, root: Path) -> None:
        (root / "a").mkdir()
        created = files.make_parents(str(root / "a/b/c/f"))
        assert created == (str(root / "a/b"), str(root / "a/b/c"))
        assert files.make_parents(str(root / "a/b/c/g")) == ()
        for folder in reversed(created):
            files.rmdir(folder)
        assert set(snapshot(root)) == {"a"}

    def test_make_parents_names_what_is_in_the_way(self, files: FileLayer, root: Path) -> None:
        (root / "f").touch()
        with pytest.raises(NotADirectoryError) as failed:
            files.make_parents(str(root / "f/b/c"))
        assert failed.value.filename == str(root / "f")
        with pytest.raises(OSError, match="too long"):
            files.make_parents(str(root / "new" / ("n" * 300) / "f"))
        assert set(snapshot(root)) == {"f"}

    def test_rmdir_removes_only_an_empty_folder(self, files: FileLayer, root: Path) -> None:
        (root / "d").mkdir()
        (root / "d/f").touch()
        with pytest.raises(OSError, match="not empty") as failed:
            files.rmdir(str(root / "d"))
        assert failed.value.errno == errno.ENOTEMPTY

    def test_no_descriptor_stays_open(self, files: FileLayer, root: Path) -> None:
        before = held()
        file = str(root / "a/f")
        files.make_parents(file)
        files.create(file, b"x")
        files.read(file)
        files.rewrite(file, b"y")
        files.look(file)
        files.rename(file, file + "2")
        files.unlink(file + "2")
        with pytest.raises(OSError, match=r".*"):
            files.read(file)
        assert not any(gained(before))
