"""Kill `ferrule serve` while it answers and reads files, and look at what the next one knows.

python -m tests.gateway.kills [KILLS] [SEED]
"""

import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2

from ferrule.conformance.failures import Failed
from ferrule.conformance.server import TERMINAL, Json, Server
from ferrule.testing import ScriptedModel
from tests.gateway.served import new_place, serving

CLIENTS = 4
"""Clients at once: they ask in turn for whole responses, streams, and both in the background."""
LONGEST = 0.5
"""Seconds after the first answer in which the kill comes."""


FILES = 12
"""Files of a vector store that are read meanwhile."""
READ_S = 60.0
"""Until the next server has read the rest."""


class Told:
    """What clients were told before the kill."""

    def __init__(self) -> None:
        self.completed: dict[str, Json] = {}
        self.begun: set[str] = set()
        self.events: dict[str, dict[int, Json]] = {}
        self.first = threading.Event()

    def ask(self, server: Server, number: int) -> None:
        """Ask until the server is gone."""
        try:
            while True:
                self._once(server, streamed=number % 2 == 0, background=number % 4 < 2)
        except (httpx2.HTTPError, Failed):
            return

    def _once(self, server: Server, *, streamed: bool, background: bool) -> None:
        if not streamed:
            self._take(server.create(background=background))
            return
        with server.events("POST", "/responses", server.body(stream=True, background=background)) as events:
            for event in events:
                if event is not None and "response" in event.data:
                    self._take(event.data["response"])
                    response_id = event.data["response"]["id"]
                if event is not None and background:
                    self.events.setdefault(response_id, {})[event.data["sequence_number"]] = event.data

    def _take(self, response: Json) -> None:
        self.begun.add(response["id"])
        if response["status"] == "completed":
            self.completed[response["id"]] = response
        self.first.set()


def kill(folder: Path, upstream: str, chance: random.Random) -> list[str]:
    """Start a server, kill it while it answers, start it again. Returns what is wrong."""
    told, place = Told(), new_place(folder)
    with serving(place, upstream) as served:
        server = Server(served.url)
        store = _filled(server)
        clients = [threading.Thread(target=told.ask, args=(server, number)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        assert told.first.wait(30)
        time.sleep(chance.uniform(0, LONGEST))
        served.process.send_signal(signal.SIGKILL)
        for client in clients:
            client.join()
        server.close()
    with serving(place, upstream) as again:
        server = Server(again.url)
        found = [fault for response_id in sorted(told.begun) for fault in _faults(server, told, response_id)]
        found += _faults_of_store(server, store)
        server.close()
    return found


def _filled(server: Server) -> str:
    """Add files to a new vector store. Returns its id."""
    names = [f"plum{number}.txt" for number in range(FILES)]
    ids = [server.post_file("/files", name.encode(), name=name, purpose="assistants")["id"] for name in names]
    store: str = server.post("/vector_stores", {"file_ids": ids})["id"]
    return store


def _faults_of_store(server: Server, store: str) -> list[str]:
    """Say which files are not read, or are in the index twice."""
    path, ends = f"/vector_stores/{store}", time.monotonic() + READ_S
    while server.get(path)["status"] == "in_progress" and time.monotonic() < ends:
        time.sleep(0.05)
    counts = server.get(path)["file_counts"]
    ids = [file["id"] for file in server.get(f"{path}/files", limit=100)["data"]]
    texts = [len(server.get(f"{path}/files/{file_id}/content")["data"]) for file_id in ids]
    words = [f"plum{number}" for number in range(FILES)]
    hits = server.post(f"{path}/search", {"query": words, "max_num_results": 50})["data"]
    return [
        *([] if counts["completed"] == FILES else [f"{store} has {counts}"]),
        *([] if texts == [1] * FILES else [f"{store} has files in so many chunks: {texts}"]),
        *([] if sorted(hit["file_id"] for hit in hits) == sorted(ids) else [f"{store} finds {len(hits)} chunks"]),
    ]


def _faults(server: Server, told: Told, response_id: str) -> list[str]:
    stored = server.get(f"/responses/{response_id}")
    if stored["status"] not in TERMINAL:
        return [f"{response_id} has no end: {stored['status']}"]
    if response_id in told.completed and stored != told.completed[response_id]:
        return [f"{response_id} was told completed and is {stored['status']}"]
    seen = told.events.get(response_id)
    if seen is None:
        return []
    kept = {event.data["sequence_number"]: event.data for event in server.follow(response_id).events}
    ends = max(kept)
    return [
        f"{response_id}: event {at} is another" for at in kept if at != ends and at in seen and seen[at] != kept[at]
    ]


def rounds(folder: Path, kills: int, seed: str) -> list[str]:
    """Kill again and again, always the same state. Returns all that is wrong."""
    chance = random.Random(seed)
    with ScriptedModel(lambda request: "A few words to be told in pieces.") as model:
        return [fault for _ in range(kills) for fault in kill(folder, model.base_url, chance)]


def main(arguments: Sequence[str]) -> int:
    kills, seed = int(arguments[0]) if arguments else 200, "".join(arguments[1:2]) or str(random.random())
    with tempfile.TemporaryDirectory() as folder:
        found = rounds(Path(folder), kills, seed)
    print(f"{kills} kills, seed {seed}: {len(found)} faults", *found[:20], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
