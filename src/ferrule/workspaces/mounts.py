"""Mounts that only this process and what it starts can see, so that they vanish with it, however it ends."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

from ferrule.sandbox.linux import kernel
from ferrule.sandbox.linux.holders import subordinate_ids
from ferrule.sandbox.linux.kernel import StepError

TEST_PLACE = b"/tmp"
"""Where the probe mounts something: it exists everywhere."""
ROOT_OPTIONS = b"redirect_dir=on,index=off,metacopy=off,volatile"
"""Folders of the base can be renamed; nothing waits for the disk, since no workspace outlives its process."""
USER_OPTIONS = b"userxattr,volatile"
"""What the kernel allows in a user namespace (Linux 5.11): folders of the base cannot be renamed, only copied."""
OTHER_OPTIONS = b"userxattr"
"""Without `volatile`, which is younger than overlays."""


class Mounts:
    """Whether this process may mount; get it by `own_mounts`."""

    def __init__(self, problem: str, *, is_root: bool = False) -> None:
        self.problem = problem
        """Why it may not; "" if it may."""
        self._ways = ((ROOT_OPTIONS,) if is_root else ()) + (USER_OPTIONS, OTHER_OPTIONS)

    def lay(self, lower: Path, beside: Path, place: Path) -> None:
        """Show `lower` at `place`, with a layer in `beside` that takes what is changed. Blocking. Raises `OSError`."""
        for folder in (upper := beside / "upper", work := beside / "work", place):
            folder.mkdir(0o700)
        upper.chmod(lower.stat().st_mode & 0o7777)
        layers = os.fsencode(lower), os.fsencode(upper), os.fsencode(work), os.fsencode(place)
        for options in self._ways:
            try:
                kernel.mount_overlay(*layers, options)
            except StepError as error:
                failed = error
            else:
                self._ways = (options,)
                return
        raise OSError(failed.number, os.strerror(failed.number), str(place))

    @staticmethod
    def lift(place: Path) -> None:
        """Undo `lay`, also where a program still looks at it. Raises `OSError`."""
        try:
            kernel.unmount(os.fsencode(place))
        except StepError as error:
            raise OSError(error.number, os.strerror(error.number), str(place)) from error


NO_MOUNTS = Mounts("workspaces are copied, since nobody asked for mounts")


def own_mounts(*, images: bool = False) -> Mounts:
    """Give this process mounts of its own. Call it at the start, before there are threads, and where nothing else of
    the process needs the host's: it cannot be undone.

    Root needs a mount namespace only; others get a user namespace, too, in which nobody but they themselves exists. So
    with `images`, for a process that starts containers on images, a user with subordinate ids gets none.
    """
    if sys.platform != "linux":
        return Mounts("workspaces are copied: only Linux lays folders over each other")
    if len(os.listdir("/proc/self/task")) > 1:
        return Mounts("workspaces are copied: this process has several threads, which cannot get mounts of their own")
    if images and os.geteuid() != 0 and subordinate_ids() is not None:
        return Mounts("workspaces are copied: containers on images need your subordinate ids, which mounts would cost")
    for enter in (_enter_mounts, _enter_user) if os.geteuid() == 0 else (_enter_user,):
        problem = _tried(enter)
        if not problem:
            enter()
            return Mounts("", is_root=enter is _enter_mounts)
    return Mounts(f"workspaces are copied: the system does not let this process mount anything ({problem})")


def _enter_mounts() -> None:
    kernel.unshare(kernel.CLONE_NEWNS)
    _keep_to_ourselves()


def _enter_user() -> None:
    kernel.enter_user(kernel.CLONE_NEWNS)
    _keep_to_ourselves()


def _keep_to_ourselves() -> None:
    """Let later mounts of the host be seen here, but none of ours there."""
    kernel.mount(None, b"/", None, kernel.MS_REC | kernel.MS_SLAVE)


def _tried(enter: Callable[[], None]) -> str:
    """Try it in a child, since a namespace without rights cannot be left again. Returns why it does not work."""
    pid = os.fork()
    if pid == 0:
        number = errno.EIO
        try:
            enter()
            kernel.mount(b"tmpfs", TEST_PLACE, b"tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV)
            number = 0
        except StepError as error:
            number = error.number
        except OSError as error:
            number = error.errno or errno.EIO
        finally:
            os._exit(number)
    _, status = os.waitpid(pid, 0)
    number = os.waitstatus_to_exitcode(status)
    return "" if number == 0 else os.strerror(abs(number))
