"""One gateway for all of it, over a model that says what it is told."""

from collections.abc import Iterator

import pytest

from ferrule.testing import Failed, ScriptedModel, Stall, function_call, http_error, step
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.gateway.served import Served, new_place, serving

HELD = 60.0
"""Seconds that a held answer stands still: longer than any test waits."""


def says(request: Request) -> Simple:
    """A call where there is a tool without an answer; one word and then nothing for `hold`; an error for `limit`,
    and for `break` after some words; else what it was told."""
    text = request.user_text
    if "get_weather" in request.tool_names and not request.outputs:
        return function_call("get_weather", {"city": "Rome"})
    if "hold" in text:
        return step("Wait for it", delta_chars=4, stall=Stall(at="Wait", seconds=HELD))
    if "break" in text:
        return step("Half of it", end=Failed("It broke."))
    if "limit" in text:
        return http_error(429, "Slow down.", code="rate_limit_exceeded", headers={"retry-after": "7000"})
    return f"You said: {text[-40:]}"


@pytest.fixture(scope="session")
def model() -> Iterator[ScriptedModel]:
    """The model behind the gateway."""
    with ScriptedModel(says) as running:
        yield running


@pytest.fixture(scope="session")
def gateway(model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway without keys."""
    with serving(new_place(tmp_path_factory.mktemp("gateway")), model.base_url) as running:
        yield running
