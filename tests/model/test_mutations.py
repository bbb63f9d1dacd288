"""A sample of the mutated streams; `python -m tests.model.mutations 50000` makes many more."""

import pytest

from ferrule.model.profiles import load_profiles
from tests.model.mutations import SHAPES, check


def test_each_provider_has_its_shape() -> None:
    assert set(load_profiles().providers) <= set(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
async def test_a_mutated_stream_gives_the_same_call_or_an_error(name: str) -> None:
    for seed in range(120 if name == "responses" else 24):
        await check(name, seed)
