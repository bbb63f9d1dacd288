"""Search the writable roots for socket files, in a process of its own beside the start of the zygote.

Part of the zygote. Imports only `os`, so that the search begins before the rest is loaded.
"""

import os

MAX_ENTRIES_SEEN = 1000
"""Entries of the roots searched for sockets, upper ones first: 7 ms where `/tmp` is full, less than the zygote takes to
start. Sockets lie high (`/tmp/ssh-*/agent.*`); the table of named sockets tells all but renamed and foreign ones."""


class SocketSearch:
    """A search below some roots, from now on. Has to begin before the zygote leaves the host's network."""

    def __init__(self, roots: list[bytes]) -> None:
        self.results, results = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            report(results, roots)
        os.close(results)

    def found(self) -> list[bytes] | None:
        """Wait for the result, once. None if the search failed or was killed."""
        paths = read_all(self.results).split(b"\0")
        os.close(self.results)
        return None if os.waitpid(self.pid, 0)[1] else paths[:-1]


def report(results: int, roots: list[bytes]) -> None:
    """Write the socket files that are found, each ended by a zero byte. Never returns."""
    try:
        names, _ = named_sockets(read_all(os.open("/proc/self/net/unix", os.O_RDONLY | os.O_CLOEXEC)))
        gone = {os.path.dirname(name) for name in names if not os.path.lexists(name)}
        paths = b"".join(path + b"\0" for path in socket_files([*gone], roots))
        while paths:
            paths = paths[os.write(results, paths) :]
    except BaseException:  # noqa: BLE001 - the zygote sees the status
        os._exit(1)
    os._exit(0)


def socket_files(single: list[bytes], deep: list[bytes]) -> list[bytes]:
    """Return the socket files in some folders and, within the bound, anywhere below others."""
    found, left = [], MAX_ENTRIES_SEEN
    folders = [*((folder, False) for folder in single), *((folder, True) for folder in deep)]
    for folder, descend in folders:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        if descend:
                            folders.append((entry.path, True))
                    elif not entry.is_file(follow_symlinks=False) and is_socket(entry.path):
                        found.append(entry.path)
        except OSError:
            pass  # gone, or closed to us and so to commands
        if left < 0:
            break
    return found


def is_socket(path: bytes) -> bool:
    try:
        return os.lstat(path).st_mode & 0o170000 == 0o140000
    except OSError:
        return False


def named_sockets(table: bytes) -> tuple[set[bytes], bool]:
    """Return the absolute paths in `/proc/net/unix`, and whether every other name there is abstract."""
    names, complete = set(), True
    for line in table.split(b"\n")[1:-1]:
        fields = line.split(None, 7)
        if len(fields) < 7 or not fields[0].endswith(b":"):
            complete = False  # the rest of a name with a line break
        elif len(fields) == 8 and fields[7].startswith(b"/"):
            names.add(fields[7])
        elif len(fields) == 8 and not fields[7].startswith(b"@"):
            complete = False  # bound by a relative name
    return names, complete


def read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 1 << 14):
        parts.append(part)
    return b"".join(parts)
