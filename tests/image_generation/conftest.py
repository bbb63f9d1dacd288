"""One server for the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.image_generation.painter import Painter, painter


@pytest.fixture(scope="module")
def server() -> Iterator[Painter]:
    with painter() as running:
        yield running


@pytest.fixture
def paints(server: Painter) -> Iterator[Painter]:
    """The server as it begins."""
    fresh = Painter()
    fresh.base_url = server.base_url
    vars(server).update(vars(fresh))
    yield server
    server.held.set()
