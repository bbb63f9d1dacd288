"""What the root of a container is made of: a list of good things, none of which tells of this machine's users."""

import os
import stat
from collections.abc import Iterator
from glob import glob
from typing import Final

import msgspec

from ferrule.protocol.errors import UsageError
from ferrule.sandbox.plan import folders_between, is_within

USER: Final = "user"
HOME: Final = "/home/user"
DATA: Final = "/mnt/data"
SKILLS: Final = "/mnt/skills"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ID: Final = 1000
"""The number of the user and of its group inside."""
NOBODY: Final = 65534
HOST_NAME: Final = "container"

TOP: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Links into `/usr`, or folders beside it on systems that have not merged them."""
ETC: Final = (
    "alternatives", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl/certs", "ssl/openssl.cnf",
    "ca-certificates.conf", "pki/ca-trust/extracted", "pki/tls/certs", "pki/tls/openssl.cnf", "pki/tls/cert.pem",
    "crypto-policies", "localtime", "timezone", "mime.types", "magic", "protocols", "services", "inputrc", "terminfo",
    "papersize", "java-*-openjdk/*.properties", "java-*-openjdk/jvm-*.cfg", "java-*-openjdk/security",
    "java-*-openjdk/jfr", "php/*/cli/conf.d", "php/*/mods-available", "python3*/sitecustomize.py", "ImageMagick-*",
)  # fmt: skip
"""Entries of the host's `/etc` that programs need and that hold neither keys nor names. `/etc/ssl` itself holds private
keys, and shell profiles often hold the passwords of proxies."""
FOLDERS: Final = ("/proc", "/mnt", "/home", "/run", "/var", "/opt", "/srv", "/root")
TAKEN: Final = ("/proc", "/dev", "/sys", "/etc", "/usr", DATA, SKILLS, "/tmp", *(f"/{name}" for name in TOP))
"""Where nothing else may be mounted."""
KERNEL: Final = ("/proc", "/dev", "/sys")
VAR_TMP: Final = "/var/tmp"
_PASSWD = f"root:x:0:0:root:/root:/usr/sbin/nologin\n{USER}:x:{ID}:{ID}:{USER}:{HOME}:/bin/bash\n"
_NOBODY = f"nobody:x:{NOBODY}:{NOBODY}:nobody:/nonexistent:/usr/sbin/nologin\n"
_GROUP = f"root:x:0:\n{USER}:x:{ID}:\nnogroup:x:{NOBODY}:\n"
_HOSTS = "127.0.0.1 localhost {}\n::1 localhost ip6-localhost ip6-loopback\n"
_NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files\nprotocols: files\nservices: files\n"


class Bind(msgspec.Struct, frozen=True):
    """Something of the host at a path inside. `source` is a real path."""

    source: str
    target: str
    writable: bool = False


def checked_bind(bind: Bind) -> Bind:
    """Return the bind with a real source. Raises `UsageError` for one that cannot be, or would cover what is ours."""
    source = os.path.realpath(os.path.expanduser(bind.source))
    target = bind.target if bind.target.startswith("/") else os.path.abspath(bind.target)
    if os.path.normpath(target) != target or target == "/" or "\0" in target + source:
        raise UsageError(f"{bind.target!r} cannot be a place in a container: give an absolute path without . and ..")
    if any(is_within(target, taken) or is_within(taken, target) for taken in TAKEN):
        raise UsageError(f"{target} is taken in a container: choose another place, like /mnt/work")
    if not os.path.isdir(source) and not os.path.isfile(source):
        raise UsageError(f"{bind.source} is neither a file nor a folder")
    return Bind(source, target, bind.writable)


def bind_in_place(path: str) -> Bind:
    """Return the bind that shows a folder of the host, by its real path, at this very path. Raises `UsageError` for
    one that would cover what is the container's own."""
    if any(is_within(path, kernel) for kernel in KERNEL):
        raise UsageError(f"{path} cannot be shown in a container, where {path.split('/')[1]} is its own")
    if path == "/" or any(is_within(taken, path) for taken in (*TAKEN, HOME)):
        raise UsageError(f"{path} cannot be shown in a container, whose own files lie there: choose a folder below it")
    return Bind(path, path, writable=True)


