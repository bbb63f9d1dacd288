"""What an undo did, in lines."""

from collections.abc import Iterator

from ferrule.protocol.events import UndoCompleted


def undone_lines(done: UndoCompleted) -> Iterator[str]:
    """Yield a line a file, with control characters as they are, and one on commands that are not covered."""
    for path in done.restored:
        yield f"taken back: {path}"
    for one in done.left:
        yield f"left alone: {one.path}: {one.reason}"
    if not done.with_commands:
        yield "what commands changed is not taken back; with snapshots = true it would be"
