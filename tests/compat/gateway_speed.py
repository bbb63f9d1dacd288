"""The time that servers of the Responses API add, beside asking their upstream directly.

The upstream sends recorded answers; all that is compared alternates in one run. `scripts/compat_speed` runs this.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import httpx2
import msgspec

import ferrule
from ferrule.testing import ScriptedModel, step
from ferrule.testing.request import Wire
from tests.compat.servers import KEY, SERVERS, NotStarted, Running, Server, installed, running, version

SHORT, LONG = 8, 2_000
"""Deltas of an answer."""
THINKING_S = 0.05
"""Seconds before the upstream's first byte where the first text is measured: a quick model's."""
ROUNDS = {"short": 60, "slow": 20, "long": 8}
"""How often each answer is asked for: `short`, `slow` (short after a while), `long`."""
PATHS: Mapping[Wire, str] = {"chat": "/chat/completions", "responses": "/responses"}
MARKS: Mapping[Wire, bytes] = {"chat": b'"content":"word', "responses": b"output_text.delta"}
"""What the first piece of text has in it."""
HI = [{"role": "user", "content": "hi"}]
BESIDE = ("agentic-api", "LiteLLM")
OURS = Server(
    name="Ferrule",
    package="ferrule",
    wires=("chat", "responses"),
    command=lambda place: [
        *("ferrule", "serve", "--bind", f"127.0.0.1:{place.port}"),
        *("--base-url", f"{place.upstream}/v1", "--wire", place.wire),
    ],
    env=lambda place: {"OPENAI_API_KEY": KEY},
)
Recorded = dict[tuple[bool, bool, bool], list[bytes]]
"""The pieces of each answer, by: is it for `/responses`, is it streamed, is it long."""


def recorded() -> Recorded:
    """Record what a scripted model answers on both wires."""
    answers: Recorded = {}
    for is_long, count in ((False, SHORT), (True, LONG)):
        with ScriptedModel(lambda _, n=count: step("word " * n, delta_chars=5), strict=False) as model:
            for wire, path in PATHS.items():
                for stream in (False, True):
                    body = {
                        "model": "m",
                        "stream": stream,
                        "input": "hi",
                        "messages": HI,
                    }
                    request = urllib.request.Request(model.base_url + path, json.dumps(body).encode())
                    with urllib.request.urlopen(request) as answer:
                        said = answer.read()
                    pieces = [part + b"\n\n" for part in said.split(b"\n\n") if part] if stream else [said]
                    answers[wire == "responses", stream, is_long] = pieces
    return answers


class Upstream:
    """Sends the recorded answers, each event in a chunk of its own."""

    def __init__(self, answers: Recorded) -> None:
        self._answers = {
            key: [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces] for key, pieces in answers.items()
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.split(b"content-length:")[1].split(b"\r\n")[0] if b"content-length:" in head else b"0"
                await self._answer(head, await reader.readexactly(int(length)), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(body) if body else {}
        stream = bool(asked.get("stream"))
        if asked.get("model") == "slow":
            await asyncio.sleep(THINKING_S)
        kind = b"text/event-stream" if stream else b"application/json"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % kind)
        for chunk in self._answers[b"/responses" in head.split(b"\r\n")[0], stream, asked.get("model") == "long"]:
            writer.write(chunk)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _serve(ready: Connection, answers: Recorded) -> None:
    async def run() -> None:
        server = await asyncio.start_server(Upstream(answers).serve, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def upstream() -> Iterator[str]:
    """Run the upstream in a process of its own; yield its address."""
    receiver, sender = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_serve, args=(sender, recorded()), daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{receiver.recv()}"
    finally:
        server.terminate()


class Party:
    """Somebody who is asked: the upstream itself, or a server before it. `taken`: seconds of each answer."""

    def __init__(self, name: str, url: str, wire: Wire, pid: int | None = None) -> None:
        self.name = name
        self._url = url + PATHS[wire]
        self._wire: Wire = wire
        self._pid = pid
        self.taken: dict[str, list[float]] = {kind: [] for kind in ROUNDS}
        self.cpu: dict[str, float] = {}

    async def ask(self, http: httpx2.AsyncClient, kind: str) -> None:
        """Ask once, and note the seconds to the first text for `slow`, else to the end."""
        body = {"input": "hi", "store": False} if self._wire == "responses" else {"messages": HI}
        began, first = time.perf_counter(), None
        async with http.stream("POST", self._url, json=body | {"model": kind, "stream": True}) as answer:
            async for piece in answer.aiter_raw():
                if first is None and MARKS[self._wire] in piece.replace(b'": "', b'":"'):
                    first = time.perf_counter() - began
        if first is None:
            raise NotStarted(f"{self.name} answered without a text: {answer.status_code}")
        self.taken[kind].append(first if kind == "slow" else time.perf_counter() - began)

    def spent(self) -> float:
        """Return the CPU seconds that the server's processes have used."""
        return 0.0 if self._pid is None else sum(_cpu(self._pid))

    def median(self, kind: str) -> float:
        """Return the median; the first answer does not count."""
        return statistics.median(self.taken[kind][1:])


