"""Follows the text of a patch while it arrives, for the front end."""

from ferrule.patch import PatchParser
from ferrule.protocol.events import FileChange, PatchApplyProgress


class PatchWatcher:
    """Feeds the patch's own parser. A text that is no patch tells nothing; the call itself will say why."""

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id
        self._parser = PatchParser()

    def feed(self, delta: str) -> PatchApplyProgress | None:
        """Take more text; an event for the files that it touches."""
        touched = self._parser.feed(delta)
        if not touched:
            return None
        changes = (FileChange(file.kind, file.path, file.move_to, file.added, file.deleted) for file in touched)
        return PatchApplyProgress(call_id=self._call_id, changes=tuple(changes))
