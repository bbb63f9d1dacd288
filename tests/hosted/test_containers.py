"""What a client's container is made with."""

from pathlib import Path

from ferrule.containers import LocalHost
from ferrule.hosted.containers import ClientContainers
from ferrule.hosted.network import Network
from ferrule.hosted.wanted import Wanted, wanted_of
from ferrule.store import Store


async def test_memory_and_idle_time_are_those_that_were_asked_for(tmp_path: Path) -> None:
    wishes = (
        (wanted_of({}), 1 << 30, 1200),
        (wanted_of({"memory_limit": "4g"}), 4 << 30, 1200),
        (Wanted(minutes=5), 1 << 30, 300),
    )
    async with await Store.open(tmp_path / "gateway.db") as store, LocalHost.open(tmp_path / "containers") as host:
        containers = ClientContainers(host, store, idle_seconds=1200, network=Network())
        for wanted, memory, idle in wishes:
            made = (await containers.create("me", wanted)).box.settings
            assert (made.memory_bytes, made.idle_seconds) == (memory, idle)
        await containers.aclose()
