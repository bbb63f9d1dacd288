"""No file and no function is longer than can be read at once: 500 lines, and 50."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE_LINES = 500
FUNCTION_LINES = 50
"""From the first statement after the docstring to the last: public signatures and their docstrings may be long."""


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_no_file_is_too_long(folder: str) -> None:
    sizes = {path: len(path.read_bytes().splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert not {str(path): size for path, size in sizes.items() if size > FILE_LINES}


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_no_function_is_too_long(folder: str) -> None:
    assert not [found for path in (ROOT / folder).rglob("*.py") for found in _too_long(path)]


def _too_long(path: Path) -> list[str]:
    source = path.read_bytes()
    if not _may_be_long(source):
        return []
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, _FUNCTION))
    sizes = {f"{path}:{function.lineno} {function.name}": _size(function) for function in functions}
    return [f"{name}: {size} lines" for name, size in sizes.items() if size > FUNCTION_LINES]


_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_HEAD = re.compile(rb"( *)(async def|def|class) ")


def _may_be_long(source: bytes) -> bool:
    """Return whether it is far from a function's head to the next one that is not within: to parse all files takes
    seconds."""
    open_heads: list[tuple[int, int]] = []
    for number, line in enumerate([*source.splitlines(), b"class "]):
        head = _HEAD.match(line)
        if head is None:
            continue
        indent = len(head[1])
        while open_heads and open_heads[-1][0] >= indent:
            if number - open_heads.pop()[1] > FUNCTION_LINES:
                return True
        if head[2] != b"class":
            open_heads.append((indent, number))
    return False


def _size(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    documented = ast.get_docstring(function, clean=False) is not None
    first = function.body[1 if documented and len(function.body) > 1 else 0]
    return (function.end_lineno or 0) - first.lineno + 1
