"""examples/README.md has a row for each example."""

import re

from tests.examples.running import EXAMPLES


def test_each_example_has_its_row() -> None:
    linked = re.findall(r"^\| \[([^\]]+)\]\(([^)]+)\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert all((EXAMPLES / target).is_file() for _, target in linked)
    there = {path.name for path in EXAMPLES.iterdir() if path.name not in ("README.md", "__pycache__")}
    assert {name.rstrip("/") for name, _ in linked} == there
