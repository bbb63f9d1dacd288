"""No module imports itself by way of others: lazy imports and those for type checkers counted."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.sources import module

SOURCE = Path(__file__).parents[1] / "src"


def modules(root: Path) -> dict[str, Path]:
    found = {".".join(path.relative_to(root).with_suffix("").parts): path for path in sorted(root.rglob("*.py"))}
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Absolute names are all there is: ruff bans the others outside of programs that run on their own."""
    for node in ast.walk(module(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and (origin := node.module or "") in known:
            names = (f"{origin}.{alias.name}" for alias in node.names)
            yield from (name if name in known else origin for name in names)


def first_circle(root: Path) -> list[str]:
    known = modules(root)
    graph = {name: {other for other in imported(path, known) if other != name} for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def test_no_module_is_in_a_circle() -> None:
    assert first_circle(SOURCE) == []


def test_a_lazy_import_closes_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import f\n")
    (tmp_path / "b.py").write_text("def f():\n    import a\n")
    assert sorted(set(first_circle(tmp_path))) == ["a", "b"]
