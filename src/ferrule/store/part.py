"""What the parts of a store have in common."""

from ferrule.store.contents import Contents
from ferrule.store.database import Database


class Part:
    """The methods for one kind of record; `Store` is made of these.

    Each method is one transaction. One that is cancelled has happened whole or not at all. All raise `StoreError` if
    the database cannot be used, and see only what belongs to the owner.
    """

    _database: Database
    _contents: Contents
