"""A sample of the streams that we and Anthropic's SDK read alike; `scripts/fuzz` makes 20,000."""

from tests.model.agreement import check


async def test_we_read_what_the_sdk_reads_or_ask_again() -> None:
    how = {await check(seed) for seed in range(200)}
    assert how == {"the same", "asked again", "told to the model"}