class Layers(msgspec.Struct, frozen=True, kw_only=True):
    """An unpacked image, `base`, which stays as it is, and the layer over it that takes what commands change: `upper`,
    with `work` beside it for the kernel (overlayfs). Without a layer, `base` is a copy that commands change."""

    base: str
    upper: str = ""
    work: str = ""

    def wire(self) -> tuple[bytes, bytes, bytes]:
        """Return the folders as the holder mounts them."""
        return os.fsencode(self.base), os.fsencode(self.upper), os.fsencode(self.work)


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A user of an image: its ids, its name and home."""

    user: int
    group: int
    groups: tuple[int, ...] = ()
    name: str = ""
    home: str = "/"


class PrivateRoot(msgspec.Struct, frozen=True, kw_only=True):
    """The root of one container. `data`, `tmp` and `home` are folders on disk, at `/mnt/data`, `/tmp` and the home;
    `skills`, if there is one, is shown read-only at `/mnt/skills`.

    `packages` are what the machine's own Python shall find, mounted where it looks. With an image, commands run as its
    root user, who has no right outside, or as the `account` where there is a map of many ids; its home is the image's.
    `programs`: the machine's own programs are shown, which an image has none of then.
    """

    data: str
    tmp: str
    home: str
    skills: str | None = None
    binds: tuple[Bind, ...] = ()
    packages: Bind | None = None
    image: Layers | None = None
    programs: bool = True
    account: Account | None = None
    host_name: str = HOST_NAME

    @property
    def user(self) -> int:
        """The user's number inside, and its group's."""
        return 0 if self.image else ID

    @property
    def own_folders(self) -> tuple[Bind, ...]:
        """The container's own files, but for the layer over an image."""
        shared = (Bind(self.data, DATA, True), Bind(self.tmp, "/tmp", True))
        if self.image:
            return shared
        second = (Bind(self.tmp, VAR_TMP, True),) if self._shows_var_tmp else ()
        return (*shared, Bind(self.home, HOME, True), *second)

    @property
    def _shows_var_tmp(self) -> bool:
        """True if something is mounted below `/var/tmp`, so that it cannot be a link."""
        return any(is_within(bind.target, VAR_TMP) for bind in self.binds)

    @property
    def writable(self) -> tuple[str, ...]:
        """Where commands may write, as they see it."""
        return ("/",) if self.image else tuple(bind.target for bind in self.folders)

    @property
    def shows_writable(self) -> bool:
        """True if commands may write a folder of the user's."""
        return any(bind.writable for bind in self.binds)

    @property
    def folders(self) -> tuple[Bind, ...]:
        """What commands may write of the host."""
        return (*self.own_folders, *(bind for bind in self.binds if bind.writable))

    def _pins(self) -> list[str]:
        """Return the folders above what is mounted that commands could rename, and put others in their place."""
        own = ("/",) if self.image else tuple(bind.target for bind in self.own_folders)
        found = (folder for bind in self.binds for top in own for folder in folders_between(top, bind.target))
        return sorted(set(found) - {bind.target for bind in (*self.own_folders, *self.binds)})

    def wire(self) -> dict[str, object]:
        """Return the root as the holder builds it, in order."""
        shown = [bind for bind in self.binds if not bind.writable]
        if self.skills is not None:
            shown.append(Bind(self.skills, SKILLS))
        links: list[tuple[str, str]] = []
        files = {"hosts": _HOSTS.format(self.host_name), "hostname": f"{self.host_name}\n"}
        if self.programs:
            tops, links = _tops()
            packages = [self.packages] if self.packages else []
            shown = [Bind("/usr", "/usr"), *packages, *tops, *_etc(), *shown]
        if self.image is None:
            files |= {"passwd": _PASSWD + _NOBODY, "group": _GROUP, "nsswitch.conf": _NSSWITCH}
            if self._shows_var_tmp:
                links = [link for link in links if link[0] != VAR_TMP]
        return {
            "pins": [os.fsencode(path) for path in self._pins()],
            "in_place": [os.fsencode(bind.target) for bind in self.binds if bind.source == bind.target],
            "image": self.image and self.image.wire(),
            "binds": [
                (os.fsencode(bind.source), os.fsencode(bind.target), bind.writable) for bind in (*shown, *self.folders)
            ],
            "own": [os.fsencode(bind.target) for bind in self.own_folders],
            "folders": [] if self.image else [os.fsencode(path) for path in FOLDERS],
            "links": [(os.fsencode(path), os.fsencode(target)) for path, target in links if self.image is None],
            "files": [(os.fsencode(f"/etc/{name}"), text.encode()) for name, text in files.items()],
        }


def _tops() -> tuple[list[Bind], list[tuple[str, str]]]:
    binds, links = [], [(VAR_TMP, "/tmp"), ("/etc/mtab", "/proc/self/mounts")]
    for name in TOP:
        path = f"/{name}"
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            binds.append(Bind(path, path))
    return binds, links


def _etc() -> Iterator[Bind]:
    """Yield the good entries that exist and that everybody may read: root inside could read the others, too."""
    for pattern in ETC:
        for path in sorted(glob(f"/etc/{pattern}")):
            real = os.path.realpath(path)
            try:
                mode = os.stat(real).st_mode
            except OSError:
                continue
            if mode & (stat.S_IROTH if stat.S_ISREG(mode) else stat.S_IXOTH) and (
                stat.S_ISREG(mode) or stat.S_ISDIR(mode)
            ):
                yield Bind(real, path)
