"""What has to be told to whoever looks at the screen, in words, once."""

from collections.abc import Sequence

MAX_NOTES = 30
"""Further ones tell nothing new."""
MAX_NOTE = 2000
"""Characters of one: the address of a page can have a million."""
MAX_QUOTED = 500
"""Characters of a page's own text in a note."""


class Notes:
    """Sentences until somebody takes them; none twice, and not without end."""

    def __init__(self) -> None:
        self._notes: dict[str, None] = {}
        self._more = 0

    def add(self, text: str) -> None:
        """Add a sentence."""
        text = text if len(text) <= MAX_NOTE else f"{text[:MAX_NOTE]}..."
        if text in self._notes:
            return
        if len(self._notes) < MAX_NOTES:
            self._notes[text] = None
        else:
            self._more += 1

    def take(self) -> Sequence[str]:
        """Return all, and begin anew."""
        more = [f"{self._more} further notices are left out."] if self._more else []
        taken = [*self._notes, *more]
        self._notes, self._more = {}, 0
        return taken


def quoted(text: str) -> str:
    """Return a page's text as part of a sentence."""
    line = " ".join(text.split())
    return f'"{line[:MAX_QUOTED]}..."' if len(line) > MAX_QUOTED else f'"{line}"'
