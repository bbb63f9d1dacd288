"""The zygote as a program of its own."""

import json
import subprocess
import sys

from ferrule.sandbox.linux.client import PLACE

HEAVY = {"asyncio", "collections", "contextlib", "enum", "pathlib", "re", "signal", "socket", "subprocess", "threading"}
LIST_MODULES = """
import sys
sys.path.insert(0, sys.argv[1])
import linux.zygote
names = list(sys.modules)
import json
print(json.dumps(names))
"""


def test_it_imports_nothing_of_ours_and_nothing_heavy() -> None:
    command = [sys.executable, "-I", "-S", "-E", "-c", LIST_MODULES, str(PLACE)]
    modules = set(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    assert "linux.zygote" in modules
    assert not modules & (HEAVY | {"typing", "ferrule"})
