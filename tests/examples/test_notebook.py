"""examples/notebook.ipynb runs from the first cell to the last in Jupyter's own kernel."""

import json
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from ferrule.testing import ScriptedModel, function_call, step
from tests.examples.running import EXAMPLES, environment

NOTEBOOK = EXAMPLES / "notebook.ipynb"


def test_it_is_valid_and_holds_no_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    assert [cell.outputs for cell in notebook.cells if cell.cell_type == "code" and cell.outputs] == []


async def test_its_cells_run_in_a_kernel(tmp_path: Path) -> None:
    script: list[Any] = [
        [function_call("shell_command", {"command": "grep London sales.csv"}), function_call("euros", {"pounds": 165})],
        step("189.75 euros.", expect=["London,45", "189.75"]),
        json.dumps({"cities": [{"name": "London", "pounds": 165}]}),
    ]
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    with ScriptedModel(script) as model:
        await NotebookClient(notebook).async_execute(env=environment(model.base_url) | {"HOME": str(tmp_path)})
        model.check()
    shown = json.dumps([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])
    for text in ["Read-only file system", "['shell_command', 'apply_patch']", "189.75 euros.", "{'London': 165.0}"]:
        assert text in shown
