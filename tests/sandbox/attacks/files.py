"""Writing outside of the roots."""

import fcntl
import os
import struct
import subprocess
from collections.abc import Callable

from .common import Scene, attack, raw, write


@attack
def write_outside(s: Scene) -> str:
    return write(s["out"] + "/new")


@attack
def overwrite_outside(s: Scene) -> str:
    return write(s["victim"])


@attack
def write_through_symlink(s: Scene) -> str:
    os.symlink(s["out"], s["ws"] + "/way")
    return write(s["ws"] + "/way/via-link")


@attack
def hardlink_out(s: Scene) -> str:
    os.link(s["victim"], s["ws"] + "/hard")
    return write(s["ws"] + "/hard")


@attack
def rename_root(s: Scene) -> str:
    os.rename(s["ws"], s["ws"] + "-moved")
    return "OPEN"


@attack
def rename_inner_root_parent(s: Scene) -> str:
    """A root below another root: its parent must not be renamed away."""
    os.rename(s["outer"] + "/a", s["outer"] + "/b")
    os.makedirs(s["outer"] + "/a/inner/.git/hooks")
    return "OPEN"


@attack
def write_ferrule_home(s: Scene) -> str:
    return write(s["home"] + "/rules/evil.rules")


@attack
def rename_ferrule_home_parent(s: Scene) -> str:
    parent = os.path.dirname(s["home"])
    os.rename(parent, parent + "2")
    return "OPEN"


@attack
def write_lock_file(s: Scene) -> str:
    return write(s["state"] + "/lock")


@attack
def write_locks_for_writing(s: Scene) -> str:
    fd = os.open(s["state"] + "/lock", os.O_RDONLY)
    fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", 1, 0, 0, 0, 0))
    return "OPEN"


@attack
def chmod_out(s: Scene) -> str:
    os.chmod(s["victim"], 0o777)
    return "OPEN"


@attack
def fchmod_out(s: Scene) -> str:
    fd = os.open(s["victim"], os.O_RDONLY)
    os.fchmod(fd, 0o777)
    return "OPEN"


@attack
def chown_out(s: Scene) -> str:
    os.chown(s["victim"], os.getuid(), os.getgid())
    return "OPEN"


@attack
def xattr_out(s: Scene) -> str:
    os.setxattr(s["victim"], "user.evil", b"1")
    return "OPEN"


@attack
def truncate_out(s: Scene) -> str:
    os.truncate(s["victim"], 0)
    return "OPEN"


@attack
def utime_out(s: Scene) -> str:
    os.utime(s["victim"], (1, 1))
    return "OPEN"


@attack
def memfd_execveat(s: Scene) -> str:
    """An executable that is no file: its effect is confined all the same."""
    memory = os.memfd_create("evil")
    os.write(memory, f"#!/bin/sh\necho pwned > {s['out']}/memfd\n".encode())
    done = subprocess.run([f"/proc/self/fd/{memory}"], pass_fds=[memory], stderr=subprocess.PIPE, check=False)
    return "OPEN" if done.returncode == 0 else "refused"


@attack
def setuid_program(s: Scene) -> str:
    if os.getuid() == 0 or not s["setuid_id"]:
        return "not tried"
    shown = subprocess.run([s["setuid_id"], "-u"], capture_output=True, check=False).stdout.strip()
    return "OPEN" if shown == b"0" else "refused"


@attack
def setuid_file_in_workspace(s: Scene) -> str:
    """A setuid file of one's own is harmless; the mount is nosuid all the same."""
    return "OPEN" if not os.statvfs(s["ws"]).f_flag & os.ST_NOSUID else "nosuid"


@attack
def s20_lease_outside(s: Scene) -> str:
    """Whoever opens the file would wait for the command."""
    fd = os.open(s["victim"], os.O_RDONLY)
    fcntl.fcntl(fd, 1024, fcntl.F_RDLCK)
    return "OPEN"


def _set_id(make: Callable[[str], object], path: str) -> str:
    make(path)
    return "OPEN" if os.stat(path).st_mode & 0o6000 else "without"


@attack
def s23_set_id_by_chmod(s: Scene) -> str:
    path = s["ws"] + "/set-id-chmod"
    write(path)
    return _set_id(lambda path: os.chmod(path, 0o4755), path)


@attack
def s23_set_group_id_by_fchmod(s: Scene) -> str:
    path = s["ws"] + "/set-id-fchmod"
    write(path)
    fd = os.open(path, os.O_RDONLY)
    return _set_id(lambda _: os.fchmod(fd, 0o2755), path)


@attack
def s23_set_id_by_fchmodat2(s: Scene) -> str:
    path = s["ws"] + "/set-id-fchmodat2"
    write(path)
    return _set_id(lambda path: raw(452, -100, path.encode(), 0o4755, 0), path)


@attack
def s23_set_id_by_open(s: Scene) -> str:
    return _set_id(lambda path: os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755), s["ws"] + "/set-id-open")


@attack
def s23_set_id_by_openat2(s: Scene) -> str:
    how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    return _set_id(lambda path: raw(437, -100, path.encode(), how, len(how)), s["ws"] + "/set-id-openat2")


@attack
def s23_set_id_by_unnamed_file(s: Scene) -> str:
    path = s["ws"] + "/set-id-unnamed"
    fd = os.open(s["ws"], os.O_TMPFILE | os.O_WRONLY, 0o4755)
    return _set_id(lambda path: os.link(f"/proc/self/fd/{fd}", path, follow_symlinks=True), path)


@attack
def s23_set_id_by_mknod(s: Scene) -> str:
    return _set_id(lambda path: os.mknod(path, 0o104755), s["ws"] + "/set-id-mknod")
