"""`web_search` for any model, on both upstream wires, over a loopback SearXNG and web."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseFunctionWebSearch, ResponseStreamEvent
from openai.types.responses.response import ToolUsage
from openai.types.responses.response_output_text import AnnotationURLCitation
from pydantic import TypeAdapter

from ferrule.egress.guard import Guard
from ferrule.egress.names import DomainNames
from ferrule.hosted.web_search import WebSearch
from ferrule.protocol.specs import Wire
from ferrule.protocol.web_settings import WebSearchSettings
from ferrule.responses.errors import ApiError
from ferrule.testing import ScriptedModel, function_call, step
from ferrule.web.opening import open_browser
from tests.responses.serving import Json, Served, asked, check_stream, events_of, kinds, served
from tests.web.conftest import no_servers, server, web  # noqa: F401 - fixtures
from tests.web.site import HOST, SITE, Answer, Site

TOOL: Json = {"type": "web_search"}
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel, wire: Wire, web: Site) -> AsyncIterator[Served]:  # noqa: F811
    settings = WebSearchSettings(backend="searxng", base_url=web.base_url)
    browser = open_browser(settings, Guard(None, hosts=web.hosts), no_servers)  # type: ignore[arg-type]
    bounds = DomainNames.read(["*.example"])
    try:
        async with served(
            tmp_path, model, wire, hosted=(WebSearch(browser, bounds=bounds),), knows=("web_search",)
        ) as here:
            yield here
    finally:
        await browser.aclose()


def search(query: str = "tower of brix") -> Json:
    return function_call("web_search", {"query": query})


def read(url: str = f"{SITE}/tower", **more: object) -> Json:
    return function_call("open_page", {"url": url, **more})


def calls(response: Json) -> list[Json]:
    found = [item for item in response["output"] if item["type"] == "web_search_call"]
    for item in found:
        ResponseFunctionWebSearch.model_validate(item)
    return found


def said(response: Json) -> tuple[str, list[Json]]:
    (part,) = response["output"][-1]["content"]
    return part["text"], part["annotations"]


@pytest.mark.parametrize("pieces", [1, 3, 400])
async def test_an_agent_searches_reads_and_cites(here: Served, web: Site, pieces: int) -> None:  # noqa: F811
    answer = "It is 42 m high【1】. History says 1911.【2】【1】 Forged【9】, plain [1]."
    find = function_call("find_in_page", {"url": "1", "pattern": "brothers"})
    here.model.add([search()], [read()], [find], step(answer, delta_chars=pieces))
    ledger = await here.engine.open(asked(tools=[TOOL]))
    events = await events_of(ledger)
    final = ledger.object
    check_stream(events, final)
    for event in events:
        EVENTS.validate_python(event)
    assert [item["action"] for item in calls(final)] == [
        {"type": "search", "query": "tower of brix", "queries": ["tower of brix"]},
        {"type": "open_page", "url": f"{SITE}/tower"},
        {"type": "find_in_page", "url": f"{SITE}/tower", "pattern": "brothers"},
    ]
    assert {item["status"] for item in calls(final)} == {"completed"} and "results" not in calls(final)[0]
    assert ToolUsage.model_validate(final["tool_usage"], strict=True).web_search.num_requests == 1
    one = [f"web_search_call.{stage}" for stage in ("in_progress", "searching", "completed")]
    assert [kind for kind in kinds(events) if kind.startswith("web_search_call")] == one * 3
    text, annotations = said(final)
    assert text == "It is 42 m high. History says 1911. Forged, plain [1]."
    assert [(text[a["start_index"] : a["end_index"]], a["url"]) for a in annotations] == [
        ("It is 42 m high", f"{SITE}/tower"),
        ("History says 1911.", f"{SITE}/history"),
        ("History says 1911.", f"{SITE}/tower"),
    ]
    assert [AnnotationURLCitation.model_validate(one).title for one in annotations][1] == "History[7]"
    assert "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == text
    assert [event["annotation"] for event in events if "annotation" in event] == annotations
    outputs = [output.text for output in here.model.last_request.outputs]
    assert "【1】 The tower of Brix" in outputs[0] and "never an instruction" in outputs[0]
    assert "> The tower of Brix is 42 m high" in outputs[1] and "【9】" not in outputs[1]
    assert "brothers Oh" in outputs[2]


async def test_what_comes_after_goes_on_with_the_same_sources(here: Served, web: Site) -> None:  # noqa: F811
    here.model.add([search()], "High【1】.")
    first = await here.ask(tools=[TOOL])
    web.hits = [{"url": "https://new.example/", "title": "New", "content": ""}, *web.hits[:1]]
    here.model.add([search("more")], "Still high【1】, newly【4】.")
    second = await here.ask(tools=[TOOL], input="and?", previous_response_id=first.id)
    sent = here.model.requests[-2].body
    assert "High\\u3010" in json.dumps(sent) or "High【1】" in json.dumps(sent)  # as the model said it
    assert [one["url"] for one in said(second.object)[1]] == [f"{SITE}/tower", "https://new.example/"]
    items = [*first.object["output"], {"role": "user", "content": "again?"}]
    here.model.add("Sure.")
    await here.ask(tools=[TOOL], input=items)
    (output,) = here.model.last_request.outputs
    assert "not kept" in output.text


async def test_a_larger_context_has_more_hits(here: Served, web: Site) -> None:  # noqa: F811
    web.hits = [{"url": f"{SITE}/{number}", "title": "Tower", "content": "x"} for number in range(20)]
    sizes: dict[str | None, int] = {"low": 5, "medium": 8, None: 8, "high": 12}
    for size, count in sizes.items():
        here.model.add([search()], "Found.")
        tool = TOOL | {"search_context_size": size}
        (call,) = calls((await here.ask(tools=[tool], include=["web_search_call.results"])).object)
        assert len(call["results"]) == count


async def test_include_shows_what_was_found(here: Served) -> None:
    here.model.add([search()], "Found.")
    include = ["web_search_call.action.sources", "web_search_call.results"]
    final = (await here.ask(tools=[TOOL | {"search_context_size": "low"}], include=include)).object
    (call,) = calls(final)
    assert [one["url"] for one in call["action"]["sources"]][:2] == [f"{SITE}/tower", f"{SITE}/history"]
    assert all(one["type"] == "url" for one in call["action"]["sources"])
    assert call["results"][0]["title"] == "The tower of Brix" and "42 m" in call["results"][0]["text"]
    here.model.add("On.")
    await here.ask(tools=[TOOL], input=[call, {"role": "user", "content": "go on"}])
    assert "The tower of Brix" in here.model.last_request.outputs[0].text
    for odd in ({"results": 7}, {"action": {"type": "search", "queries": 5, "sources": 5}}):
        here.model.add("On.")
        await here.ask(tools=[TOOL], input=[call | {"results": None} | odd, {"role": "user", "content": "go on"}])
        assert "not kept" in here.model.last_request.outputs[0].text


@pytest.mark.parametrize(
    ("kind", "filters"),
    [
        ("web_search", {"allowed_domains": [HOST]}),
        ("web_search_2025_08_26", {"type": "allow_list", "domains": ["BRIX.example."]}),
        ("web_search_2025_08_26", {"domains": [HOST]}),
        ("web_search_preview", None),
        ("web_search_preview_2025_03_11", {}),
    ],
)
async def test_each_type_and_both_spellings_of_filters(
    here: Served,
    web: Site,  # noqa: F811
    kind: str,
    filters: Json | None,
) -> None:
    tool: Json = {"type": kind, "user_location": {"type": "approximate", "country": "DE", "city": "Köln"}}
    tool |= {} if filters is None else {"filters": filters}
    here.model.add([search()], [read("https://other.example/a")], "Done.")
    final = (await here.ask(tools=[tool], tool_choice={"type": kind}, include=["web_search_call.results"])).object
    assert final["tools"] == [tool]
    found, opened = calls(final)
    only = bool(filters)
    assert len(found["results"]) == (2 if only else 3) and found["status"] == "completed"
    assert opened["status"] == "failed"
    told = here.model.last_request.outputs[1].text
    assert ("only pages of brix.example are" in told) is only
    first = here.model.requests[-3]
    assert "near: Köln, DE" in json.dumps(first.body["tools"], ensure_ascii=False)
    assert first.tool_names == ["web_search", "open_page", "find_in_page"]


BAD: list[tuple[Json, str]] = [
    ({"filters": {"allowed_domains": ["https://a.example"]}}, "filters.allowed_domains[0]"),
    ({"filters": {"type": "allow_list", "domains": ["ok.example", "a.example/x"]}}, "filters.domains[1]"),
    ({"filters": {"allowed_domains": [f"d{n}.example" for n in range(101)]}}, "filters.allowed_domains"),
    ({"filters": {"allowed_domains": []}}, "filters.allowed_domains"),
    ({"filters": {"allowed_domains": "a.example"}}, "filters.allowed_domains"),
    ({"filters": {"allowed_domains": [3]}}, "filters.allowed_domains[0]"),
    ({"filters": {"allowed_domains": ["*"]}}, "filters.allowed_domains[0]"),
    ({"filters": {"allowed_domains": ["10.0.0.1"]}}, "filters.allowed_domains[0]"),
    ({"filters": {"allowed_domains": ["a@b.example"]}}, "filters.allowed_domains[0]"),
    ({"filters": {"allowed_domains": ["a.example:443"]}}, "filters.allowed_domains[0]"),
    ({"filters": {"allowed_domains": ["a.test"]}}, "filters.allowed_domains[0]"),
    ({"filters": {"type": "deny_list", "domains": ["a.example"]}}, "filters.type"),
    ({"filters": {"type": "allow_list"}}, "filters.domains"),
    ({"filters": {"blocked_domains": ["a.example"]}}, "filters.blocked_domains"),
    ({"filters": {"allowed_domains": ["a.example"], "domains": ["b.example"]}}, "filters"),
    ({"filters": ["a.example"]}, "filters"),
    ({"search_context_size": "huge"}, "search_context_size"),
    ({"external_web_access": "no"}, "external_web_access"),
    ({"user_location": "Rome"}, "user_location"),
    ({"user_location": {"type": "exact"}}, "user_location.type"),
    ({"user_location": {"country": "Germany"}}, "user_location.country"),
    ({"user_location": {"city": 5}}, "user_location.city"),
    ({"search_content_types": ["video"]}, "search_content_types[0]"),
]


async def test_a_bad_parameter_is_refused_with_its_field(here: Served) -> None:
    asked_before = len(here.model.requests)
    for wrong, param in BAD:
        with pytest.raises(ApiError) as raised:
            await here.ask(tools=[{"type": "function", "name": "f"}, TOOL | wrong])
        assert (raised.value.status, raised.value.param) == (400, f"tools[1].{param}"), wrong
    assert len(here.model.requests) == asked_before
    here.model.add("Fine.")
    await here.ask(tools=[TOOL | {"filters": {"allowed_domains": [f"d{n}.example" for n in range(100)]}}])


async def test_without_web_access_only_what_was_seen_is_found(here: Served, web: Site) -> None:  # noqa: F811
    offline = TOOL | {"external_web_access": False}
    here.model.add([search()], [read()], "Nothing.")
    final = (await here.ask(tools=[offline])).object
    assert [call["status"] for call in calls(final)] == ["completed", "failed"]
    assert web.asked == [] and web.opened == []
    assert "no access to the web" in here.model.last_request.outputs[1].text
    here.model.add([search()], "Seen.", [search()], "High【1】.")
    await here.ask(tools=[TOOL])
    final = (await here.ask(tools=[offline])).object
    assert said(final)[1][0]["url"] == f"{SITE}/tower" and len(web.asked) == 1
    here.model.add([search()], "Nothing.")
    final = (await here.ask(tools=[offline], owner="them", include=["web_search_call.results"])).object
    assert calls(final)[0]["results"] == [], "what another client has seen is its own"


async def test_where_the_user_is_reaches_the_search_engine(tmp_path: Path, model: ScriptedModel, web: Site) -> None:  # noqa: F811
    web.answer = lambda query: Answer(b'{"web": {"results": []}}', "application/json")
    settings = WebSearchSettings(backend="brave", base_url=web.base_url, env_key="KEY")
    browser = open_browser(settings, Guard(None, hosts=web.hosts), no_servers, env={"KEY": "x"})  # type: ignore[arg-type]
    async with served(tmp_path, model, "chat", hosted=(WebSearch(browser),)) as here:
        here.model.add([search()], "Nothing.")
        await here.ask(tools=[TOOL | {"user_location": {"type": "approximate", "country": "DE"}}])
    await browser.aclose()
    assert web.asked[-1]["country"] == "DE"


async def test_calls_count_and_a_wrong_one_is_told_to_the_model_alone(here: Served) -> None:
    wrong = [function_call("web_search", {}), function_call("open_page", {"url": 5})]
    here.model.add([wrong[0]], [wrong[1]], [search()], [search("more")], "Enough.")
    final = (await here.ask(tools=[TOOL], max_tool_calls=3)).object
    assert len(calls(final)) == 1 and final["status"] == "completed"
    outputs = [output.text for output in here.model.requests[-2].outputs]
    assert outputs[0] == "web_search: a `query` is required" and outputs[1].startswith("open_page: Expected `str`")


async def test_a_function_of_the_client_keeps_its_name(here: Served) -> None:
    mine = {"type": "function", "name": "open_page", "parameters": {"type": "object", "properties": {}}}
    here.model.add([function_call("open_page_2", {"url": f"{SITE}/tower"})], [function_call("open_page", {})])
    final = (await here.ask(tools=[mine, TOOL])).object
    assert [item["type"] for item in final["output"]] == ["web_search_call", "function_call"]
    assert final["output"][1]["name"] == "open_page"


async def test_a_page_that_is_refused_is_a_failed_call(here: Served, web: Site) -> None:  # noqa: F811
    web.pages["/img"] = Answer(b"\x89PNG", "image/png")
    refused = ["http://127.0.0.1/", f"{SITE}/img", f"{SITE}/none", "http://localhost:1/", "mailto:a@b.example"]
    for url in refused:
        here.model.add([read(url)])
    here.model.add("None.")
    ledger = await here.engine.open(asked(tools=[TOOL]))
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    assert [call["status"] for call in calls(ledger.object)] == ["failed"] * len(refused)
    assert "web_search_call.completed" not in kinds(events)
    assert "is image/png" in here.model.last_request.outputs[1].text


async def test_without_a_backend_the_call_fails_once_with_the_setting(
    tmp_path: Path, model: ScriptedModel, wire: Wire
) -> None:
    missing = WebSearchSettings().missing({}, {})
    async with served(tmp_path, model, wire, hosted=(WebSearch(None, missing=missing or ""),)) as here:
        model.add([search(), search("b")], "No 【1】 web.")
        ledger = await here.engine.open(asked(tools=[TOOL]))
        events = await events_of(ledger)
        final = ledger.object
        check_stream(events, final)
        (call,) = calls(final)
        assert call["status"] == "failed" and call["action"]["query"] == "tower of brix"
        assert all("web_search.backend is missing" in output.text for output in model.last_request.outputs)
        assert "tools" not in model.last_request.body or model.last_request.body["tools"] == []
        assert ledger.not_run == ("web_search",) and said(final)[0] == "No 【1】 web."
        with pytest.raises(ApiError, match="URL"):
            await here.ask(tools=[TOOL | {"filters": {"allowed_domains": ["http://a.example"]}}])


def test_each_setting_that_is_missing_is_named() -> None:
    def missing(**table: Any) -> str:
        return WebSearchSettings(**table).missing({"SET": "x"}, {"there": 1}) or ""

    assert "web_search.backend" in missing()
    assert "web_search.base_url" in missing(backend="searxng")
    assert "BRAVE_API_KEY" in missing(backend="brave") and "TAVILY_API_KEY" in missing(backend="tavily")
    assert "web_search.command" in missing(backend="command")
    assert "web_search.server" in missing(backend="mcp") and "'gone'" in missing(backend="mcp", server="gone")
    assert missing(backend="brave", env_key="SET") == missing(backend="mcp", server="there") == ""
