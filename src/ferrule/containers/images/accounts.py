"""Find the user whom an image's commands run as, in the image's own tables.

https://github.com/opencontainers/image-spec/blob/main/config.md, `User`: `name`, `id`, and either with `:group`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from ferrule.containers.images.errors import ImageError, readable
from ferrule.containers.images.folders import open_inside
from ferrule.sandbox.linux.root import Account

MOST_BYTES = 1 << 20
"""Of a table of users: images have some dozens."""
LARGEST = (1 << 16) - 1
"""The largest id that containers have."""


def account_of(root: Path, user: str) -> Account | None:
    """Return the user; None for root itself. Raises `ImageError` for one that the image does not have."""
    found = find_account(_text(root, b"etc/passwd"), _text(root, b"etc/group"), user)
    return found if found.user or found.group else None


def find_account(passwd: str, group_table: str, user: str) -> Account:
    """Return the user as the text of the tables has them. Raises `ImageError`."""
    name, _, group = user.partition(":")
    users = [*_rows(passwd, 7)]
    found = next((row for row in users if name in (row[0], row[2])), None)
    if found is None and not name.isdigit():
        raise ImageError(
            f"the image's user is {readable(user)!r}, but its /etc/passwd has no {readable(name)!r}: build it anew"
        )
    number = int(found[2] if found else name)
    groups = [*_rows(group_table, 4)]
    main = _group(groups, group, user) if group else int(found[3]) if found else 0
    more = () if group or not found else tuple(int(row[2]) for row in groups if found[0] in row[3].split(","))
    if max(number, main, *more) > LARGEST:
        raise ImageError(
            f"the image's user is {readable(user)!r}, but containers have no ids above {LARGEST}: build it anew"
        )
    return Account(
        user=number,
        group=main,
        groups=tuple(sorted({main, *more})),
        name=found[0] if found else name,
        home=found[5] if found and found[5].startswith("/") else "/",
    )


def _group(groups: list[list[str]], wanted: str, user: str) -> int:
    found = next((row for row in groups if row[0] == wanted), None)
    if found is None and not wanted.isdigit():
        raise ImageError(
            f"the image's user is {readable(user)!r}, but its /etc/group has no {readable(wanted)!r}: build it anew"
        )
    return int(found[2] if found else wanted)


def _text(root: Path, path: bytes) -> str:
    """Return a table's text; none if there is no table."""
    try:
        return read_table(open_inside(root, path))
    except OSError:
        return ""


def read_table(file: int) -> str:
    """Read a table of users or groups, and close its descriptor."""
    with os.fdopen(file, "rb") as opened:
        return opened.read(MOST_BYTES).decode("utf-8", "replace")


def _rows(text: str, columns: int) -> Iterator[list[str]]:
    """Yield the rows of a table whose ids are numbers."""
    for line in text.splitlines():
        row = line.split(":")
        if len(row) == columns and row[2].isdigit() and (columns < 7 or row[3].isdigit()):
            yield row
