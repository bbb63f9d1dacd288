"""Compaction of a long history: our share, with the request for the summary, against encoding that history once."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator

from benchmarks.bench_turn import LONG, history
from benchmarks.measure import Row, row
from ferrule.model.profiles import ProviderProfile
from ferrule.model.recipient import Recipient
from ferrule.model.responses.request import ResponsesBody
from ferrule.model.stream import Completed, Created, ItemDone, ModelRequest, ResponseEvent
from ferrule.protocol.content import OutputText
from ferrule.protocol.items import Message, ResponseItem, make_item
from ferrule.protocol.settings import ModelSettings, Settings
from ferrule.session.opening import open_session

RUNS = 5
WINDOW = 32_000


class Summary:
    """A model that answers at once."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ResponseEvent, None]:
        yield Created("r")
        yield ItemDone(make_item(Message(role="assistant", content=(OutputText("All is done."),))))
        yield Completed("r", None)

    async def aclose(self) -> None:
        pass


async def compaction(items: list[ResponseItem], window: int | None) -> float:
    """Seconds of CPU time of one compaction by a model in this process: no request is encoded."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            cwd=folder, home=folder, model=ModelSettings(model="m", context_window=window), ephemeral=True
        )
        async with await open_session(settings, tools=["update_plan"], model=Summary()) as session:
            session.history.extend(items)
            started = time.process_time()
            done = await session.compact()
            spent = time.process_time() - started
            assert done is not None and session.history.count < 100
            return spent


def encoding(items: list[ResponseItem]) -> float:
    """Seconds of CPU time of encoding all items once, as the first request of a resumed session does."""
    body = ResponsesBody(Recipient(ProviderProfile(name="p"), "p", "f", "responses"))
    request = ModelRequest(model="m", instructions="", items=tuple(items), settings=ModelSettings(), session_id="")
    started = time.process_time()
    body.compaction(request)
    return time.process_time() - started


def compactions() -> list[Row]:
    """A history that fits a request for a summary, and one that has to be cut for it."""
    items = history(LONG)
    once = statistics.median(encoding(items) for _ in range(RUNS))
    rows = []
    for how, window in (("whole", None), ("cut to a window", WINDOW)):
        spent = statistics.median(asyncio.run(compaction(items, window)) for _ in range(RUNS))
        name = f"compaction of {LONG:,} items with its request, {how}, floor encoding them once"
        rows.append(row(name, spent + once, once, 3, "ms", 1e3))
    return rows


def main() -> None:
    """Print one line a row."""
    for line in compactions():
        print(line, flush=True)


if __name__ == "__main__":
    main()
