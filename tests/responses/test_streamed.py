"""The openai SDK takes every event of a response, whatever its upstream sends: some of what `scripts/gateway_streams`
does."""

from pathlib import Path

import pytest

from tests.responses.streamed import run

STREAMS = 120


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
async def test_mutated_streams_give_the_sdk_one_identity_an_item(tmp_path: Path) -> None:
    ends, found = await run(STREAMS, 1, tmp_path)
    assert found == []
    assert min(ends["completed"], ends["failed"], ends["incomplete"]) > 0


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
@pytest.mark.parametrize("number", [503, 669])
async def test_an_id_that_an_upstream_uses_twice_mixes_up_no_calls(tmp_path: Path, number: int) -> None:
    _, found = await run(1, 1, tmp_path, number)
    assert found == []
