"""A small Debian root, as an image: a layer a package, as this machine's package sources have them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.containers.layouts import file, layer, layout, symlink

PACKAGES = (
    "base-files", "bash", "coreutils", "dash", "diffutils", "dpkg", "grep", "libacl1", "libattr1", "libaudit1",
    "libbz2-1.0", "libc-bin", "libc6", "libcap-ng0", "libcrypt1", "libgcc-s1", "libgmp10", "liblzma5", "libmd0",
    "libpam-modules", "libpam-runtime", "libpam0g", "libpcre2-8-0", "libselinux1", "libtinfo6", "libzstd1", "login",
    "sed", "tar", "util-linux", "zlib1g",
)  # fmt: skip
SECONDS = 30
"""For 17 MB: where that takes longer they count as out of reach."""
PASSWD = b"""root:x:0:0:root:/root:/bin/bash
games:x:5:60:games:/usr/games:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
GROUP = b"root:x:0:\ntty:x:5:\nmail:x:8:games\ngames:x:60:\nnogroup:x:65534:\n"
PAM = b"auth sufficient pam_rootok.so\naccount required pam_permit.so\nsession required pam_permit.so\n"


def debian(folder: Path, user: str = "") -> Path:
    """An OCI layout of it. Skips the test where packages cannot be had."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}")
    packages = folder / "packages"
    packages.mkdir()
    try:
        subprocess.run(
            ["apt-get", "-q", "download", *PACKAGES], cwd=packages, check=True, timeout=SECONDS, capture_output=True
        )
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"Debian's packages cannot be had: {error}")
    found = sorted(packages.glob("*.deb"))
    layers = [
        subprocess.run(["dpkg-deb", "--fsys-tarfile", path], capture_output=True, check=True).stdout for path in found
    ]
    status = "".join(map(_status, found)).encode()
    more = [
        symlink("bin/sh", "dash"),
        file("etc/passwd", PASSWD),
        file("etc/group", GROUP),
        file("etc/pam.d/su", PAM),
        file("etc/pam.d/other", PAM),
        file("var/lib/dpkg/status", status),
    ]
    return layout(folder / "debian", *layers, layer(*more), pack=lambda data: data, layer_kind=TAR, run={"User": user})


TAR = "application/vnd.oci.image.layer.v1.tar"


def _status(package: Path) -> str:
    about = subprocess.run(["dpkg-deb", "--field", package], capture_output=True, text=True, check=True).stdout
    return f"Status: install ok installed\n{about}\n"


CONTROL = "Package: demo\nVersion: 1\nArchitecture: all\nMaintainer: m\nDescription: d\n"
SCRIPT = "#!/bin/sh\nset -e\nchown games:games /usr/games/mine\nchmod 600 /usr/games/mine\n"


def package(folder: Path) -> Path:
    """A package whose script gives a file to another user."""
    root = folder / "demo"
    for name in ("DEBIAN", "usr/games"):
        (root / name).mkdir(parents=True)
    (root / "usr/games/mine").write_text("of games\n")
    (root / "DEBIAN/control").write_text(CONTROL)
    (root / "DEBIAN/postinst").write_text(SCRIPT)
    (root / "DEBIAN/postinst").chmod(0o755)
    made = folder / "demo.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", root, made], check=True, capture_output=True)
    return made
