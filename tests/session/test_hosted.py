"""What the provider runs: switched on by configuration, kept, shown, sent back."""

from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from ferrule import Agent
from ferrule.config.keys import ConfigTable
from ferrule.config.resolve import settings_of
from ferrule.model.stream import Completed, Created, ItemDone, ModelRequest, ResponseEvent
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.hosted import hosted_line, hosted_tool
from ferrule.protocol.items import make_item, read_item
from ferrule.protocol.specs import AutoContainer, CodeInterpreter, ImageGeneration, WebSearch, spec_name
from ferrule.session.opening import open_session
from tests.session.models import InProcessModel, says

ITEMS: dict[str, dict[str, object]] = {
    "Web search: tree-sitter bash": {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "tree-sitter bash"},
    },
    "Web search: https://a.org/": {
        "type": "web_search_call",
        "id": "ws_2",
        "status": "completed",
        "action": {"type": "open_page", "url": "https://a.org/"},
    },
    "File search: one, two": {"type": "file_search_call", "id": "fs", "status": "completed", "queries": ["one", "two"]},
    "Python at the provider: print(1)": {
        "type": "code_interpreter_call",
        "id": "ci",
        "status": "completed",
        "container_id": "c",
        "code": "print(1)\nprint(2)",
        "outputs": [{"type": "logs", "logs": "1\n2"}],
    },
    "Image: a red fox": {
        "type": "image_generation_call",
        "id": "ig",
        "status": "completed",
        "result": "aGk=",
        "revised_prompt": "a red fox",
    },
    "MCP: docs/search": {
        "type": "mcp_call",
        "id": "mcp",
        "server_label": "docs",
        "name": "search",
        "arguments": "{}",
        "output": "found",
    },
    "MCP server docs: 1 tools": {
        "type": "mcp_list_tools",
        "id": "ml",
        "server_label": "docs",
        "tools": [{"name": "x"}],
    },
}


@pytest.mark.parametrize("line", ITEMS)
def test_an_item_is_one_line(line: str) -> None:
    assert hosted_line(read_item(msgspec.json.encode(ITEMS[line])).view) == line


def test_other_items_are_none_of_them() -> None:
    assert hosted_line(says("x")) is None


async def test_items_are_kept_and_sent_back_byte_for_byte(tmp_path: Path) -> None:
    raw = [msgspec.json.encode(item) for item in ITEMS.values() if item["type"] != "computer_call"]

    async def stream(request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        yield Created("resp_1")
        for each in (*raw, make_item(says("found it")).raw):
            yield ItemDone(read_item(bytes(each)))
        yield Completed("resp_1", TokenUsage(10, 0, 5, 0))

    model = InProcessModel(stream, [says("again")])
    async with await Agent(model, cwd=tmp_path, tools=[]).open() as session:
        assert (await session.run("look it up")).text == "found it"
        await session.run("and?")
    kept = [bytes(item.raw) for item in model.requests[1].items]
    start = kept.index(raw[0])
    assert kept[start : start + len(raw)] == raw


def table(**keys: object) -> ConfigTable:
    return msgspec.convert(keys, ConfigTable)


def test_configuration_switches_them_on() -> None:
    filtering = {"type": "web_search", "filters": {"allowed_domains": ["a.org"]}}
    given: list[object] = ["image_generation", filtering, "code_interpreter"]
    settings = settings_of(table(hosted_tools=given, web_search="live"), cwd="/", home="/")
    image, filtered, code, search = settings.hosted_tools
    assert image == ImageGeneration() and code == CodeInterpreter(container=AutoContainer())
    assert msgspec.json.decode(filtered.responses_json) == filtering
    assert search == WebSearch(external_web_access=True)
    assert settings_of(table(web_search="cached"), cwd="/", home="/").hosted_tools == (
        WebSearch(external_web_access=False),
    )
    assert settings_of(table(), cwd="/", home="/").hosted_tools == ()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("mcp", "no tool 'mcp'"),
        ("computer_use_preview", "no tool 'computer_use_preview'"),
        ({}, "no tool 'None'"),
        ("file_search", "vector_store_ids"),
        ({"type": "web_search", "depth": 3}, "web_search has no parameter 'depth'"),
        ({"type": "web_search", "search_context_size": "huge"}, "search_context_size"),
        ({"type": "web_search", "filters": {"domains": 1}}, "allowed_domains"),
        ({"type": "web_search", "filters": {"allowed_domains": ["a.com"] * 101}}, "at most 100 domains, not 101"),
        (
            {"type": "web_search", "filters": {"type": "allow_list", "domains": ["https://a.com"]}},
            "wants 'a.com' and not 'https://a.com'",
        ),
    ],
)
def test_wrong_ones_are_one_sentence(given: str | dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        hosted_tool(given)


async def test_a_session_is_sent_them_beside_its_own(tmp_path: Path) -> None:
    settings = settings_of(table(hosted_tools=["code_interpreter"]), cwd=str(tmp_path), home=str(tmp_path / "home"))
    settings = msgspec.structs.replace(settings, ephemeral=True)
    model = InProcessModel([says("x")])
    async with await open_session(settings, model=model, tools=["think", WebSearch()]) as session:
        await session.run("go")
    assert [spec_name(spec) for spec in model.requests[0].tools] == ["think", "code_interpreter", "web_search"]
