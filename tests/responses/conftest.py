"""Responses over a scripted model, on both upstream wires."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel
from tests.responses.serving import Served, served


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture(params=["chat", "responses"])
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel, wire: Wire) -> AsyncIterator[Served]:
    async with served(tmp_path, model, wire) as here:
        yield here