def _cpu(group: int) -> Iterator[float]:
    """Yield the CPU seconds of each process of a group."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            yield (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(parties: list[Party]) -> None:
    """Ask all parties in turns."""
    async with httpx2.AsyncClient(timeout=60, trust_env=False, headers={"authorization": f"Bearer {KEY}"}) as http:
        for kind, rounds in ROUNDS.items():
            before = [party.spent() for party in parties]
            for _ in range(rounds + 1):
                for party in parties:
                    await party.ask(http, kind)
            for party, spent in zip(parties, before, strict=True):
                party.cpu[kind] = (party.spent() - spent) / (rounds + 1)


class Row(msgspec.Struct, frozen=True):
    """A line of the table: ratios to the upstream alone, and added costs."""

    name: str
    short: float
    first: float
    delta_us: float
    cpu_ms: float
    cpu_delta_us: float

    def __str__(self) -> str:
        figures = f"{self.short:.1f}x | {self.first:.2f}x | {self.delta_us:.0f} us"
        return f"| {self.name} | {figures} | {self.cpu_ms:.1f} ms | {self.cpu_delta_us:.0f} us |"


HEAD = (
    "| server | a short streamed response | first text | a delta more | CPU of a short response | CPU of a delta |\n"
    "|---|---|---|---|---|---|"
)


def row(party: Party, floor: Party) -> Row:
    """Compare a server with its upstream."""
    return Row(
        party.name,
        party.median("short") / floor.median("short"),
        party.median("slow") / floor.median("slow"),
        (party.median("long") - floor.median("long")) / LONG * 1e6,
        party.cpu["short"] * 1e3,
        party.cpu["long"] / LONG * 1e6,
    )


def over(wire: Wire, installs: Path, folder: Path) -> Iterator[Row | str]:
    """Yield a row for each server that speaks a wire, and a line for one that does not start."""
    with ExitStack() as stack:
        root = stack.enter_context(upstream())
        parties = [Party("the upstream alone", f"{root}/v1", wire)]

        def add(server: Server, bin_folder: Path, number: str) -> None:
            home = folder / f"{server.name}-{wire}"
            started: Running = stack.enter_context(running(server, bin_folder, root, wire, home))
            name = f"{server.name} {number}, upstream {wire}"
            parties.append(Party(name, started.url, "responses", started.pid))

        add(OURS, Path(sys.executable).parent, ferrule.__version__)
        for server in SERVERS:
            if server.name in BESIDE and wire in server.wires:
                try:
                    bin_folder = installed(server, installs)
                    add(server, bin_folder, version(server, bin_folder))
                except NotStarted as reason:
                    yield f"left out: {server.name}: {reason}"
        asyncio.run(measure(parties))
        yield from (row(party, parties[0]) for party in parties[1:])


def main() -> int:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("installs", type=Path, help="where servers are installed")
    installs = options.parse_args().installs.resolve()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ferrule-speed-") as folder:
        found = [line for wire in PATHS for line in over(wire, installs, Path(folder))]
    print(HEAD, *(line for line in found if isinstance(line, Row)), sep="\n")
    print("", *(line for line in found if isinstance(line, str)), sep="\n")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
