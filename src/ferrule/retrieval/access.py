"""A session's search in folders, made when it is first used. Light: what it stands on is imported then."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrule.retrieval.folder_search import FolderSearch


class FolderAccess:
    """`open` makes the search."""

    def __init__(self, open: Callable[[], "FolderSearch"]) -> None:  # noqa: A002
        self._open = open
        self._search: FolderSearch | None = None

    @property
    def search(self) -> "FolderSearch":
        """The search. Raises `UsageError`."""
        if self._search is None:
            self._search = self._open()
        return self._search

    def borrowed(self) -> "FolderAccess":
        """Return the same search for somebody who does not close it."""
        return _Borrowed(lambda: self.search)

    async def aclose(self) -> None:
        """Close what was opened."""
        search, self._search = self._search, None
        if search is not None:
            await search.aclose()


class _Borrowed(FolderAccess):
    async def aclose(self) -> None:
        """Leave it to the owner."""
