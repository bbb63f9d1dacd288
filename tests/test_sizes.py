"""No file is longer than 500 lines, and no function longer than 50, from its first statement after the docstring."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import parse

ROOT = Path(__file__).parents[1]
MAX_FILE = 500
MAX_FUNCTION = 50
FOLDERS = ("tests", "benchmarks")


def too_long(path: Path) -> Iterator[str]:
    source = path.read_text()
    lines = source.count("\n")
    if lines > MAX_FILE:
        yield f"{lines} lines: {path}"
    if lines > MAX_FUNCTION:
        yield from (f"{length} lines: {path}: {name}" for name, length in functions(source) if length > MAX_FUNCTION)


def functions(source: str) -> Iterator[tuple[str, int]]:
    """The name of each function, and its lines from the first statement after the docstring."""
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1 if ast.get_docstring(node, clean=False) is not None and len(node.body) > 1 else 0]
            yield node.name, (node.end_lineno or 0) - first.lineno + 1


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_and_functions_are_short(folder: str) -> None:
    assert [found for path in sorted((ROOT / folder).rglob("*.py")) for found in too_long(path)] == []


def test_a_docstring_does_not_count() -> None:
    source = 'def f():\n    """Text.\n\n    More text.\n    """\n    return [\n        1,\n    ]\n'
    assert [*functions(source)] == [("f", 3)]
