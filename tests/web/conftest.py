"""One server for the tests of a module, and a browser over it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from ferrule.egress.guard import Guard
from ferrule.protocol.web_settings import WebSearchSettings
from ferrule.web.browser import Browser
from ferrule.web.opening import open_browser
from tests.web.site import Site, site


async def no_servers(server: str, tool: str | None) -> object:
    raise AssertionError("there are no MCP servers")


@pytest.fixture(scope="module")
def server() -> Iterator[Site]:
    with site() as running:
        yield running


@pytest.fixture
def web(server: Site) -> Iterator[Site]:
    """The server as it begins."""
    fresh = Site(server.port)
    kept = vars(server).copy()
    vars(server).update(vars(fresh))
    yield server
    vars(server).update(kept)


@pytest.fixture
async def browser(web: Site) -> AsyncIterator[Browser]:
    settings = WebSearchSettings(backend="searxng", base_url=web.base_url)
    made = open_browser(settings, Guard(None, hosts=web.hosts), no_servers)  # type: ignore[arg-type]
    yield made
    await made.aclose()
