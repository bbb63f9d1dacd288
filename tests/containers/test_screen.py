"""A screen: a real browser in a container, with pages of a server on loopback."""

import asyncio
import base64
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from ferrule import Computer
from ferrule.builtin.computer import ScreenObservation
from ferrule.builtin.kept_screen import Look
from ferrule.containers import LocalHost
from ferrule.containers.screen import (
    BadAction,
    BadAddress,
    Screen,
    ScreenNetwork,
    read_action,
)
from ferrule.containers.screen import browser as browser_module
from ferrule.containers.screen import devtools as devtools_module
from ferrule.containers.screen import screen as screen_module
from ferrule.containers.screen.browser import PASSWORD
from ferrule.containers.screen.hands import NOT_SENT
from ferrule.containers.screen.screen import RESTARTED, RESTARTED_TWICE
from ferrule.images import read_header
from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.protocol.errors import UsageError
from ferrule.protocol.json_text import JsonObject
from tests.containers.leftovers import ours
from tests.containers.screens import require_screen
from tests.containers.sites import NAME, STYLE, Site, place_of
from tests.egress.scene import AUTHORITY
from tests.processes import DEADLINE, alive, children, running, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Judge:
    """Decides about addresses, as whoever opens a screen may."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refused: dict[str, str] = {}

    async def __call__(self, url: str) -> str | None:
        self.asked.append(url)
        return self.refused.get(url)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site(AUTHORITY.context(NAME)) as site:
        yield site


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kept(site: Site, judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Screen]:
    await require_screen()
    roots = tmp_path_factory.mktemp("roots") / "roots.pem"
    roots.write_bytes(AUTHORITY.pem)
    network = ScreenNetwork(access=(NAME,), hosts=site.hosts, ca_file=str(roots))
    async with Screen.open(ComputerSettings(start_url=site.url("/")), network, on_navigation=judge) as screen:
        await screen.start()
        yield screen


@pytest_asyncio.fixture(loop_scope="module")
async def screen(kept: Screen, site: Site, judge: Judge) -> AsyncIterator[Screen]:
    """The one browser, as it is after its start."""
    await kept.open_url(site.url("/"))
    kept.notices()
    site.said.clear()
    judge.asked.clear()
    yield kept
    judge.refused.clear()


async def do(screen: Screen, **action: object) -> None:
    await screen.act(read_action(action))


async def killed(screen: Screen, mark: str) -> tuple[str, ...]:
    """Kill the processes of the browser that have this argument, and return what is told of that."""
    assert screen.container is not None
    found = [pid for pid in ours(Path("/nowhere"), {screen.container.holder_pid}) if pid in running(mark)]
    assert found
    for pid in found:
        with suppress(ProcessLookupError):  # it ended with the one before
            os.kill(pid, signal.SIGKILL)
    await until(lambda: not any(map(alive, found)))
    return await told(screen)


async def told(screen: Screen, count: int = 1) -> tuple[str, ...]:
    """Look until so much is told."""
    notices = screen.notices()
    async with asyncio.timeout(DEADLINE):
        while len(notices) < count:
            await screen.screenshot()
            notices += screen.notices()
    await do(screen, type="screenshot")
    return notices + screen.notices()


async def press(screen: Screen, act: str) -> None:
    """Press a button of the page `/acts`, whatever page is seen."""
    await screen.open_url(f"http://{NAME}/acts")
    await do(screen, type="click", **place_of(act))


async def test_a_form_of_three_pages_is_filled_and_booked(screen: Screen, site: Site) -> None:
    await screen.open_url(site.url("/book"))
    await do(screen, type="click", x=200, y=100)
    await do(screen, type="type", text="Ada Lovelace")
    await do(screen, type="keypress", keys=["ENTER"])
    assert screen.current_url == site.url("/day?name=Ada+Lovelace")
    await do(screen, type="click", x=200, y=100)  # opens the list
    await do(screen, type="click", x=100, y=157)  # its second line, which is drawn in the page
    await do(screen, type="click", x=60, y=220)
    assert screen.current_url == site.url("/confirm?name=Ada+Lovelace&day=Tuesday")
    await do(screen, type="click", x=60, y=220)
    assert site.booked == ["name=Ada+Lovelace&day=Tuesday"]
    assert screen.notices() == ('The page showed "Really book?" (confirm): it was answered with OK.',)
    picture = await screen.screenshot()
    assert picture.startswith(b"\x89PNG") and struct.unpack(">II", picture[16:24]) == (1024, 768)
    await do(screen, type="click", x=60, y=220, button="back")
    assert screen.current_url == site.url("/confirm?name=Ada+Lovelace&day=Tuesday")
    await do(screen, type="keypress", keys=["ALT", "ARROWRIGHT"])
    assert screen.current_url == site.url("/done")


async def test_hands_reach_the_page(screen: Screen, site: Site) -> None:
    await screen.open_url(site.url("/listener"))
    await do(screen, type="keypress", keys=["CTRL", "A"])
    await do(screen, type="type", text="aB\n")
    await do(screen, type="scroll", x=500, y=500, scroll_x=0, scroll_y=120)
    await do(screen, type="double_click", x=600, y=600, keys=["SHIFT"])
    await do(screen, type="click", x=600, y=600, button="right")
    await do(screen, type="drag", path=[{"x": 25, "y": 325}, {"x": 350, "y": 350}])
    await do(screen, type="move", x=320, y=320)
    expected = [
        "C-Control", "C-a", "a", "S-B", "Enter", "wheel 0 120", "S-Shift", "double S", "menu", "carried", "over",
    ]  # fmt: skip
    await until(lambda: sorted(site.said) == sorted(expected))


async def test_what_an_action_has_fetched_is_seen(screen: Screen) -> None:
    await press(screen, "fetch")
    assert screen._browser is not None
    shown: JsonObject = {"expression": "document.body.innerText.includes('fetched')"}
    seen = await screen._browser.devtools.call("Runtime.evaluate", shown, screen._browser.active.session)
    assert seen["result"] == {"type": "boolean", "value": True}


async def test_lists_of_shadow_trees_take_clicks(screen: Screen, site: Site) -> None:
    await screen.open_url(site.url("/shadow"))
    await do(screen, type="click", x=200, y=100)
    await do(screen, type="click", x=100, y=157)
    await until(lambda: site.said == ["Tuesday"])


async def test_large_pictures(screen: Screen, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await screen.open_url(site.url("/noise"))
    monkeypatch.setattr(screen_module, "MAX_PNG", 100_000)
    taken = await screen.screenshot()
    assert read_header(taken) == ("image/jpeg", 1024, 768)
    assert ScreenObservation.of(Look(taken, "")).picture.startswith("data:image/jpeg;")
    monkeypatch.setattr(devtools_module, "MAX_MESSAGE", 100_000)
    assert screen._browser is not None
    monkeypatch.setattr(screen._browser.devtools, "patience", 1.0)
    assert read_header(await screen.screenshot()) == ("image/png", 1024, 768)  # of another tab
    assert screen.notices() == (f"The page {site.url('/noise')} did not answer for 1 s, and was closed.",)


async def test_what_nobody_can_do(screen: Screen, site: Site) -> None:
    await screen.open_url(site.url("/listener"))
    await do(screen, type="click", x=1024, y=10)
    await do(screen, type="drag", path=[{"x": 5, "y": 5}, {"x": 5, "y": -1}])
    await do(screen, type="click", x=10**400, y=10)
    assert screen.notices() == (
        "(1024, 10) lies outside of the screen, which is 1024 x 768 pixels: nothing was done.",
        "(5, -1) lies outside of the screen, which is 1024 x 768 pixels: nothing was done.",
        "(1e+09, 10) lies outside of the screen, which is 1024 x 768 pixels: nothing was done.",
    )
    with pytest.raises(BadAction, match="There is no key 'HYPER'"):
        await do(screen, type="keypress", keys=["CTRL", "HYPER"])
    with pytest.raises(BadAction, match="A drag needs a path"):
        await do(screen, type="drag", path=[])
    with pytest.raises(BadAction, match="This is no action"):
        await do(screen, type="jump", x=1, y=1)
    for address in (
        "file:///etc/passwd",
        "javascript:alert(1)",
        "chrome://version",
        "site.test",
        "http://",
        "http://[",
    ):
        with pytest.raises(BadAddress):
            await screen.open_url(address)
    assert screen.current_url == site.url("/listener")


async def test_only_names_of_the_list_are_reached(screen: Screen, site: Site) -> None:
    for act, refused in (("other", "other.test"), ("socket", "socket.test")):
        await press(screen, act)
        await until(lambda act=act: act in site.said)  # type: ignore[misc]
        assert screen.notices() == (f"{refused} is not an allowed domain. Allowed: {NAME}.",)
    await press(screen, "loopback")
    await until(lambda: "loopback" in site.said)
    assert screen.notices() == ("'127.0.0.1' is an address: only names can be allowed.",)
    await press(screen, "own")
    await until(lambda: "greeted" in site.said)
    await press(screen, "file")
    await until(lambda: "on" in site.said)
    assert screen.current_url == site.url("/acts")
    await screen.open_url("http://unlisted.test/")
    assert screen.notices() == (f"unlisted.test is not an allowed domain. Allowed: {NAME}.",)


async def test_https(screen: Screen, site: Site) -> None:
    await screen.open_url(f"https://{NAME}/book")
    assert (screen.current_url, screen.notices()) == (f"https://{NAME}/book", ())
    await do(screen, type="click", x=60, y=220)
    assert (screen.current_url, screen.notices()) == (f"https://{NAME}/day?name=", ())


async def test_each_address_is_judged(screen: Screen, site: Site, judge: Judge) -> None:
    judge.refused = {site.url("/book"): "it sells things.", site.url("/popup"): "it pops up."}
    told = f"{site.url('/book')} was not opened: it sells things."
    await press(screen, "go")
    assert screen.notices() == (told,)
    await press(screen, "popup")
    assert set(screen.notices()) == {
        f"{site.url('/popup')} was not opened: it pops up.", "A new tab was opened and is shown now (2 tabs).",
    }  # fmt: skip
    await do(screen, type="keypress", keys=["CTRL", "W"])
    await screen.open_url(site.url("/book"))
    assert told in screen.notices()
    await screen.open_url(site.url("/framed"))
    assert screen.notices() == ()  # what a page shows within itself is no navigation
    assert judge.asked == [
        site.url("/"), site.url("/acts"), site.url("/book"), site.url("/acts"), site.url("/popup"), site.url("/book"),
        site.url("/framed"),
    ][1:]  # fmt: skip


async def test_no_other_program_is_asked_for(screen: Screen, site: Site) -> None:
    await press(screen, "program")
    await do(screen, type="click", **place_of("program"))
    assert screen.current_url == site.url("/acts")
    await press(screen, "alert")
    assert screen.notices() == ('The page showed "Hello" (alert): it was answered with OK.',)


async def test_no_password_is_given(screen: Screen, site: Site) -> None:
    told = (PASSWORD.format(f"http://{NAME}"),)
    await press(screen, "locked")
    await until(lambda: site.said == ["locked 401"])
    assert screen.notices() == told
    await screen.open_url(site.url("/locked"))
    assert (screen.current_url, screen.notices()) == (site.url("/locked"), told)


async def test_dialogs_are_answered(screen: Screen, site: Site) -> None:
    await press(screen, "alert")
    await press(screen, "prompt")
    await press(screen, "leave")
    assert screen.current_url == site.url("/")
    await press(screen, "choose")
    await press(screen, "print")
    await until(lambda: site.said == ["Bob", "printed"])
    assert screen.notices() == (
        'The page showed "Hello" (alert): it was answered with OK.',
        'The page asked "Name?" (prompt): its own default "Bob" was answered.',
        "The page asked whether it may be left: it was left.",
        "The page asked for a file: none was chosen, since there is no dialog for files here.",
    )
    await press(screen, "dialogs")
    assert screen.notices()[-1] == f"The page {site.url('/acts')} opened dialogs without end, and was closed."
    assert screen.current_url == "about:blank"


async def test_tabs(screen: Screen, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_module, "MAX_TABS", 2)
    await press(screen, "popup")
    assert screen.notices() == ("A new tab was opened and is shown now (2 tabs).",)
    assert screen.current_url == site.url("/popup")
    await do(screen, type="keypress", keys=["CTRL", "TAB"])
    assert screen.current_url == site.url("/acts")
    await do(screen, type="click", **place_of("popup"))
    assert screen.notices() == ("A page opened further tabs: they were closed, since 2 are open already.",)
    assert screen.current_url == site.url("/acts")
    await do(screen, type="keypress", keys=["CTRL", "W"])
    assert screen.current_url == site.url("/popup")
    await do(screen, type="keypress", keys=["CTRL", "W"])
    assert screen.current_url == "about:blank"
    assert screen.notices() == ()


async def test_downloads(screen: Screen) -> None:
    await press(screen, "download")
    size = len(STYLE) + len("text")
    assert await told(screen, 2) == (
        'A download began: "report.txt".',
        f'The download "report.txt" is complete: /mnt/data/report.txt, {size} bytes.',
    )
    await press(screen, "huge")
    assert await told(screen, 2) == (
        'A download began: "huge.bin".',
        'The download "huge.bin" was cancelled: downloads of a screen take at most 1 GiB together.',
    )
    assert screen.container is not None
    assert [path.name for path in screen.container.folder.iterdir()] == ["report.txt"]


async def test_pages_without_end(screen: Screen, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_module, "LOAD_S", 0.3)
    for path in ("/slow", "/never"):
        await screen.open_url(site.url(path))
        assert screen.notices() == ("The page is still loading after 0.3 s: this is what there is.",)
        assert (await screen.screenshot()).startswith(b"\x89PNG")
    monkeypatch.setattr(screen_module, "LOAD_S", 10.0)
    assert screen._browser is not None
    monkeypatch.setattr(screen._browser.devtools, "patience", 0.5)
    await press(screen, "hang")
    assert screen.notices() == (f"The page {site.url('/acts')} did not answer for 0.5 s, and was closed.",)
    monkeypatch.undo()
    await screen.open_url(site.url("/"))
    assert screen.current_url == site.url("/")


async def test_a_page_that_loads_itself_anew_can_be_left(screen: Screen, site: Site) -> None:
    await screen.open_url(site.url("/reload"))
    await do(screen, type="click", x=500, y=500)  # from now on what it does counts as the user's wish
    await screen.open_url(site.url("/later"))
    assert screen.current_url == site.url("/later")


async def book(screen: Screen, site: Site) -> str:
    """Book, and return the address of the page that a sent form has led to."""
    await screen.open_url(site.url("/confirm?name=Ada&day=Monday"))
    await do(screen, type="click", x=60, y=220)
    await told(screen)
    assert screen.current_url == site.url("/done")
    return screen.current_url


async def test_crashes_send_no_form_twice(screen: Screen, site: Site) -> None:
    page, booked = await book(screen, site), len(site.booked)
    assert await killed(screen, "--type=renderer") == (f"The page {page} crashed, and is loaded anew.",)
    assert screen.current_url == page
    assert await killed(screen, "--type=renderer") == (f"The page {page} crashed again, and was closed.",)
    assert len(site.booked) == booked
    await book(screen, site)
    await do(screen, type="keypress", keys=["F5"])
    assert await told(screen) == (NOT_SENT,)
    assert await killed(screen, "--remote-debugging-pipe") == (RESTARTED,)
    assert screen.current_url == page
    assert await killed(screen, "--remote-debugging-pipe") == (RESTARTED_TWICE.format(page),)
    assert screen.current_url == "about:blank"
    assert len(site.booked) == booked + 1


KILLED = """
import asyncio
import base64
from ferrule import Computer

