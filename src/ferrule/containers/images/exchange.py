"""Exchange two names in one step (renameat2(2), RENAME_EXCHANGE): a kill leaves no name without a thing."""

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD, _EXCHANGE = -100, 2
_CANNOT = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""File systems that cannot (NFS), kernels that do not know how."""


def exchange(first: Path, second: Path) -> bool:
    """Exchange what two names of one file system mean; False where that cannot be done. Raises `OSError`."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:  # another system, or an old C library
        return False
    if call(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(second))
