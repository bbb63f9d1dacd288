"""Every stream, one byte at a time and in random splits: the same events, items and errors as in one piece."""

import random

import pytest

from tests.model.streams import ALL
from tests.model.support import replay

SPLITS_IN_ALL = 1000
SPLITS = -(-SPLITS_IN_ALL // len(ALL))


@pytest.mark.parametrize(("wire", "name", "data"), ALL, ids=[f"{wire} {name}" for wire, name, _ in ALL])
async def test_any_split_gives_the_same(wire: str, name: str, data: bytes) -> None:
    whole = (await replay(wire, data)).facts()  # type: ignore[arg-type]
    bytewise = [data[i : i + 1] for i in range(len(data))]
    assert (await replay(wire, bytewise)).facts() == whole  # type: ignore[arg-type]
    chance = random.Random(name)
    for _ in range(SPLITS):
        cuts = sorted(chance.sample(range(len(data) + 1), min(chance.randint(1, 40), len(data))))
        chunks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert (await replay(wire, chunks)).facts() == whole, chunks  # type: ignore[arg-type]
