"""The pages of `docs/coverage/` stay true: what they name exists, and nothing that models or users see is missing."""

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import get_args

import ferrule
from ferrule.builtin import BUILTINS
from ferrule.protocol.events import Event
from ferrule.protocol.specs import RawTool, ToolSpec
from tests.sources import module

TESTS = Path(__file__).parent
PAGES = sorted((TESTS.parent / "docs" / "coverage").glob("*.md"))
TEXT = "".join(page.read_text() for page in PAGES)
MOST_LETTERS = 120
"""Of what a row says: one thing. A row that needs more is two."""
MOST_TESTS = 6
_QUOTED = re.compile(r"`([^`]+)`")


def rows() -> Iterator[tuple[str, str, str]]:
    """The rows of all tables: the thing, our names, the tests."""
    for line in TEXT.splitlines():
        if line.startswith("| ") and not line.startswith(("| What |", "| Page |", "| [")):
            thing, names, tests = (cell.strip() for cell in line.strip("|").split(" | "))
            yield thing, names, tests


ROWS = list(rows())


def quoted(column: int) -> list[str]:
    """Everything between backticks in a column, each once."""
    return sorted({found for row in ROWS for found in _QUOTED.findall(row[column])})


def exists(name: str) -> bool:
    """Whether a path below `ferrule` names something; a field of a pydantic model counts."""
    room, _, rest = name.partition(".")
    if room == "integrations":
        return _is_written(*rest.split("."))
    found: object = ferrule
    for part in name.split("."):
        fields = getattr(found, "model_fields", {})
        if part in fields:
            found = fields[part]
        elif hasattr(found, part):
            found = getattr(found, part)
        elif isinstance(found, ModuleType) and hasattr(found, "__path__") and _is_module(found, part):
            found = importlib.import_module(f"{found.__name__}.{part}")
        else:
            return False
    return True


def _is_written(adapter: str, *names: str) -> bool:
    """Whether a module of the room `integrations`, which is read and not run, has such a function or class: to load all
    frameworks takes seconds."""
    body = module(Path(ferrule.__file__).parent / "integrations" / f"{adapter}.py").body
    for name in names:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        defined = {node.name: node.body for node in body if isinstance(node, kinds)}
        if name not in defined:
            return False
        body = defined[name]
    return True


def _is_module(package: ModuleType, name: str) -> bool:
    return importlib.util.find_spec(f"{package.__name__}.{name}") is not None


def is_a_test(test: str) -> bool:
    """Whether a file below `tests/` has a function of this name: `FILE::FUNCTION`."""
    file, _, function = test.partition("::")
    return function.startswith("test_") and function in functions_of(TESTS / file)


@cache
def functions_of(file: Path) -> frozenset[str]:
    """The functions of a module, which is read and not run."""
    if not file.is_file():
        return frozenset()
    body = module(file).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_row_has_a_name_and_a_test() -> None:
    assert len(ROWS) > 150
    for thing, names, tests in ROWS:
        assert thing
        assert _QUOTED.search(names), thing
        assert _QUOTED.search(tests), thing


def test_every_row_says_one_thing() -> None:
    assert [thing for thing, _, _ in ROWS if len(thing) > MOST_LETTERS] == []
    assert [thing for thing, _, tests in ROWS if len(_QUOTED.findall(tests)) > MOST_TESTS] == []


def test_every_name_exists() -> None:
    assert [name for name in quoted(1) if not exists(name)] == []


def test_every_test_exists() -> None:
    assert [test for test in quoted(2) if not is_a_test(test)] == []


def test_every_tool_spec_and_event_has_a_row() -> None:
    kinds = [kind.__name__ for kind in (*get_args(ToolSpec), *get_args(Event)) if kind is not RawTool]
    tools = [tool.name for tool in BUILTINS.values()]
    assert [name for name in (*kinds, *tools) if not re.search(rf"\b{re.escape(name)}\b", TEXT)] == []


def test_what_does_not_exist_is_noticed() -> None:
    action = "builtin.shell.ShellAction"
    names = [
        "integrations.langchain.tools",
        "integrations.langchain.AdaptedTool.nothing",
        "protocol.specs.ToolSpec",
        "protocol.specs.NoSuchSpec",
        "nothing",
        f"{action}.command",
        f"{action}.nothing",
    ]
    assert [exists(name) for name in names] == [True, False, True, False, False, True, False]
    tests = [
        "test_public.py::test_an_unknown_name_is_an_attribute_error",
        "test_public.py::test_nothing",
        "no.py::test_a",
    ]
    assert [is_a_test(test) for test in tests] == [True, False, False]
