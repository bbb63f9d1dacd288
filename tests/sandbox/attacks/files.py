"""Writing outside of the roots."""

import fcntl
import os
import struct
import subprocess

from .common import Scene, attack, write


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
