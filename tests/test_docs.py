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
PAGES_WITH_PROGRAMS = (
    "python.md",
    "hooks.md",
    "batch.md",
    "coming_from/openai_agents.md",
    "coming_from/openhands.md",
)


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ("page", "number"),
    [(page, number) for page in PAGES_WITH_PROGRAMS for number in range(len(programs(page)))],
)
def test_a_program_runs(page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with ScriptedModel(["It is a library.", "Written.", "It was wrong.", '{"verdict": "fine"}']) as model:
        exec(programs(page)[number].replace(LOCAL_SERVER, model.base_url), {"__name__": "program"})


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and most renderers make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_between_the_pages_leads_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md"), *DOCS.parent.glob("examples/*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


def test_every_command_is_on_its_page() -> None:
    page = (DOCS / "cli.md").read_text()
    missing = [name for name in COMMANDS if f"ferrule {name}" not in page]
    assert not missing, f"describe {', '.join(missing)} in docs/cli.md"


def test_every_command_on_the_pages_exists() -> None:
    for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md"), *DOCS.parent.glob("examples/*.md")]:
        for code in re.findall(r"`([^`\n]+)`|^    (.+)$|^(?:\$ )?(ferrule .+)$", page.read_text(), re.MULTILINE):
            for name in re.findall(r"^(?:\$ )?ferrule ([a-z][a-z-]+)", "".join(code)):
                assert name in COMMANDS, f"{page.name} has `{''.join(code)}`"


def test_every_configuration_key_is_on_its_page() -> None:
    page = "".join((DOCS / name).read_text() for name in ("configuration.md", "mcp.md"))
    missing = [key for key in all_keys(ConfigTable) if not re.search(rf"\b{key.split('.')[-1]}\b", page)]
    assert not missing, f"describe {', '.join(missing)} in docs/configuration.md, or docs/mcp.md"
