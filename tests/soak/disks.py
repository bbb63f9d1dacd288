"""Small disks, which fill up. Root alone can make them."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path


def small_disk(folder: Path, options: str) -> None:
    """Mount a tmpfs of this size."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "soak", folder], check=True)


def fill(filler: Path) -> None:
    """Write until there is no space left."""
    with suppress(OSError), filler.open("ab", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass


def let_go(folder: Path) -> str | None:
    """Remove a folder; a disk that is still in use is one more thing that was left."""
    problem = None
    if os.path.ismount(folder):
        done = subprocess.run(["umount", folder], capture_output=True, text=True, check=False)
        if done.returncode:
            problem = done.stderr.strip()
            subprocess.run(["umount", "--lazy", folder], check=True)
    shutil.rmtree(folder, ignore_errors=True)
    return problem
