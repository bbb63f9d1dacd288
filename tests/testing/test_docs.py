"""The examples of docs/testing.md run as they stand."""

import re
from pathlib import Path

import pytest

import ferrule.testing
from ferrule.testing import Script, ScriptedModel, defects

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(example: str) -> None:
    names: dict[str, object] = {}
    exec(example, names)
    tests = [value for name, value in names.items() if name.startswith("test_") and callable(value)]
    for test in tests:
        with ScriptedModel() as model:
            test(model)


def test_the_script_file_of_the_page_is_valid(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0], encoding="utf-8")
    assert len(Script.from_json(tmp_path / "script.json").steps) == 10


def test_the_page_names_every_helper_and_defect() -> None:
    helpers = {name for name in ferrule.testing.__all__ if name.islower()} - {"defects"}
    missing = {name for name in helpers | set(defects.NAMED) if f"`{name}" not in PAGE}
    assert missing == set()
