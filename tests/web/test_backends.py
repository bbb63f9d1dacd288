"""Search backends beside SearXNG, and how hits are found in what they return."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule.egress.guard import Guard
from ferrule.mcp.search_tool import search_tools_of
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.web_settings import WebSearchSettings
from ferrule.web.browser import Browser, WebRefused, Wishes
from ferrule.web.memory import Memory
from ferrule.web.opening import open_browser
from ferrule.web.other_backends import SearchTool, ToolBackend
from ferrule.web.results import MOST_HITS, hits_in, hits_in_text, read_json
from ferrule.web.search import Location, SearchFailed
from ferrule.web.urls import SiteFilter
from tests.web.site import Answer, Site, drip

PROGRAM = str(Path(__file__).with_name("search_program.py"))
SERVER = str(Path(__file__).with_name("search_server.py"))
BRIX = Wishes(sites=SiteFilter.read(["brix.example"]), location=Location(country="de", city="Köln"))
ENV = {"BRAVE_API_KEY": "brave-key", "MINE": "tavily-key", "PATH": "/bin", "GIVEN": "yes", "OTHER_SECRET": "x"}


def browser(tmp_path: Path, **table: Any) -> Browser:
    server = McpServerSettings(command=sys.executable, args=(SERVER,))
    connect = search_tools_of({"finder": server}, cwd=str(tmp_path), home=str(tmp_path))
    return open_browser(WebSearchSettings(**table), Guard(None), connect, cwd=str(tmp_path), env=ENV)


async def test_each_service_is_asked_in_its_own_form(tmp_path: Path, web: Site) -> None:
    brave = browser(tmp_path, backend="brave", base_url=web.base_url)
    web.answer = lambda query: Answer(json.dumps({"web": {"results": web.hits}}).encode(), "application/json")
    assert len((await brave.search("tower", Memory(), BRIX)).hits) == 2
    assert web.asked[-1] == {"q": "tower site:brix.example", "count": "20", "country": "DE"}
    assert web.sent[-1]["x-subscription-token"] == "brave-key"
    tavily = browser(tmp_path, backend="tavily", base_url=web.base_url, env_key="MINE")
    web.answer = lambda query: Answer(b"[]", "application/json", headers={"set-cookie": "id=ann"})
    await tavily.search("tower", Memory(), BRIX)
    web.answer = None
    assert len((await tavily.search("tower", Memory(), BRIX)).hits) == 2
    assert web.asked[-1] == {"query": "tower", "max_results": 20, "include_domains": ["brix.example"]}
    assert web.sent[-1]["authorization"] == "Bearer tavily-key"
    assert "cookie" not in {name.lower() for name in web.sent[-1]}
    web.answer = lambda query: Answer(b"", status=401)
    with pytest.raises(WebRefused, match="key in MINE"):
        await tavily.search("tower", Memory(), BRIX)
    await tavily.aclose()
    await brave.aclose()


async def test_a_command_gets_json_and_prints_json(tmp_path: Path) -> None:
    command = (sys.executable, PROGRAM)
    made = browser(tmp_path, backend="command", command=command, env_key="GIVEN")
    wishes = Wishes(location=Location(city="Köln"), offline=True, size="low")
    (hit,) = (await made.search("tower", Memory(), wishes)).hits
    seen = json.loads(hit.text)
    assert seen == {
        "asked": {
            "query": "tower", "count": 5, "domains": [], "offline": True,
            "location": {"country": None, "region": None, "city": "Köln", "timezone": None},
        },
        "given": "yes", "secret": None,
    }  # fmt: skip
    for argument, words in (("wrong", "did not print JSON"), ("fails", "ended with the code 1")):
        broken = browser(tmp_path, backend="command", command=(*command, argument))
        with pytest.raises(WebRefused, match=words):
            await broken.search("tower", Memory(), Wishes())
    slow = browser(tmp_path, backend="command", command=(*command, "slow"), timeout_sec=0.2)
    with pytest.raises(WebRefused, match="did not end within"):
        await slow.search("tower", Memory(), Wishes())
    with pytest.raises(WebRefused, match="is not installed"):
        await browser(tmp_path, backend="command", command=("no-such-program",)).search("x", Memory(), Wishes())


async def test_a_search_tool_of_an_mcp_server(tmp_path: Path) -> None:
    made = browser(tmp_path, backend="mcp", server="finder")
    (hit,) = (await made.search("tower", Memory(), Wishes(size="low"))).hits
    assert (hit.url.text, hit.title, hit.text) == ("https://a.example/x", "tower 5", "words")
    await made.aclose()
    wrong = browser(tmp_path, backend="mcp", server="finder", tool="none")
    with pytest.raises(WebRefused, match=r"set web_search\.tool to one of web_search, other"):
        await wrong.search("tower", Memory(), Wishes())


async def test_a_search_tool_is_told_what_it_takes_and_waited_for_so_long() -> None:
    asked: list[dict[str, Any]] = []

    async def call(arguments: dict[str, Any]) -> dict[str, Any]:
        asked.append(arguments)
        if arguments["queries"] == ["wait"]:
            await asyncio.Event().wait()
        return {"content": [{"type": "text", "text": json.dumps({"organic": [{"link": "https://a.example"}]})}]}

    async def connect() -> SearchTool:
        return SearchTool(frozenset({"queries", "limit", "gl", "includeDomains"}), call, call)  # type: ignore[arg-type]

    backend = ToolBackend(connect, timeout=0.05)
    where = Location(country="DE")
    (hit,) = await backend.search("x", count=3, domains=["a.example"], location=where, offline=False)
    assert hit.url.text == "https://a.example/"
    assert asked == [{"queries": ["x"], "limit": 3, "includeDomains": ["a.example"], "gl": "DE"}]
    with pytest.raises(SearchFailed, match="did not answer within"):
        await backend.search("wait", count=3, domains=(), location=None, offline=False)


@pytest.mark.parametrize(
    "value",
    [
        [{"url": "https://a.example/", "title": "A", "content": "words"}],
        {"results": [{"link": "https://a.example/", "name": "A", "snippet": "words"}]},
        {"data": {"web": {"items": [{"href": "https://a.example/", "title": "A", "description": "words"}]}}},
    ],
)
def test_hits_are_found_under_common_names(value: object) -> None:
    (hit,) = hits_in(value)
    assert (hit.url.text, hit.title, hit.text) == ("https://a.example/", "A", "words")


def test_hits_are_found_in_text() -> None:
    text = "1. First\n   https://a.example/1.\n   words\n2. Second\nURL: https://b.example/2\n\nnothing here"
    assert [(hit.url.text, hit.title) for hit in hits_in_text(text)] == [
        ("https://a.example/1", "1. First"),
        ("https://b.example/2", "b.example"),
    ]


async def test_a_server_that_sends_a_byte_now_and_then_is_not_waited_for(tmp_path: Path, web: Site) -> None:
    made = browser(tmp_path, backend="searxng", base_url=web.base_url, timeout_sec=0.4)
    web.search = drip
    with pytest.raises(WebRefused, match="did not answer within"):
        await asyncio.wait_for(made.search("tower", Memory(), Wishes()), 20)
    await made.aclose()


async def test_a_tool_without_content_has_no_hits() -> None:
    async def call(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": 5}

    async def connect() -> SearchTool:
        return SearchTool(frozenset(), call, call)  # type: ignore[arg-type]

    assert await ToolBackend(connect, timeout=5).search("x", count=3, domains=(), location=None, offline=False) == []


def test_json_of_other_languages_is_read() -> None:
    (hit,) = hits_in(read_json(b'[{"url": "https://a.example/", "title": "cut \\ud83d", "score": NaN}]'))
    assert hit.title == "cut"
    assert hits_in(read_json(b'[{"url": "https://a.example/\\ud83d"}]')) == []
    for wrong in (b"", b"\xff", b"<html>", b"9" * 5000):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
            read_json(wrong)


def test_a_flood_of_hits_is_not_read_to_its_end() -> None:
    assert len(hits_in([{"url": f"https://a.example/{n}"} for n in range(MOST_HITS + 9)])) == MOST_HITS
    assert len(hits_in_text("https://a.example/\n" * (MOST_HITS + 9))) == MOST_HITS
