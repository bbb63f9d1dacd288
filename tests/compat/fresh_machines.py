"""Install Ferrule on machines that have nothing but Python: `scripts/fresh_machines`. Needs Linux, root, debootstrap.

A machine is a root that debootstrap makes once and that each run sees through an overlay of its own. `hour.sh` does
there what a new user does; `packages.sh` builds the wheel and the sdist, and installs each extra alone. This module
uses the standard library alone.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).parents[2]
INSIDE = "tests/compat/fresh"
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
"""This machine's certificates, which count inside, too: its network may have a proxy of its own."""
STEP = "ok: "
"""What a line of a script begins with that tells of a step."""
INSTALLERS = ("pip", "uv")
ACCOUNTS = {"root": ("0", "/root"), "user": ("1000", "/home/ann")}
"""Name -> user id and home folder."""

ENTER = r"""
set -eu
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" "$SCRATCH/root"
cd "$SCRATCH/root"
cp /etc/resolv.conf etc/resolv.conf
if [ -e "$BUNDLE" ]; then cp "$BUNDLE" etc/ssl/certs/ca-certificates.crt; fi
mkdir -p var/cache/packages
mount --bind "$CACHE" var/cache/packages
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
pivot_root . .
umount -l .
cd /
chroot_user=$1 home=$2
shift 2
exec setpriv --reuid "$chroot_user" --regid "$chroot_user" --clear-groups env -i \
    HOME="$home" PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 TERM=dumb SSL_CERT_FILE="$BUNDLE" PIP_CERT="$BUNDLE" \
    PIP_CACHE_DIR=/var/cache/packages/pip UV_CACHE_DIR=/var/cache/packages/uv UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never PIP_DISABLE_PIP_VERSION_CHECK=1 "$@"
"""
"""Makes the root of this mount namespace, and runs a program there: user id, home, program. Not by chroot, in which the
kernel makes no user namespaces, so that no sandbox would work."""


@dataclass(frozen=True, slots=True)
class Release:
    """A distribution's release, and how debootstrap gets it."""

    name: str
    mirror: str
    options: tuple[str, ...] = ()
    script: str | None = None


RELEASES = {
    "3.11": Release("bookworm", "http://deb.debian.org/debian"),
    "3.12": Release(
        "noble",
        "https://archive.ubuntu.com/ubuntu",
        ("--components=main,universe", "--no-check-gpg"),  # Debian has no package of Ubuntu's keys
        "/usr/share/debootstrap/scripts/gutsy",
    ),
    "3.13": Release("trixie", "http://deb.debian.org/debian"),
    "3.14": Release("sid", "http://deb.debian.org/debian"),
}
"""Python's version -> a release whose python3 it is."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One account of one machine, and the script that runs there."""

    python: str
    account: str
    installer: str
    script: str

    def __str__(self) -> str:
        return f"{self.script:<9} Python {self.python}  {self.account:<4}  {self.installer}"


def make_root(python: str, roots: Path) -> Path:
    """Return the root of a release; make it if it is not there yet. Raises CalledProcessError."""
    release, root = RELEASES[python], roots / python
    if not root.exists():
        made = roots / f"{python}.partial"
        shutil.rmtree(made, ignore_errors=True)
        command = [
            "debootstrap",
            "--variant=minbase",
            "--include=ca-certificates,python3,python3-venv",
            *release.options,
        ]
        command += [release.name, str(made), release.mirror, *([release.script] if release.script else [])]
        print(f"making a root of {release.name}", flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["chroot", made, "useradd", "--create-home", "--uid", "1000", "ann"], check=True)
        made.rename(root)
    return root


def visit(there: Visit, root: Path, cache: Path, keep: bool) -> tuple[int, str]:
    """Run the script on the machine, tell each step that is done, and return its exit code and what it wrote."""
    user, home = ACCOUNTS[there.account]
    packages = cache / f"{there.python}-{there.account}"
    packages.mkdir(parents=True, exist_ok=True)
    os.chown(packages, int(user), int(user))
    scratch = Path(tempfile.mkdtemp(prefix="ferrule-fresh-", dir=cache))
    for name in ("upper", "work", "root"):
        (scratch / name).mkdir()
    tree = f"{home}/my projects/ferrule (1)"
    copy_tree(scratch / "upper" / tree.lstrip("/"), scratch / "upper" / home.lstrip("/"), int(user))
    env = {"PATH": os.environ["PATH"], "LOWER": str(root), "SCRATCH": str(scratch), "CACHE": str(packages)}
    inside = ["/bin/sh", f"{tree}/{INSIDE}/{there.script}.sh", there.installer]
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", ENTER, "enter"]
    said = []
    try:
        with subprocess.Popen(
            [*command, user, home, *inside],
            env=env | {"BUNDLE": str(BUNDLE)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                said.append(line)
                if line.startswith(STEP):
                    print(f"    {line.removeprefix(STEP)}", end="", flush=True)
        return child.returncode, "".join(said)
    finally:
        if not keep:
            shutil.rmtree(scratch)


def copy_tree(tree: Path, home: Path, user: int) -> None:
    """Put what git has of this tree into a folder of a home that belongs to the user."""
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", TREE, "archive", "HEAD"], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
    subprocess.run(["chown", "-R", f"{user}:{user}", home], check=True)


def visits(options: argparse.Namespace) -> Iterator[Visit]:
    """All that is asked for: the first hour everywhere, the packages once with each Python."""
    for python in options.python or RELEASES:
        for account in options.account or ACCOUNTS:
            for installer in options.installer or INSTALLERS:
                yield Visit(python, account, installer, "hour")
        yield Visit(python, "user", "uv", "packages")


def main() -> int:
    """Visit each machine. Return 1 if something failed there, with all that it wrote."""
    parser = argparse.ArgumentParser(prog="scripts/fresh_machines", description=__doc__)
    parser.add_argument("--python", action="append", choices=RELEASES)
    parser.add_argument("--account", action="append", choices=ACCOUNTS)
    parser.add_argument("--installer", action="append", choices=INSTALLERS)
    parser.add_argument("--only", choices=("hour", "packages"), help="one of the two scripts")
    parser.add_argument(
        "--roots", type=Path, default=Path("/var/tmp/ferrule-fresh-machines"), help="kept for the next run"
    )
    parser.add_argument("--keep", action="store_true", help="keep what was written on the machines")
    options = parser.parse_args()
    options.roots.mkdir(parents=True, exist_ok=True)
    failed = 0
    for there in visits(options):
        if options.only in (None, there.script):
            root, began = make_root(there.python, options.roots), time.monotonic()
            print(there, flush=True)
            code, said = visit(there, root, options.roots / "cache", options.keep)
            if code:
                print(said, end="")
            print(f"{'FAILED' if code else 'ok'} in {time.monotonic() - began:.0f} s", flush=True)
            failed += code != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
