"""Reading modules without running them."""

import ast
import gc
from functools import cache
from pathlib import Path


def parse(source: str) -> ast.Module:
    """Parse a module. CPython 3.11 counts the depth of the tree that it builds in one place for all threads. So no
    garbage is collected meanwhile: a finalizer would let another thread parse in the midst of it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if collects:
            gc.enable()


@cache
def module(path: Path) -> ast.Module:
    """The tree of a file, parsed once for all who ask."""
    return parse(path.read_text())
