"""Kill a process that writes a store, and look at what it left.

python -m tests.store.kills [KILLS] [SEED]
"""

import asyncio
import multiprocessing
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path

from ferrule.store import Conversation, FileRecord, Paging, Store
from tests.store.places import FILE, a_response, finish, item, opened

WRITERS = 4
"""Tasks that write at once, each a chain of its own in one conversation."""

STEPS, LONGEST = 25, 0.01
"""A writer is killed after so many steps and so many seconds at most: steps, so that a busy machine gets as far."""

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["ferrule.store.store", "tests.store.places"])


async def content(number: int) -> AsyncIterator[bytes]:
    yield b"%d" % number * 1000


def output(number: int) -> list[bytes]:
    """What a response puts out: several rows that belong together."""
    return [item(f"out_{number}_{part}", "x" * 500) for part in range(3)]


async def write(path: Path, first: int, told: Connection) -> None:
    """Write responses until killed, and tell of each step that was acknowledged."""

    def tell(step: str, number: int) -> None:
        told.send((step, number))

    async def writer(number: int) -> None:
        parent = None
        while True:
            record = a_response(number, parent=parent, conversation=f"conv_{first}", background=True)
            await store.create_response(record)
            tell("created", number)
            await store.append_events(record.id, 0, [b"a", b"b"])
            await finish(store, number, output=output(number))
            tell("finished", number)
            file = FileRecord(id=f"file_{number}", owner="us", created_at=number, filename="f", purpose="p")
            await store.create_file(file, content(number))
            tell("kept", number)
            parent, number = record.id, number + WRITERS

    async with await Store.open(path) as store:
        await store.create_conversation(Conversation(id=f"conv_{first}", owner="us", created_at=1))
        tell("opened", first)
        await asyncio.gather(*(writer(first + which) for which in range(WRITERS)))


def run(path: Path, first: int, told: Connection) -> None:
    """The process."""
    asyncio.run(write(path, first, told))


def kill(path: Path, first: int, rng: random.Random) -> dict[int, str]:
    """Start a writer and kill it. Returns the last step of each response that it told of."""
    heard, told = _processes.Pipe(duplex=False)
    process = _processes.Process(target=run, args=(path, first, told))
    process.start()
    told.close()
    steps: dict[int, str] = {}
    listen(heard, steps, once=True)
    for _ in range(rng.randrange(STEPS)):
        listen(heard, steps, once=True)
    time.sleep(rng.uniform(0, LONGEST))
    process.kill()
    listen(heard, steps, once=False)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    process.close()
    heard.close()
    steps.pop(first if steps.get(first) == "opened" else -1, None)
    return steps


def listen(heard: Connection, steps: dict[int, str], *, once: bool) -> None:
    """Note what a writer tells: one step, or all to its end."""
    try:
        while True:
            step, number = heard.recv()
            steps[number] = step
            if once:
                return
    except EOFError:
        return


async def look(folder: Path, first: int, steps: dict[int, str]) -> None:
    """Everything acknowledged is there, and nothing is half there."""
    async with opened(folder) as store:
        entries = await store.conversation_entries("us", f"conv_{first}")
        assert entries is not None
        finished = []
        number = first
        for number in range(first, max([first, *steps]) + 2 * WRITERS):
            finished += await look_at(store, number, steps.get(number))
        expected = {(item(f"in_{number}"), *output(number)) for number in finished}
        assert {entry.items for entry in entries} == expected
        assert len(entries) == len(finished)
        page = await store.files("us", Paging(limit=10_000))
        assert len(list(Path(f"{folder / FILE}.files").iterdir())) == len(page.data)
        for record in await store.unfinished(999):
            assert await store.finish_response("us", record.id, status="failed", body=b"", output=[], transcript=b"")


async def look_at(store: Store, number: int, step: str | None) -> list[int]:
    """One response; its number if it has ended."""
    record = await store.response("us", f"resp_{number}")
    if record is None:
        assert step is None
        return []
    assert record.input == (item(f"in_{number}"),)
    if record.status == "in_progress":
        assert step in (None, "created")
        assert (record.output, record.transcript, record.body) == ((), b"", b'{"n":%d}' % number)
        return []
    assert list(record.output) == output(number)
    assert (record.transcript, record.body) == (b"t%d" % number, b'{"done":%d}' % number)
    assert await store.events("us", record.id) == ((0, b"a"), (1, b"b"))
    assert (await store.chain("us", record.id))[-1] == record
    found = await store.content("us", f"file_{number}")
    assert found is not None or step != "kept"
    if found is not None:
        assert b"".join([block async for block in found]) == b"%d" % number * 1000
    return [number]


async def rounds(folder: Path, kills: int, seed: str) -> int:
    """Kill so many writers of one store. Returns how many responses had ended."""
    rng = random.Random(seed)
    ended = 0
    for number in range(kills):
        first = number * 1_000_000
        steps = await asyncio.to_thread(kill, folder / FILE, first, rng)
        await look(folder, first, steps)
        ended += sum(step != "created" for step in steps.values())
    return ended


def main() -> None:
    """The command."""
    kills, seed = (*sys.argv[1:], "200", "seed")[:2] if len(sys.argv) < 3 else sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="ferrule-kills-") as folder:
        ended = asyncio.run(rounds(Path(folder), int(kills), seed))
        print(f"{kills} kills, {ended} responses ended, none lost or half written")


if __name__ == "__main__":
    main()
