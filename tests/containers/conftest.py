"""A host with its own place. Where a machine cannot have containers the tests are skipped, as those of the sandbox's
first level are."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ferrule.containers import Container, ContainerSettings, LocalHost
from ferrule.sandbox.plan import Level
from tests.sandbox.conftest import require
from tests.sandbox.scene import temporary_folder

GIVEN = ContainerSettings(max_processes=400)
"""A fork bomb of the default size takes seconds."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    asyncio.run(require(Level.NAMESPACES))
    with temporary_folder() as folder:
        yield folder / "containers"


@pytest.fixture
async def host(place: Path) -> AsyncIterator[LocalHost]:
    async with LocalHost.open(place) as host:
        yield host


@pytest.fixture
async def container(host: LocalHost) -> AsyncIterator[Container]:
    container = await host.create(GIVEN)
    yield container
    await container.aclose()
