"""The folders that a session searches."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ferrule.kernel_files import Shown
from ferrule.protocol.permissions import ReadOnly, WorkspaceWrite
from ferrule.protocol.settings import Settings
from ferrule.retrieval.access import FolderAccess

if TYPE_CHECKING:
    from ferrule.retrieval.folder_search import FolderSearch


def folder_access(settings: Settings, env: Mapping[str, str], shown: Shown) -> FolderAccess | None:
    """Return a session's search in folders; None where the user has named none. `shown` are the folders that its
    sandbox lets it read, where not everything can be read."""
    folders = settings.file_search.folders
    if not folders:
        return None

    def open_it() -> "FolderSearch":
        from ferrule.retrieval.embedders import open_embedder
        from ferrule.retrieval.folder_search import FolderSearch
        from ferrule.retrieval.vectors import VectorMemory
        from ferrule.session.parser import ConfinedParser

        policy = settings.sandbox_policy
        ca_file = policy.ca_file if isinstance(policy, ReadOnly | WorkspaceWrite) else None
        return FolderSearch(
            [os.path.join(settings.cwd, os.path.expanduser(folder)) for folder in folders],
            settings.home,
            open_embedder(settings.embeddings, env, ca_file=ca_file),
            VectorMemory(settings.embeddings.memory_bytes),
            parser=ConfinedParser(settings.home),
            shown=shown,
        )

    return FolderAccess(open_it)