async def main():
    async with Computer() as computer:
        print(computer.screen.container.holder_pid, computer.screen.container.folder, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_nothing_is_left_after_sigkill(kept: Screen) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    first, folder = (await process.stdout.readline()).decode().split()
    holder = int(first)
    started = ours(Path("/nowhere"), {holder})
    assert sum(pid in running("--type=") for pid in started) >= 4
    process.kill()
    await process.wait()
    await until(lambda: not any(map(alive, [holder, *started])), seconds=4)
    async with LocalHost.open():  # the next process removes its files
        assert not Path(folder).exists()


async def test_nothing_is_left_of_an_interrupted_start(kept: Screen) -> None:
    before = set(children())
    entering = asyncio.create_task(Computer().__aenter__())
    await until(lambda: not before.issuperset(children()))
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    await until(lambda: before.issuperset(pid for pid in children() if alive(pid)))


async def test_a_computer_of_the_agents_sdk(kept: Screen, site: Site) -> None:
    from agents import AsyncComputer

    with pytest.raises(UsageError, match="start_url"):
        Computer(start_url="file:///etc/passwd")
    with pytest.raises(UsageError, match="display_width"):
        Computer(display_width=10)
    with pytest.raises(UsageError, match="is an address"):
        Computer(allowed_domains=["127.0.0.1"])
    computer = Computer(display_width=800, display_height=600, allowed_domains=[NAME], hosts=site.hosts)
    assert isinstance(computer, AsyncComputer)
    assert (computer.environment, computer.dimensions) == ("browser", (800, 600))
    await computer.screen.aclose()
    computer.screen = kept  # one browser is enough
    await computer.open_url(site.url("/listener"))
    site.said.clear()
    await computer.keypress(["CTRL", "A"])
    await computer.type("a")
    await computer.scroll(500, 500, 0, 120)
    await computer.double_click(600, 600, keys=["SHIFT"])
    await computer.click(600, 600, "right")
    await computer.drag([(25, 325), (350, 350)])
    await computer.move(320, 320)
    await computer.keypress(["HYPER"])
    assert [notice[:23] for notice in computer.notices()] == ["There is no key 'HYPER'"]
    expected = ["C-Control", "C-a", "a", "wheel 0 120", "S-Shift", "double S", "menu", "carried", "over"]
    await until(lambda: sorted(site.said) == sorted(expected))
    assert base64.b64decode(await computer.screenshot()).startswith(b"\x89PNG")
