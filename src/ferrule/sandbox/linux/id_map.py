"""The full map of ids: a user namespace with a range of the host's ids, none of which belongs to anybody, and file
systems that are shown through it.

On disk, files keep the ids that they have inside; a mount translates them (mount_setattr(2), ID-mapped mounts), which
only root can ask for. So root inside is nobody outside, and what it writes into a folder of the user's is the user's.
Part of the holder (`mother.py`): standard library only.
"""

import os

from . import kernel
from .kernel import StepError
from .private_root import READ_ONLY, WRITABLE, Trees

CAPABILITIES = (0, 1, 3, 5, 6, 7)
"""chown, dac_override, fowner, kill, setgid, setuid: what root needs for other users' files and processes inside. None
reaches ids that are not in the map."""

ACCESS = (1, 3)
"""dac_override and fowner: what reaches the image's files without giving a file to anybody."""
PROGRAMS = {"uid": "/usr/bin/newuidmap", "gid": "/usr/bin/newgidmap"}
"""They have the right to write what /etc/subuid and /etc/subgid allow (package `uidmap`)."""


def map_of(lines: list[tuple[int, int, int]]) -> str:
    return "".join(f"{inside} {outside} {count}\n" for inside, outside, count in lines)


def new_namespace(
    users: list[tuple[int, int, int]],
    groups: list[tuple[int, int, int]],
    by_program: bool = False,
) -> int:
    """Return a new user namespace with these maps, as a descriptor. Raises `StepError`, `OSError`.

    A child makes it and ends: it takes another process to write a map of more than one id, and without root's
    rights it takes a program that has them.
    """
    write = map_by_program if by_program else write_map
    (ready, tell), (wait, done) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            os.close(done)
            kernel.unshare(kernel.CLONE_NEWUSER)
            os.write(tell, b"r")
            os.read(wait, 1)
        finally:
            os._exit(0)
    os.close(tell)
    try:
        if not os.read(ready, 1):
            raise StepError(1, "unshare")
        write(pid, "gid", groups)
        write(pid, "uid", users)
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for fd in (ready, wait, done):
            os.close(fd)
        os.waitpid(pid, 0)


def write_map(pid: int, kind: str, lines: list[tuple[int, int, int]]) -> None:
    kernel.write_file(f"/proc/{pid}/{kind}_map", map_of(lines))


def map_by_program(pid: int, kind: str, lines: list[tuple[int, int, int]]) -> None:
    """Let `newuidmap` or `newgidmap` write a map. Raises `StepError`, `OSError`."""
    program = PROGRAMS[kind]
    words = [program, str(pid), *map_of(lines).split()]
    silent = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in range(3)]
    _, status = os.waitpid(os.posix_spawn(program, words, {}, file_actions=silent), 0)
    if status != 0:
        raise StepError(1, program)


def enter_as_root(namespace: int, flags: int) -> None:
    """Enter a user namespace, and new ones of other kinds."""
    kernel.enter_user_namespace(namespace)
    os.close(namespace)
    kernel.unshare(flags)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # else what it has in /proc would be the host root's


class SubordinateMap:
    """The map of an ordinary user: their own id is root inside, the others are those that the administrator gave to
    them (subuid(5)). Files have these ids on disk. Used as `FullMap` is."""

    def __init__(self, users: tuple[int, int], groups: tuple[int, int]) -> None:
        """`users` and `groups` are the first id and their number. Raises `StepError`, `OSError`."""
        self.namespace = new_namespace(
            [(0, os.getuid(), 1), (1, *users)], [(0, os.getgid(), 1), (1, *groups)], by_program=True
        )
        self.trees: Trees = {}

    def enter(self, flags: int) -> None:
        """Enter the namespace and new ones of other kinds, which it owns, as its root."""
        enter_as_root(self.namespace, flags)


class FullMap:
    """What a holder needs to show a plan through the map. Made while it still has its rights on the host."""

    def __init__(self, first: int, count: int, owner: tuple[int, int], plan: dict) -> None:  # type: ignore[type-arg]
        """`first` is the host's id that is 0 inside; `owner` are the ids inside to which the user's files belong.

        Raises `StepError`, `OSError` where this cannot be done; then nothing has changed.
        """
        opened: list[int] = []
        try:
            self.namespace = new_namespace([(0, first, count)], [(0, first, count)])
            opened.append(self.namespace)
            theirs = new_namespace([(os.getuid(), first + owner[0], 1)], [(os.getgid(), first + owner[1], 1)])
            opened.append(theirs)
            self.trees: Trees = {}
            for target, source, writable, own in shown(plan):
                tree = kernel.clone_tree(source)
                opened.append(tree)
                attributes = WRITABLE if writable else READ_ONLY
                kernel.set_attributes(attributes, tree, namespace=self.namespace if own else theirs)
                self.trees[target] = tree
        except BaseException:
            for fd in opened:
                os.close(fd)
            raise
        os.close(theirs)

    def enter(self, flags: int) -> None:
        """Enter the namespace and new ones of other kinds, which it owns, as its root."""
        enter_as_root(self.namespace, flags)


def shown(plan: dict) -> list[tuple[bytes, bytes, bool, bool]]:  # type: ignore[type-arg]
    """List what is mounted: where, from where, writable, with ids of the container's own."""
    base, upper, _ = plan["image"]
    image = [(b"base", base, not upper, True)]
    # What commands change; of a copy once more, since all that is mounted in the other one would count as its files.
    image.append((b"layer", os.path.dirname(upper), True, True) if upper else (b"changed", base, False, True))
    return [*image, *((target, source, writable, target in plan["own"]) for source, target, writable in plan["binds"])]
