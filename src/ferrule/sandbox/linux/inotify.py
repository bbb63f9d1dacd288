"""Let the kernel watch folders (inotify(7)), so that they need not all be read after each command.

Only on file systems of this machine: changes that another machine makes on a network file system are not reported. A
folder that cannot be watched never counts as clean, and is read again.
"""

import os
import struct
from collections.abc import Collection, Iterator

_RELEVANT = 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800  # attributes, moves, creation, deletion; of itself, too
_MASK = _RELEVANT | 0x01000000 | 0x02000000 | 0x04000000  # only a folder, no link, no events of deleted entries
_IS_FOLDER, _OVERFLOW, _GONE, _OF_ITSELF = 0x40000000, 0x4000, 0x8000, 0x400 | 0x800
_MOVED_FROM, _MOVED_ITSELF = 0x40, 0x800
_EVENT = struct.Struct("iIII")
_READ_BYTES = 1 << 16
# statfs(2): ext, XFS, Btrfs, tmpfs, overlay, F2FS, ZFS, bcachefs.
_LOCAL = frozenset(
    (0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E),
)
_STATFS_BYTES = 512


class FolderWatch:
    """The watched folders of one session. `names` are entries that matter even if they are not folders. Close it."""

    def __init__(self, names: Collection[str]) -> None:
        import ctypes

        self._names = frozenset(os.fsencode(name).lower() for name in names)
        self._libc = ctypes.CDLL(None, use_errno=True)
        make = getattr(self._libc, "inotify_init1", None)
        self._fd = -1 if make is None else int(make(os.O_NONBLOCK | os.O_CLOEXEC))
        self._paths: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._devices: dict[int, bool] = {}
        self._changed: set[str] = set()

    def watch(self, path: str) -> None:
        """Watch a folder; it is clean until something changes. Read it only after this call."""
        self._changed.discard(path)
        if self._fd < 0 or not self._is_local(path):
            return
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(path), _MASK)
        if number < 0:  # gone, closed to us, or too many watches
            self.forget(path)
            return
        if self._numbers.get(path, number) != number:
            self.forget(path)
        self._paths[number], self._numbers[path] = path, number

    def is_clean(self, path: str) -> bool:
        """Tell whether the folder is watched and was unchanged at the last `listen`."""
        return path in self._numbers and path not in self._changed

    def listen(self) -> bool:
        """Read the pending events. Returns whether a folder has changed."""
        while self._fd >= 0:
            try:
                events = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                break
            self._take(events)
        return bool(self._changed)

    def forget(self, path: str) -> None:
        """Stop watching a folder."""
        number = self._numbers.pop(path, None)
        self._changed.discard(path)
        if number is not None and self._paths.get(number) == path:
            del self._paths[number]
            self._libc.inotify_rm_watch(self._fd, number)

    def keep(self, paths: Collection[str]) -> None:
        """Stop watching all folders but these."""
        if len(self._numbers) > len(paths) or self._changed:
            for path in [path for path in self._numbers if path not in paths]:
                self.forget(path)
            self._changed.intersection_update(paths)

    def close(self) -> None:
        """Stop watching; no folder is clean any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._numbers.clear()

    def _take(self, events: bytes) -> None:
        position, moved = 0, set[str]()
        while position < len(events):
            number, mask, _, length = _EVENT.unpack_from(events, position)
            name = events[position + _EVENT.size : position + _EVENT.size + length].rstrip(b"\0")
            position += _EVENT.size + length
            if mask & _OVERFLOW:
                self._changed.update(self._numbers)
            elif (path := self._paths.get(number)) is not None:
                if mask & _GONE:
                    del self._paths[number]
                    self._numbers.pop(path, None)
                if mask & _MOVED_ITSELF:
                    moved.add(path)
                elif mask & _MOVED_FROM and mask & _IS_FOLDER:
                    moved.add(f"{path}/{os.fsdecode(name)}")
                if mask & (_GONE | _IS_FOLDER | _OF_ITSELF) or name.lower() in self._names:
                    self._changed.add(path)
        if moved:
            self._forget_below(moved)

    def _forget_below(self, moved: Collection[str]) -> None:
        """Forget folders below one that was moved: events about them do not match their paths any more."""
        for path in list(self._numbers):
            if any(above in moved for above in _with_those_above(path)):
                self.forget(path)
                self._changed.add(path)

    def _is_local(self, path: str) -> bool:
        try:
            device = os.lstat(path).st_dev
        except OSError:
            return False
        if device not in self._devices:
            import ctypes

            buffer = ctypes.create_string_buffer(_STATFS_BYTES)
            failed = self._libc.statfs(os.fsencode(path), buffer)
            (kind,) = struct.unpack_from("@l", buffer)
            self._devices[device] = not failed and kind & 0xFFFFFFFF in _LOCAL
        return self._devices[device]


def _with_those_above(path: str) -> Iterator[str]:
    while path.rstrip("/"):
        yield path
        path = path.rpartition("/")[0]
