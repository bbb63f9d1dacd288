"""Search, open and find, over a loopback SearXNG and a loopback web."""

import asyncio

import pytest

from ferrule.protocol.items import read_item
from ferrule.web.browser import Browser, WebRefused, Wishes
from ferrule.web.memory import MOST_OPEN, Archive, Memory
from ferrule.web.reader import Page
from ferrule.web.search import Location
from ferrule.web.urls import SiteFilter, read_url
from tests.web.site import SITE, Answer, Site, redirect

ALL = Wishes()
BRIX = Wishes(sites=SiteFilter.read(["brix.example"]))


async def test_a_search_numbers_its_hits_and_quotes_their_text(browser: Browser) -> None:
    memory = Memory()
    found = await browser.search("  tower \n brix ", memory, ALL)
    assert [hit.url.text for hit in found.hits] == [f"{SITE}/tower", f"{SITE}/history", "https://other.example/a"]
    assert f"【1】 The tower of Brix\n{SITE}/tower\n> The tower is 42 m high & old." in found.text
    assert "History[7]" in found.text and "> [3] X\n> https://evil.example/" in found.text
    assert {number: source.url for number, source in memory.sources.items()} == {
        1: f"{SITE}/tower", 2: f"{SITE}/history", 3: "https://other.example/a"
    }  # fmt: skip


async def test_a_page_is_read_as_text_and_found_in(browser: Browser, web: Site) -> None:
    memory = Memory()
    text = await browser.open(f"{SITE}/tower#top", 1, memory, ALL)
    assert text.startswith(f"【1】 The tower of Brix\n{SITE}/tower\n")
    assert "> The tower of Brix is 42 m high" in text and f"]({SITE}/history)" in text
    assert "[1][9]" in text and "【9】" not in text
    places = await browser.find("【1】", "LEANS  a little", memory, ALL)
    assert "1 place of the page" in places and "> " in places and "leans a little to the east" in places
    assert "does not have this text" in await browser.find("1", "zebra", memory, ALL)
    assert web.opened == ["/tower"]
    assert "cookie" not in {name.lower() for name in web.sent[-1]}


async def test_only_pages_of_the_sites_are_shown_and_opened(browser: Browser, web: Site) -> None:
    memory = Memory()
    found = await browser.search("tower", memory, BRIX)
    assert [hit.url.host for hit in found.hits] == ["brix.example"] * 2
    assert web.asked[-1]["q"] == "tower site:brix.example"
    web.hits = web.hits[2:]
    assert "found nothing" in (await browser.search("tower", memory, BRIX)).text
    assert [asked["q"] for asked in web.asked[-2:]] == ["tower site:brix.example", "tower"]
    web.pages["/away"] = redirect("http://other.example/a")
    for reference in (
        "https://other.example/a",
        f"{SITE}/away",
        "https://brix.example.evil.example/",
        "https://xbrix.example/",
        "https://brix.example:443@other.example/",
        "https://brіx.example/",  # a Cyrillic letter
    ):
        with pytest.raises(WebRefused):
            await browser.open(reference, 1, memory, BRIX)
    assert "/a" not in web.opened
    web.pages["/sub"] = Answer(b"fine", "text/plain")
    assert "> fine" in await browser.open("http://sub.brix.example/sub", 1, memory, BRIX)


async def test_without_the_web_only_what_was_seen_is_there(browser: Browser, web: Site) -> None:
    offline = Wishes(offline=True, owner="ann")
    nothing = await browser.search("tower", Memory(), offline)
    assert nothing.hits == () and "no access to the web" in nothing.text
    with pytest.raises(WebRefused, match="not opened before"):
        await browser.open(f"{SITE}/tower", 1, Memory(), offline)
    await browser.search("tower", Memory(), Wishes(owner="ann"))
    await browser.open(f"{SITE}/tower", 1, Memory(), Wishes(owner="ann"))
    before = len(web.asked), len(web.opened)
    assert "42 m" in await browser.open(f"{SITE}/tower", 1, Memory(), offline)
    found = await browser.search("leans tower", Memory(), offline)
    assert found.hits[0].url.text == f"{SITE}/tower" and "leans" in found.text
    assert (len(web.asked), len(web.opened)) == before
    with pytest.raises(WebRefused):
        await browser.open(f"{SITE}/tower", 1, Memory(), Wishes(offline=True, owner="bob"))
    with pytest.raises(WebRefused):
        await browser.open(f"{SITE}/history", 1, Memory(), offline)  # only a hit


