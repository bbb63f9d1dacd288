"""The engine as somebody sees it who uses nothing else of the package."""

import ast
import subprocess
import sys
import time
from pathlib import Path

import ferrule.patch
from ferrule.patch import FORMAT_DESCRIPTION, GRAMMAR, parse

ROOM = Path(ferrule.patch.__file__).parent


def test_it_imports_nothing_of_ours() -> None:
    for path in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                module = node.module or ""
                assert node.level == 1 or not module.startswith("ferrule") or module.startswith("ferrule.patch"), path
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("ferrule") for alias in node.names), path


def test_importing_it_is_cheap() -> None:
    """No heavy module comes with it; a diagnosis is loaded when something fails."""
    heavy = ("dataclasses", "inspect", "difflib", "hashlib", "ferrule.patch.diagnosis", "asyncio", "pydantic")
    code = f"import sys, ferrule.patch; print([name for name in {heavy} if name in sys.modules])"
    start = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
    assert time.monotonic() - start < 30


def test_the_grammar_names_every_marker() -> None:
    for marker in ("*** Begin Patch", "*** End Patch", "*** Add File: ", "*** Delete File: ", "*** Update File: "):
        assert f'"{marker}"' in GRAMMAR
    for marker in ('"*** Move to: "', '"*** End of File"', '"@@ "', '"@@"', "%import common.LF"):
        assert marker in GRAMMAR


def test_the_example_of_the_description_is_a_patch() -> None:
    start = FORMAT_DESCRIPTION.index("*** Begin Patch")
    end = FORMAT_DESCRIPTION.index("*** End Patch") + len("*** End Patch")
    assert [type(hunk).__name__ for hunk in parse(FORMAT_DESCRIPTION[start:end]).hunks] == [
        "AddFile",
        "UpdateFile",
        "DeleteFile",
    ]
