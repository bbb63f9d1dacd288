"""A screen: a real browser in a container, with pages of a server on loopback."""

import struct
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from ferrule.containers.screen import Screen, ScreenError, ScreenNetwork, ScreenSettings, read_action
from ferrule.containers.screen.program import find_program
from ferrule.sandbox.plan import Level
from tests.containers.sites import Site
from tests.programs import REQUIRED
from tests.sandbox.conftest import require

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def screen(site: Site) -> AsyncIterator[Screen]:
    await require(Level.NAMESPACES)
    try:
        find_program()
    except ScreenError as error:
        (pytest.fail if "chromium" in REQUIRED else pytest.skip)(str(error))
    network = ScreenNetwork(access=(site.name,), hosts=site.hosts)
    async with Screen.open(ScreenSettings(start_url=site.url("/")), network) as screen:
        yield screen


async def do(screen: Screen, **action: object) -> None:
    await screen.act(read_action(action))


async def test_a_form_of_three_pages_is_filled_and_booked(screen: Screen, site: Site) -> None:
    await screen.open_url(site.url("/book"))
    await do(screen, type="click", x=200, y=100)
    await do(screen, type="type", text="Ada Lovelace")
    await do(screen, type="keypress", keys=["ENTER"])
    assert screen.current_url == site.url("/day?name=Ada+Lovelace")
    await do(screen, type="click", x=200, y=100)  # opens the list
    await do(screen, type="keypress", keys=["ARROWDOWN"])
    await do(screen, type="keypress", keys=["ENTER"])
    await do(screen, type="click", x=60, y=220)
    assert screen.current_url == site.url("/confirm?name=Ada+Lovelace&day=Tuesday")
    await do(screen, type="click", x=60, y=220)
    assert site.booked == ["name=Ada+Lovelace&day=Tuesday"]
    assert screen.notices() == ('The page showed "Really book?" (confirm): it was answered with OK.',)
    picture = await screen.screenshot()
    assert picture.startswith(b"\x89PNG") and struct.unpack(">II", picture[16:24]) == (1024, 768)
