"""The OpenAI Agents SDK, which takes seconds to import: only the worker that runs its tests does."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.agents_sdk import WIRES, Place


@pytest.fixture(scope="module")
def sdk() -> Any:
    import agents

    agents.set_tracing_disabled(True)
    return agents


@pytest.fixture
async def place(sdk: Any, tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(sdk, tmp_path)
    with made.script:
        yield made
        await made.close()
        made.script.check()


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)
