"""Mutated and oddly cut streams of upstreams, through an engine and its store, read by the openai SDK.

`scripts/gateway_streams [COUNT] [SEED]`. Whatever the upstream sends, the SDK's accumulator takes every event, and what
is streamed is what the response ends with and what is stored.
"""

import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import omit
from openai._models import construct_type_unchecked
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent

from ferrule.model.sse import SseDecoder
from ferrule.model.wire import WireModel
from ferrule.protocol.specs import Wire
from ferrule.responses.engine import ResponseEngine
from ferrule.responses.upstream import Upstream
from ferrule.store import Store
from tests.model.mutations import chunked, framed, noise, shuffled
from tests.model.streams import ALL
from tests.model.support import Replay, wire_model
from tests.responses.serving import Json, asked

PROMPT_S = 30.0
"""Seconds in which any response ends: a hang is a fault."""
NAMES = ("exec_command", "shell", "read_file", "get_weather", "write_file")
TOOLS: list[Json] = [
    *({"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}} for name in NAMES),
    {"type": "custom", "name": "apply_patch"},
]
KINDS = ("same", "fields", "noise", "twice", "lost", "swapped", "cut", "crossed")
"""How a stream is changed: not; its fields; events that say nothing; one event twice, or missing, or two that change
places; an early end; another stream that goes on in its middle."""


class Upstreams:
    """A model that is another one for each response."""

    def __init__(self) -> None:
        self.now: WireModel | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


def mutated(wire: Wire, data: bytes, chance: random.Random) -> tuple[str, Sequence[bytes]]:
    """Change a stream and cut it into pieces. Returns how it was changed, and the pieces."""
    events: list[Any] = payloads(data)
    kind = chance.choice(KINDS)
    place, other = (chance.randrange(len(events)) for _ in range(2))
    match kind:
        case "fields":
            events = [shuffled(chance, event) for event in events]
        case "noise":
            for _ in range(chance.randrange(1, 6)):
                events.insert(chance.randrange(len(events)), noise(chance, wire))
        case "twice":
            events.insert(other, events[place])
        case "lost":
            del events[place]
        case "swapped":
            events[place], events[other] = events[other], events[place]
        case "cut":
            del events[place + 1 :]
        case "crossed":
            events[place:] = payloads(chance.choice([each for at, _, each in ALL if at == wire]))
    data = framed(chance, events)
    return kind, chunked(chance, data) if len(data) > 1 else [data]


def payloads(data: bytes) -> list[Any]:
    """The payloads of a stream; what is no JSON stays text."""
    decoder = SseDecoder()
    return [_read(payload) for payload in (*decoder.feed(data), *decoder.flush())] or ["[DONE]"]


def _read(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return payload.decode(errors="replace")


def faults_of(events: Sequence[Json], final: Json, stored: Json) -> list[str]:
    """What a client finds wrong."""
    found: list[str] = []
    state: ResponseStreamState[None] = ResponseStreamState(input_tools=omit, text_format=omit)
    try:
        for event in events:
            state.handle_event(construct_type_unchecked(type_=ResponseStreamEvent, value=event))  # type: ignore[arg-type]
    except (RuntimeError, AssertionError, LookupError, AttributeError) as error:
        found.append(f"the SDK: {error!r}")
    if [event["sequence_number"] for event in events] != list(range(len(events))):
        found.append("the numbers have gaps")
    ends = [event["type"] for event in events if event["type"].split(".")[-1] in ("completed", "failed", "incomplete")]
    ends = [kind for kind in ends if kind.count(".") == 1]
    if len(ends) != 1 or events[-1]["type"] != ends[0]:
        found.append(f"the ends are {ends}")
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    places = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
    done = [item for _, item in sorted(zip(places, done, strict=True), key=lambda pair: pair[0])]
    if not (done == final["output"] == stored["output"]):
        found.append(f"streamed {_ids(done)}, final {_ids(final['output'])}, stored {_ids(stored['output'])}")
    return found + _unlike_pieces(events, done)


def _ids(items: Sequence[Json]) -> list[str]:
    return [item["id"] for item in items]


def _unlike_pieces(events: Sequence[Json], items: Sequence[Json]) -> list[str]:
    """Items that are not what their pieces said."""
    said: Counter[str] = Counter()
    pieces: dict[str, str] = {}
    for event in events:
        if event["type"].endswith(".delta") and "item_id" in event:
            pieces[event["item_id"]] = pieces.get(event["item_id"], "") + event["delta"]
            said[event["item_id"]] += 1
    whole = {item["id"]: _text(item) for item in items}
    return [
        f"{key}: {text!r} in pieces is {whole.get(key)!r}" for key, text in pieces.items() if whole.get(key) != text
    ]


def _text(item: Json) -> str:
    parts = [*item.get("summary", []), *(item.get("content") or [])]
    texts = [str(part.get("text", part.get("refusal", ""))) for part in parts]
    return "".join(texts) + str(item.get("arguments", item.get("input", "")))


@asynccontextmanager
async def engine_in(folder: Path) -> AsyncIterator[tuple[ResponseEngine, Upstreams]]:
    """An engine with a store of its own."""
    upstreams = Upstreams()

    async def none() -> tuple[str, ...]:
        return ()

    async with await Store.open(folder / "state.sqlite") as store:
        engine = ResponseEngine(Upstream(upstreams, none), store)
        yield engine, upstreams
        await engine.close()


async def check(engine: ResponseEngine, upstreams: Upstreams, number: int, seed: int) -> tuple[str, list[str]]:
    """One stream. Returns how its response ended, and what is wrong with it."""
    chance = random.Random(f"{seed}/{number}")
    wire, name, data = ALL[number % len(ALL)]
    kind, chunks = mutated(wire, data, chance)
    upstreams.now = wire_model(wire, Replay(chunks))
    ledger = await engine.open(asked(tools=TOOLS, model="gpt-5.5"))
    async with asyncio.timeout(PROMPT_S):
        events = [json.loads(event) async for _, event in ledger.read()]
    stored = json.loads(json.dumps(await engine.retrieve(ledger.id)))
    wrong = faults_of(events, ledger.object, stored)
    return ledger.object["status"], [f"{wire} {name}, {kind}, number {number}: {each}" for each in wrong]


async def run(count: int, seed: int, folder: Path, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Check many streams. Returns how the responses ended, and all that is wrong."""
    ends: Counter[str] = Counter()
    found: list[str] = []
    async with engine_in(folder) as (engine, upstreams):
        for number in range(first, first + count):
            end, wrong = await check(engine, upstreams, number, seed)
            ends[end] += 1
            found += wrong
    return ends, found


def main(arguments: Sequence[str]) -> int:
    count, seed = (*map(int, arguments), *(50_000, random.randrange(10**6))[len(arguments) :])[:2]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ends, found = asyncio.run(run(count, seed, Path(folder)))
    took = time.monotonic() - begun
    print(f"{count} streams, seed {seed}, in {took:.0f} s: {dict(ends)}, {len(found)} faults", *found[:20], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
