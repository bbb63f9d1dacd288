"""What a gateway keeps: bytes under ids and owners, in one SQLite file. Needs the extra `gateway`.

`Store` is imported when it is first used: SQLAlchemy takes half a second, which only a running gateway pays.
"""

from importlib import import_module

from ferrule.protocol.errors import UsageError
from ferrule.store.errors import NoSuchFile, StoreError, StoreFull, StoreInUse, StoreRefusal, TooLarge
from ferrule.store.records import (
    LATEST,
    ContainerRecord,
    Conversation,
    Entry,
    FileBatch,
    FileCounts,
    FileRecord,
    FileState,
    NewStoreFile,
    Page,
    Paging,
    Skill,
    SkillVersion,
    StoredResponse,
    StoreFile,
    Upload,
    UploadPart,
    VectorStore,
    Which,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ferrule.store.contents import Content
    from ferrule.store.store import Store

__all__ = [
    "LATEST",
    "ContainerRecord",
    "Content",
    "Conversation",
    "Entry",
    "FileBatch",
    "FileCounts",
    "FileRecord",
    "FileState",
    "NewStoreFile",
    "NoSuchFile",
    "Page",
    "Paging",
    "Skill",
    "SkillVersion",
    "Store",
    "StoreError",
    "StoreFile",
    "StoreFull",
    "StoreInUse",
    "StoreRefusal",
    "StoredResponse",
    "TooLarge",
    "Upload",
    "UploadPart",
    "VectorStore",
    "Which",
]

_HOMES = {"Content": "contents", "Store": "store"}


def __getattr__(name: str) -> "Any":
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ferrule.store' has no attribute {name!r}")
    try:
        return getattr(import_module(f"ferrule.store.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name != "sqlalchemy":
            raise
        raise UsageError("`ferrule serve` needs the extra `gateway`: pip install 'ferrule[gateway]'") from error
