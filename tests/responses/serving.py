"""An engine over a scripted model and a real store, for tests."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from ferrule.hosted.tool import HostedTool
from ferrule.model.profiles import load_profiles
from ferrule.protocol.settings import ProviderSettings
from ferrule.protocol.specs import Wire
from ferrule.responses.engine import ResponseEngine
from ferrule.responses.history import ResponseCache
from ferrule.responses.ledger import Ledger
from ferrule.responses.request import ResponseRequest, read_request
from ferrule.responses.upstream import open_upstream
from ferrule.store import Store
from ferrule.testing import ScriptedModel

Json = dict[str, Any]
WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def asked(**body: Any) -> ResponseRequest:
    """A request with this body."""
    return read_request(json.dumps({"model": "m", "input": "hi"} | body).encode())


class Served:
    """An engine, its store and the model behind it."""

    def __init__(self, engine: ResponseEngine, store: Store, model: ScriptedModel) -> None:
        self.engine = engine
        self.store = store
        self.model = model

    async def ask(self, *, owner: str = "", cache: ResponseCache | None = None, **body: Any) -> Ledger:
        """Run a response to its end."""
        ledger = await self.engine.open(asked(**body), owner, cache=cache)
        await ledger.finished()
        return ledger


@asynccontextmanager
async def served(
    folder: Path,
    model: ScriptedModel,
    wire: Wire = "chat",
    *,
    knows: tuple[str, ...] = (),
    hosted: tuple[HostedTool, ...] = (),
    store: Store | None = None,
) -> AsyncIterator[Served]:
    """An engine whose state lies in `folder`, over a scripted model."""
    provider = ProviderSettings(name="up", base_url=model.base_url, wire_api=wire, request_max_retries=0)
    upstream = open_upstream(provider, load_profiles(), default_model="default-model")
    store = store or await Store.open(folder / "gateway.db")
    knowing = msgspec.structs.replace(upstream, knows=lambda kind: kind in knows)
    engine = ResponseEngine(knowing, store, hosted=hosted)
    try:
        await engine.recover()
        yield Served(engine, store, model)
    finally:
        await engine.close()
        await upstream.model.aclose()
        await store.aclose()


async def events_of(ledger: Ledger, after: int = -1) -> list[Json]:
    """The events of a response, to its end."""
    return [json.loads(event) async for _, event in ledger.read(after)]


def kinds(events: list[Json]) -> list[str]:
    """The types of events, without their common beginning."""
    return [event["type"].removeprefix("response.") for event in events]


def text_in(item: Json) -> str:
    return "".join(part["text"] for part in item["content"])


def check_stream(events: list[Json], final: Json) -> None:
    """Numbers are dense, and each item has one identity in its events, in the last object and in the store."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    added = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.added"}
    done = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
    assert {index: (item["id"], item["type"], item.get("call_id")) for index, item in added.items()} == {
        index: (item["id"], item["type"], item.get("call_id")) for index, item in done.items()
    }
    assert [item for _, item in sorted(done.items())] == final["output"]
    assert {event["item_id"] for event in events if "item_id" in event} <= {item["id"] for item in added.values()}
