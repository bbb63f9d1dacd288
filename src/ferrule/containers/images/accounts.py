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
    name, _, group = user.partition(":")
    users = [*_table(root, b"etc/passwd", 7)]
    found = next((row for row in users if name in (row[0], row[2])), None)
    if found is None and not name.isdigit():
        raise ImageError(
            f"the image's user is {readable(user)!r}, but its /etc/passwd has no {readable(name)!r}: build it anew"
        )
    number = int(found[2] if found else name)
    groups = [*_table(root, b"etc/group", 4)]
    main = _group(groups, group, user) if group else int(found[3]) if found else 0
    more = () if group or not found else tuple(int(row[2]) for row in groups if found[0] in row[3].split(","))
    if max(number, main, *more) > LARGEST:
        raise ImageError(
            f"the image's user is {readable(user)!r}, but containers have no ids above {LARGEST}: build it anew"
        )
    if number == main == 0:
        return None
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


def _table(root: Path, path: bytes, columns: int) -> Iterator[list[str]]:
    """Yield the rows of a table whose ids are numbers; none if there is no table."""
    try:
        file = open_inside(root, path)
    except OSError:
        return
    with os.fdopen(file, "rb") as opened:
        text = opened.read(MOST_BYTES).decode("utf-8", "replace")
    for line in text.splitlines():
        row = line.split(":")
        if len(row) == columns and row[2].isdigit() and (columns < 7 or row[3].isdigit()):
            yield row
