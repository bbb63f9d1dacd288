"""Trees of files that a turn changes at random, and what they look like."""

import os
import random
import shutil
import stat
from pathlib import Path

from ferrule.patch.files import PlainFiles
from ferrule.undo.restore import Outcome, take_back
from ferrule.undo.undo_log import UndoLog


def picture(root: Path) -> dict[str, tuple[object, ...]]:
    """Each path below `root`, no link followed: its kind, mode and content."""
    return {str(path.relative_to(root)): _seen(path) for path in sorted(root.rglob("*"))}


def _seen(path: Path) -> tuple[object, ...]:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return ("link", str(path.readlink()))
    mode = stat.S_IMODE(found.st_mode)
    return ("folder", mode) if stat.S_ISDIR(found.st_mode) else ("file", mode, path.read_bytes())


def plant(root: Path, rnd: random.Random) -> None:
    """Make files, links and folders."""
    for number in range(12):
        folder = root / rnd.choice(["a", "a/b", "c", "."])
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"f{number}.txt"
        path.write_bytes(rnd.choice([b"", b"one\ntwo\n", b"one\r\ntwo\r\n", bytes(rnd.randbytes(50))]))
        path.chmod(rnd.choice([0o644, 0o755, 0o600, 0o444]))
    (root / "link").symlink_to("a/nowhere")
    (root / "empty").mkdir()
    (root / os.fsdecode(b"caf\xe9")).write_bytes(b"a name that is not UTF-8")


def some(root: Path, rnd: random.Random, *, folder: bool = False) -> Path | None:
    found = [path for path in sorted(root.rglob("*")) if path.is_symlink() is False and path.is_dir() == folder]
    return rnd.choice(found) if found else None


def change_by_command(root: Path, rnd: random.Random) -> None:
    """Do one thing that a command may do."""
    path, folder = some(root, rnd), some(root, rnd, folder=True) or root
    new = folder / f"n{rnd.randrange(5)}"
    match rnd.randrange(9):
        case 0 if path:
            path.unlink()
        case 1 if path:
            path.chmod(0o644)
            path.write_bytes(rnd.randbytes(rnd.randrange(40)))
        case 2 if path:
            path.chmod(rnd.choice([0o644, 0o755, 0o600]))
        case 3 if not os.path.lexists(new):
            new.write_bytes(b"new")
        case 4 if not os.path.lexists(new):
            new.mkdir()
        case 5 if not os.path.lexists(new):
            new.symlink_to(rnd.choice(["f1.txt", "/nowhere"]))
        case 6 if folder != root:
            shutil.rmtree(folder)
        case 7 if path:  # a file becomes a folder with something in it
            path.unlink()
            path.mkdir()
            (path / "in it").write_bytes(b"x")
        case 8 if path and not os.path.lexists(new):
            path.rename(new)


def undone(undo_log: UndoLog) -> Outcome:
    """Take the last turn back and forget it."""
    turn = undo_log.last()
    assert turn is not None
    outcome = take_back(turn.changes, PlainFiles(), turn.contents.get)
    undo_log.forget(turn)
    return outcome
