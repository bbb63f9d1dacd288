"""Kill `ferrule exec` at its N-th change of the disk, before, in the middle of, or after it.

`FERRULE_TEST_KNIFE` is `N:before`, `N:half` or `N:after`. Python imports this at its start where the folder is on
PYTHONPATH; only the command itself, no program that it starts, is killed.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

CHANGES = ("write", "rename", "replace", "unlink", "remove", "link", "mkdir", "rmdir", "ftruncate", "fchmod")


class Knife:
    """Counts the changes."""

    def __init__(self, at: int, where: str) -> None:
        self.left = at
        self.where = where
        self.owner = os.getpid()

    def change(self, name: str, real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Make a change, or die."""
        self.left -= os.getpid() == self.owner
        if self.left:
            return real(*arguments, **named)
        if self.where == "half" and name == "write":
            real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
        elif self.where == "after":
            real(*arguments, **named)
        return os.kill(self.owner, signal.SIGKILL)


def lay_hold(order: str) -> None:
    """Put the knife to all changes."""
    at, _, where = order.partition(":")
    knife = Knife(int(at), where)
    for name in CHANGES:
        setattr(os, name, partial(knife.change, name, getattr(os, name)))


if "ferrule.cli.main" in sys.orig_argv and "FERRULE_TEST_KNIFE" in os.environ:
    lay_hold(os.environ.pop("FERRULE_TEST_KNIFE"))
