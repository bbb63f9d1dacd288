"""The programs of the pages run as they stand; only the address of the model server is put in."""

import re
from pathlib import Path

import pytest

from ferrule.cli.main import COMMANDS
from ferrule.config.keys import ConfigTable
from ferrule.testing import ScriptedModel
from tests.config.test_narrow import all_keys

DOCS = Path(__file__).parents[1] / "docs"
LOCAL_SERVER = "http://localhost:11434/v1"


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page in ("python.md", "hooks.md", "batch.md") for number in range(len(programs(page)))],
)
def test_a_program_runs(page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with ScriptedModel(["It is a library.", "Written.", "It was wrong.", '{"verdict": "fine"}']) as model:
        exec(programs(page)[number].replace(LOCAL_SERVER, model.base_url), {"__name__": "program"})


def test_every_link_between_the_pages_leads_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+\.md)[^)]*\)", page.read_text()):
            assert (page.parent / target).is_file(), f"{page.name} links to {target}"


def test_every_command_is_on_its_page() -> None:
    page = (DOCS / "cli.md").read_text()
    missing = [name for name in COMMANDS if f"ferrule {name}" not in page]
    assert not missing, f"describe {', '.join(missing)} in docs/cli.md"


def test_every_configuration_key_is_on_its_page() -> None:
    page = "".join((DOCS / name).read_text() for name in ("configuration.md", "mcp.md"))
    missing = [key for key in all_keys(ConfigTable) if not re.search(rf"\b{key.split('.')[-1]}\b", page)]
    assert not missing, f"describe {', '.join(missing)} in docs/configuration.md, or docs/mcp.md"
