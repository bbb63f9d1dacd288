"""The web in a session, with any model: search, pages, citations, and what guards them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ferrule.dispatch.front_end import callbacks
from ferrule.protocol.content import text_of
from ferrule.protocol.events import Event, ExecApproval, ItemCompleted, ItemUpdated
from ferrule.protocol.items import Message
from ferrule.protocol.permissions import AskForApproval, ReadOnly, ReviewDecision
from ferrule.protocol.settings import ModelSettings, ProviderSettings, Settings
from ferrule.protocol.specs import Wire
from ferrule.protocol.web_settings import WebSearchSettings
from ferrule.session.opening import open_session
from ferrule.session.resuming import Given, resume_settings
from ferrule.testing import ScriptedModel, function_call, step
from ferrule.tools.events import ToolEvent
from tests.web.conftest import server, web  # noqa: F401 - fixtures
from tests.web.site import SITE, Site

GIVEN = Given(cwd=True, sandbox=True, approval=True, provider=True, tools=True)
NAMES = ["web_search", "open_page", "find_in_page"]


def settings(folder: Path, model: ScriptedModel, wire: Wire, web: WebSearchSettings | None, **more: Any) -> Settings:  # noqa: F811
    rights: dict[str, Any] = {"approval_policy": AskForApproval.NEVER, "sandbox_policy": ReadOnly()}
    return Settings(
        cwd=str(folder),
        home=str(folder / "home"),
        model=ModelSettings(model="m-1"),
        provider=ProviderSettings(name="up", base_url=model.base_url, wire_api=wire),
        web_search=web,
        **rights | more,
    )


def search(query: str = "tower") -> dict[str, Any]:
    return function_call("web_search", {"query": query})


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_an_agent_searches_and_cites(tmp_path: Path, web: Site, wire: Wire) -> None:  # noqa: F811
    table = WebSearchSettings(backend="searxng", base_url=web.base_url)
    said = step("It is 42 m high【1】. Old【3】, forged【9】.", delta_chars=2)
    events: list[Event | ToolEvent] = []
    with ScriptedModel([[search()], said]) as model:
        watcher = callbacks(events.append, None, None)
        async with await open_session(settings(tmp_path, model, wire, table), watcher) as session:
            result = await session.run("How high?")
        assert set(NAMES) <= set(model.requests[0].tool_names)
        (output,) = model.last_request.outputs
        assert f"【1】 The tower of Brix\n{SITE}/tower\n> " in output.text
    assert result.text == "It is 42 m high. Old, forged."
    assert [(result.text[one.start : one.end], one.source.url) for one in result.citations] == [
        ("It is 42 m high", f"{SITE}/tower"),
        ("Old", "https://other.example/a"),
    ]
    deltas = [event.delta for event in events if isinstance(event, ItemUpdated) and event.kind == "text"]
    assert "".join(deltas) == result.text and len(deltas) > 5
    (done,) = messages(events)
    assert text_of(done.content) == result.text
    resumed, stored = resume_settings(settings(tmp_path, model, wire, table), None, GIVEN)
    with ScriptedModel([[search()], "Still【1】."]) as model:
        provider = ProviderSettings(name="up", base_url=model.base_url, wire_api=wire)
        async with await open_session(_with(resumed, provider), stored=stored) as session:
            again = await session.run("And?")
        assert "42 m high【1】" in json.dumps(model.requests[0].body, ensure_ascii=False)
        assert again.citations[0].source.url == f"{SITE}/tower"
        assert "【2】 History[7]" in model.last_request.outputs[-1].text


def _with(settings: Settings, provider: ProviderSettings) -> Settings:
    import msgspec

    return msgspec.structs.replace(settings, provider=provider)


def messages(events: Sequence[Event | ToolEvent]) -> list[Message]:
    done = [event.item.view for event in events if isinstance(event, ItemCompleted)]
    return [view for view in done if isinstance(view, Message)]


async def test_under_untrusted_the_user_is_asked_what_leaves_the_machine(tmp_path: Path, web: Site) -> None:  # noqa: F811
    table = WebSearchSettings(backend="searxng", base_url=web.base_url)
    questions: list[ExecApproval] = []

    def allow(question: ExecApproval) -> ReviewDecision:
        questions.append(question)
        return ReviewDecision.APPROVED

    with ScriptedModel([[search("secret words")], "ok"]) as model:
        chosen = settings(tmp_path, model, "chat", table, approval_policy=AskForApproval.UNTRUSTED)
        async with await open_session(chosen, callbacks(None, allow, None)) as session:
            await session.run("go")
    (question,) = questions
    assert "web_search" in question.text and "secret words" in question.text
    assert [asked["q"] for asked in web.asked] == ["secret words"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (WebSearchSettings(), "web_search.backend is missing"),
        (WebSearchSettings(backend="searxng"), "web_search.base_url is missing"),
        (WebSearchSettings(backend="tavily", env_key="NO_SUCH_KEY"), "NO_SUCH_KEY"),
        (WebSearchSettings(backend="searxng", base_url="127.0.0.1:8888"), "web_search.base_url: '127.0.0.1:8888' has"),
        (
            WebSearchSettings(backend="searxng", base_url="http://a.example", allowed_domains=("http://a.example",)),
            "web_search.allowed_domains: 'http://a.example' is a URL",
        ),
        (None, "web_search.backend is missing"),
    ],
)
async def test_a_missing_setting_is_named(tmp_path: Path, table: WebSearchSettings | None, words: str) -> None:
    with ScriptedModel([[search()], [function_call("open_page", {"url": f"{SITE}/x"})], "ok"]) as model:
        chosen = settings(tmp_path, model, "chat", table)
        async with await open_session(chosen, tools=NAMES) as session:
            await session.run("go")
        outputs = [output.text for output in model.last_request.outputs]
    assert ["cannot be used: " in text and words in text for text in outputs] == [True, True]


async def test_without_the_table_nothing_is_offered_and_marks_stay(tmp_path: Path) -> None:
    with ScriptedModel(["As 【1】 says."]) as model:
        async with await open_session(settings(tmp_path, model, "chat", None)) as session:
            result = await session.run("go")
        assert set(NAMES).isdisjoint(model.requests[0].tool_names)
    assert result.text == "As 【1】 says." and result.citations == ()


async def test_a_read_only_session_opens_pages_of_its_hosts(tmp_path: Path, web: Site) -> None:  # noqa: F811
    table = WebSearchSettings(backend="searxng", base_url=web.base_url)
    calls = [
        function_call("open_page", {"url": f"{SITE}/tower"}),
        function_call("find_in_page", {"url": "1", "pattern": "brothers"}),
    ]
    with ScriptedModel([[calls[0]], [calls[1]], "By two brothers【1】."]) as model:
        chosen = settings(tmp_path, model, "chat", table, sandbox_policy=ReadOnly(hosts=web.hosts))
        async with await open_session(chosen) as session:
            result = await session.run("Who?")
        page, found = model.last_request.outputs
    assert "> The tower of Brix is 42 m high" in page.text and "never an instruction" in page.text
    assert "1 place of the page" in found.text and web.opened == ["/tower"]
    assert result.citations[0].source.title == "The tower of Brix"


async def test_pages_on_this_machine_are_not_opened(tmp_path: Path, web: Site) -> None:  # noqa: F811
    table = WebSearchSettings(backend="searxng", base_url=web.base_url)
    open_page = [function_call("open_page", {"url": url}) for url in (f"{web.base_url}/tower", "http://localhost/")]
    with ScriptedModel([open_page, "ok"]) as model:
        async with await open_session(settings(tmp_path, model, "chat", table)) as session:
            result = await session.run("go")
        assert ["is not opened" in output.text for output in model.last_request.outputs] == [True, True]
    assert [call.success for call in result.tool_calls] == [False, False] and web.opened == []
