"""The public face: exactly the listed names, each whole by itself, and cheap to import."""

import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, TypeAdapter

import ferrule

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
PROMISED = ["ferrule", "ferrule.mcp", "ferrule.patch", "ferrule.testing"]
"""The packages whose names last, as docs/python.md says."""


def exports() -> Iterator[tuple[str, Any]]:
    for package in PROMISED:
        module = import_module(package)
        yield from ((f"{package}.{name}", getattr(module, name)) for name in module.__all__)


EXPORTS = [(path, value) for path, value in exports() if inspect.isclass(value) or inspect.isfunction(value)]


def methods(value: Any) -> Iterator[Any]:
    """A function, or what a class itself promises."""
    if not inspect.isclass(value):
        yield value
        return
    for name, member in vars(value).items():
        if name.startswith("_") and not name.endswith("__"):
            continue
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(function):
            yield function


def test_exactly_the_listed_names_are_exported() -> None:
    assert ferrule.__all__ == sorted(ferrule.__all__, key=lambda name: (name.islower(), name))
    assert set(ferrule.__all__) == {*ferrule._HOMES, "__version__"}
    assert set(ferrule.__all__) <= set(dir(ferrule))


@pytest.mark.parametrize("package", PROMISED)
def test_a_package_exports_what_exists(package: str) -> None:
    module = import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize(("path", "value"), EXPORTS, ids=[path for path, _ in EXPORTS])
def test_an_export_has_its_source_and_its_types(path: str, value: Any) -> None:
    assert inspect.getsource(value)
    if inspect.isclass(value):
        typing.get_type_hints(value, include_extras=True)
    for function in methods(value):
        typing.get_type_hints(function, include_extras=True)


@pytest.mark.parametrize(("path", "value"), EXPORTS, ids=[path for path, _ in EXPORTS])
def test_an_exported_record_decodes(path: str, value: Any) -> None:
    if not inspect.isclass(value):
        return
    if issubclass(value, msgspec.Struct):
        if path == "ferrule.ConfiguredToolSpec":
            pytest.skip("specs are only sent: the API has two shapes of domain filters without a tag")
        if path in ("ferrule.testing.Raw", "ferrule.testing.Script", "ferrule.testing.Step"):
            pytest.skip("written in Python: they hold functions and patterns")
        if path == "ferrule.ChildEvent":
            pytest.skip("only handed on in a process: events of tools hold models of the user's")
        msgspec.json.Decoder(value, dec_hook=lambda kind, given: given)
    elif issubclass(value, BaseModel):
        TypeAdapter(value)


def test_the_names_of_the_page_are_exported() -> None:
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", PAGE.read_text()))
    assert {"ActionEvent", "TurnLimit"} <= named <= set(ferrule.__all__)


def test_the_page_says_what_is_promised() -> None:
    promise = re.search(r"## Stability\n(.*?)(\n## |\Z)", PAGE.read_text(), re.DOTALL)
    assert promise is not None
    assert sorted(set(re.findall(r"`(ferrule[a-z.]*)`", promise[1]))) == PROMISED


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(ferrule, "no_such_name")


def test_importing_imports_nothing_heavy() -> None:
    probe = "import sys, ferrule; print(sorted(set(sys.modules) & set('asyncio msgspec pydantic httpx2 rich'.split())))"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