async def test_a_long_page_comes_in_parts(browser: Browser, web: Site) -> None:
    web.pages["/long"] = Answer("".join(f"line {n}\n" for n in range(4000)).encode(), "text/plain")
    small = Wishes(size="low")
    first = await browser.open(f"{SITE}/long", 1, Memory(), small)
    assert "Part 1 of 5" in first and "> line 0\n" in first and len(first) < 12_000
    assert "> line 3999" in await browser.open(f"{SITE}/long", 5, Memory(), small)
    with pytest.raises(WebRefused, match="has 5 parts"):
        await browser.open(f"{SITE}/long", 6, Memory(), small)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(b"<html>sorry</html>", status=403), "refuses JSON: the operator has to add `json`"),
        (Answer(b"", status=500), "answered with the status 500"),
        (Answer(b"", status=429), "wants fewer searches"),
        (Answer(b"<html>", "text/html"), "did not answer with JSON"),
        (Answer(b"[" * 5000, "application/json"), "did not answer with JSON"),
        (Answer(b'"' + b"x" * (5 << 20) + b'"', "application/json"), "answered with more than 4 MB"),
        (redirect("https://elsewhere.example/"), r"another address \(status 302\): .* web_search.base_url"),
    ],
)
async def test_a_search_server_that_fails_is_told_in_words(
    browser: Browser, web: Site, answer: Answer, words: str
) -> None:
    web.answer = lambda query: answer
    with pytest.raises(WebRefused, match=words):
        await browser.search("x", Memory(), ALL)


async def test_odd_answers_of_a_search_server_have_no_hits(browser: Browser, web: Site) -> None:
    for odd in (b"{}", b'{"results": null}', b'{"results": [3, {"url": 5}, {"title": "x"}]}', b"[[]]", b'"x"'):
        web.answer = lambda query, odd=odd: Answer(odd, "application/json")
        assert (await browser.search("x", Memory(), Wishes(location=Location(country="DE")))).hits == ()
    for wrong in ("", " \n", "x" * 1001):
        with pytest.raises(WebRefused, match="a query has between"):
            await browser.search(wrong, Memory(), ALL)


async def test_a_text_that_a_page_has_a_million_times_is_not_counted_to_the_end(browser: Browser, web: Site) -> None:
    web.pages["/many"] = Answer(b"y" * 9_000_000, "text/plain")
    found = await asyncio.wait_for(browser.find(f"{SITE}/many", "Y", Memory(), ALL), 30)
    assert "More than 1000 places, of which the first 20 are shown" in found


async def test_what_a_conversation_has_open_is_bounded() -> None:
    memory = Memory()
    pages = [Page(read_url(f"{SITE}/{number}"), "t", "x" * (MOST_OPEN // 2 - number)) for number in range(4)]
    for page in pages:
        memory.keep(page, f"{SITE}/to/{page.url.text[-1]}")
    assert set(memory.pages.values()) == set(pages[2:]) and len(memory.pages) == 4
    memory.keep(huge := Page(read_url(f"{SITE}/huge"), "t", "x" * (MOST_OPEN + 1)))
    assert list(memory.pages.values()) == [huge]


async def test_others_run_while_what_was_seen_is_searched() -> None:
    archive, turns = Archive(), 0
    for number in range(20):
        archive.keep("ann", Page(read_url(f"{SITE}/{number}"), "t", f"tower {number}"))

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    assert len(await archive.search("ann", "tower")) == 20 and await archive.search("bob", "tower") == []
    assert turns >= 20
    running.cancel()


def test_a_number_that_no_source_has_does_not_use_up_the_numbers() -> None:
    memory = Memory()
    memory.recall([read_item(b'{"type":"message","role":"user","content":"order \xe3\x80\x90999999\xe3\x80\x91"}')])
    assert memory.number(read_url(SITE), "t") == 1
