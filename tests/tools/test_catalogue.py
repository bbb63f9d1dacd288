"""Tools by name: the three kinds of registration, patterns, plugins."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from ferrule import Tool, ToolDefinition, ToolHandler, register_tool, resolve_tool, tool
from ferrule.protocol.errors import UsageError
from ferrule.tools import catalogue
from ferrule.tools.conversation import Conversation
from tests.builtin.states import conversation


@tool
def fixed() -> str:
    return "fixed"


class Configured(ToolDefinition[Any, Any]):
    @classmethod
    def create(cls, conv_state: Any, size: int = 1, **params: Any) -> Sequence[ToolDefinition[Any, Any]]:
        return [tool(name=f"{Path(conv_state.cwd).name}_{size}")(fixed.function)]


@pytest.fixture
def state(tmp_path: Path) -> Conversation:
    return conversation(tmp_path)


@pytest.fixture(autouse=True)
def _clean_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_catalogue", {})
    monkeypatch.setattr(catalogue, "_plugins", {})


def test_an_instance_is_returned_as_it_is_and_takes_no_params(state: Conversation) -> None:
    register_tool("fixed", fixed)
    assert resolve_tool("fixed", state) == [fixed]
    with pytest.raises(UsageError, match="'fixed' is a fixed instance and takes no params"):
        resolve_tool(Tool("fixed", {"a": 1}), state)


def test_a_class_is_asked_to_create(state: Conversation) -> None:
    register_tool("configured", Configured)
    [made] = resolve_tool(Tool("configured", {"size": 3}), state)
    assert made.name == f"{Path(state.cwd).name}_3"


def test_a_factory_gets_the_state_and_the_params(state: Conversation) -> None:
    def factory(*, conv_state: Conversation, names: str) -> list[Any]:
        assert conv_state is state
        return [tool(name=name)(fixed.function) for name in names]

    register_tool("many", factory)
    assert [made.name for made in resolve_tool(Tool("many", {"names": "ab"}), state)] == ["a", "b"]
    register_tool("one", lambda *, conv_state: fixed)
    assert resolve_tool("one", state) == [fixed]


def test_an_unknown_name_is_told_with_the_nearest(state: Conversation) -> None:
    register_tool("fixed", fixed)
    with pytest.raises(UsageError, match=r"unknown tool 'fixd'; did you mean fixed\?"):
        resolve_tool("fixd", state)


def test_patterns() -> None:
    names = ["read_file", "read_dir", "write"]
    assert catalogue.matching_names("read_*", names) == ["read_file", "read_dir"]
    assert catalogue.matching_names("/dir|write/", names) == ["read_dir", "write"]
    assert catalogue.matching_names("write", names) == ["write"]
    with pytest.raises(UsageError, match="is not a regular expression"):
        catalogue.matching_names("/(/", names)


def test_installed_plugins_are_tools(state: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("plugged", "tests.tools.test_catalogue:fixed", catalogue.PLUGIN_GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: EntryPoints([point]).select(group=group))
    monkeypatch.setattr(catalogue, "_plugins", None)
    assert catalogue.registered_tools() == ["plugged"]
    [made] = resolve_tool("plugged", state)
    assert made.name == "fixed"


def test_what_is_no_tool_is_not_registered() -> None:
    for wrong in (5, ToolHandler()):
        with pytest.raises(UsageError, match=f"'it': {type(wrong).__name__} is neither a tool"):
            register_tool("it", wrong)
