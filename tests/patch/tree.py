"""A small tree of files on disk, for tests."""

from pathlib import Path

from ferrule.patch import apply_patch

BEGIN, END = "*** Begin Patch", "*** End Patch"


def patch(*lines: str) -> str:
    """The lines between the markers."""
    return "\n".join((BEGIN, *lines, END)) + "\n"


def update(path: str, *lines: str) -> str:
    """A patch that updates one file."""
    return patch(f"*** Update File: {path}", *lines)


def edited(tmp_path: Path, before: bytes, *lines: str) -> bytes:
    """The bytes of `f.txt` after an update with these lines."""
    (tmp_path / "f.txt").write_bytes(before)
    apply_patch(update("f.txt", *lines), str(tmp_path))
    return (tmp_path / "f.txt").read_bytes()


def snapshot(root: Path) -> dict[str, bytes | None]:
    """Every path below `root`: content, or None for a folder. A link shows where it points."""
    return {str(path.relative_to(root)): _content(path) for path in sorted(root.rglob("*"))}


def _content(path: Path) -> bytes | None:
    if path.is_symlink():
        return b"-> " + bytes(path.readlink())
    return path.read_bytes() if path.is_file() else None
