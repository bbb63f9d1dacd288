"""The public face: exactly the listed names, each from its public path, and cheap to import."""

import re
import subprocess
import sys
from pathlib import Path

import ferrule


def test_exactly_the_listed_names_are_exported() -> None:
    assert ferrule.__all__ == sorted(ferrule.__all__, key=lambda name: (name.islower(), name))
    assert set(ferrule.__all__) == {*ferrule._HOMES, "__version__"}
    for name in ferrule.__all__:
        value = getattr(ferrule, name)
        if isinstance(value, type):
            assert value.__module__ == "ferrule", name
    assert set(ferrule.__all__) <= set(dir(ferrule))


def test_the_names_of_the_page_are_exported() -> None:
    page = Path(__file__).parents[1] / "docs" / "python.md"
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", page.read_text()))
    assert {"ActionEvent", "TurnLimit"} <= named <= set(ferrule.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(ferrule, "no_such_name")


def test_importing_imports_nothing_heavy() -> None:
    probe = "import sys, ferrule; print(sorted(set(sys.modules) & set('asyncio msgspec pydantic httpx2 rich'.split())))"
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
