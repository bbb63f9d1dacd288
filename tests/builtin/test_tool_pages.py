"""The generated pages are up to date, and what they and the table say of a tool is what its definition says."""

import msgspec
import pytest

from tests.builtin.tool_pages import EXAMPLES, FOLDER, FREEFORM_EXAMPLES, Page, generate, pages

PAGES = {page.tool.name: page for page in pages()}
ANNOTATIONS = {
    "glob": (True, False, True, False),
    "grep": (True, False, True, False),
    "execute_bash": (False, True, False, True),
    "file_editor": (False, True, False, False),
    "task_tracker": (False, False, True, False),
    "think": (True, False, True, False),
    "finish": (True, False, True, False),
}


def test_the_pages_are_up_to_date() -> None:
    written = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    assert written == generate(), "run scripts/docs_tools"


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_the_table_agrees_with_the_definition(page: Page) -> None:
    definition = page.definition
    assert page.tool.parallel == definition.parallel
    assert page.tool.read_only == definition.annotations.readOnlyHint
    if page.tool.namespace is None:
        assert definition.name == page.tool.name


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_a_call_that_the_tool_takes(name: str) -> None:
    example = msgspec.to_builtins(EXAMPLES[name])
    assert PAGES[name].definition.action_from_arguments(example)


def test_every_tool_has_an_example() -> None:
    missing = PAGES.keys() - EXAMPLES.keys() - FREEFORM_EXAMPLES.keys()
    assert not missing, f"add a call of {', '.join(missing)} to EXAMPLES in tests/builtin/tool_pages.py"
    assert EXAMPLES.keys() | FREEFORM_EXAMPLES.keys() <= PAGES.keys()


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_annotations_of_the_openhands_set(name: str) -> None:
    hints = PAGES[name].definition.annotations
    told = (hints.readOnlyHint, hints.destructiveHint, hints.idempotentHint, hints.openWorldHint)
    assert told == ANNOTATIONS[name]


def test_profiles() -> None:
    def members(profile: str) -> set[str]:
        return {name for name, page in PAGES.items() if profile in page.profiles}

    openhands, claude = members("openhands"), members("claude")
    assert openhands == {"execute_bash", "file_editor", "glob", "grep", "task_tracker", "think", "finish"}
    assert {"bash", "str_replace_based_edit_tool"} <= claude and "apply_patch" not in claude
    assert {"codex", "generic"} <= set(PAGES["view_image"].profiles)
    assert PAGES["read_file"].profiles == ("generic",)
