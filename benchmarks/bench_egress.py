"""The way out: a download through a tunnel, and with a secret, beside a direct one; and how late the pieces of a stream
are that the same process sends while a hundred tunnels are busy. The rows of lateness tell percentiles, too.

All over loopback by TLS. The server and the client are processes of their own, as in use; the client is curl.
"""

import asyncio
import multiprocessing.connection
import os
import shutil
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.measure import Row, bounded, medians, row
from ferrule.egress.authority import Authority
from ferrule.egress.egress import Egress
from ferrule.egress.guard import Guard
from ferrule.egress.names import DomainNames
from ferrule.egress.secrets import Secret
from ferrule.sandbox.way_out import Listeners

SIZE, ROUNDS = 200 << 20, 9
AIMS = 1 / 0.7, 1 / 0.3
TUNNELS, PIECES, EVERY_S, LATE_ROUNDS = 100, 150, 0.02, 3
RATE, SETTLE_S = "2M", 3.0
HOST = "bench.example"


class Beyond(msgspec.Struct, frozen=True):
    """The server, and what to trust."""

    port: int
    ca_file: str


class Late(msgspec.Struct, frozen=True):
    """How late the pieces of a stream come, in milliseconds; MB a second that were moved meanwhile; CPU seconds in a
    second of this process, and of its event loop alone."""

    median: float
    p95: float
    p99: float
    mb: float = 0
    cpu: float = 0
    loop_cpu: float = 0

    def __str__(self) -> str:
        at = f"{self.mb:.0f} MB/s, " if self.mb else ""
        return f"{at}p95 {self.p95:.2f} ms, p99 {self.p99:.2f} ms"


def main() -> None:
    """Print one line a row."""
    if shutil.which("curl") is None:
        print("not run: curl is missing")
        return
    with tempfile.TemporaryDirectory() as folder:
        for line in asyncio.run(compare(Path(folder))):
            print(line, flush=True)


async def compare(folder: Path) -> list[Row]:
    """The rows."""
    authority = Authority()
    ca_file = folder / "ca.pem"
    ca_file.write_bytes(authority.pem)
    parent, child = multiprocessing.Pipe()
    server = multiprocessing.get_context("fork").Process(target=serve, args=(authority, child), daemon=True)
    server.start()
    beyond = Beyond(parent.recv(), str(ca_file))
    try:
        direct, *ways = await downloads(beyond, folder)
        alone, beside_direct, beside_tunnels = await lateness(beyond)
    finally:
        server.terminate()
        server.join()
    return [
        *(
            row(f"a download of {SIZE >> 20} MB {name}, beside a direct one", taken, direct, aim, "ms", 1e3)
            for name, taken, aim in zip(("through a tunnel", "from the domain of a secret"), ways, AIMS, strict=True)
        ),
        row(
            f"a stream beside {TUNNELS} tunnels ({beside_tunnels}), beside itself alone ({alone})",
            beside_tunnels.median,
            alone.median,
            2,
            "ms",
            1,
        ),
        row(
            f"... beside as many direct downloads ({beside_direct}): the machine alone",
            beside_direct.median,
            alone.median,
            None,
            "ms",
            1,
        ),
        bounded(f"... the server's CPU in a second beside {TUNNELS} tunnels", beside_tunnels.cpu, None, "ms", 1e3),
        bounded("... of that in its event loop, with the stream", beside_tunnels.loop_cpu, None, "ms", 1e3),
    ]


def serve(authority: Authority, told: multiprocessing.connection.Connection) -> None:
    """Answer every request with the same bytes, in a process of its own."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % SIZE)
            block = os.urandom(1 << 20)
            for _ in range(SIZE >> 20):
                writer.write(block)
                await writer.drain()
                await asyncio.sleep(0)  # a drain that need not wait does not hear that the client has gone
                if writer.is_closing() or reader.at_eof():
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def run() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=authority.context(HOST)) as server:
            told.send(server.sockets[0].getsockname()[1])
            await server.serve_forever()

    asyncio.run(run())


def way_out(beyond: Beyond, secrets: Sequence[Secret]) -> tuple[Egress, Listeners]:
    """Open a way out, and the sockets that lead to it."""
    guard = Guard(DomainNames.read([HOST]), hosts={f"{HOST}:443": f"127.0.0.1:{beyond.port}"})
    way = Egress(guard, secrets, ca_file=beyond.ca_file)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    listeners = Listeners(*sockets)
    way.serve(listeners)
    return way, listeners


async def downloads(beyond: Beyond, folder: Path) -> list[float]:
    """Return the seconds that a download takes: directly, by a tunnel, and with a secret."""
    direct = ["--resolve", f"{HOST}:{beyond.port}:127.0.0.1", "--cacert", beyond.ca_file]
    plain, plain_at = way_out(beyond, [])
    secret, secret_at = way_out(beyond, [Secret(HOST, "KEY", "k" * 40)])
    bundle = folder / "bundle.pem"
    bundle.write_bytes(dict(secret.files)["/etc/ssl/certs/ca-certificates.crt"])
    proxies = [f"http://127.0.0.1:{at.proxy.getsockname()[1]}" for at in (plain_at, secret_at)]
    ways = [
        [*direct, f"https://{HOST}:{beyond.port}/"],
        *(["-x", proxy, "--cacert", str(bundle), f"https://{HOST}/"] for proxy in proxies),
    ]
    async with plain, secret:
        taken = await medians([partial(curl, way) for way in ways], ROUNDS)
        plain.stop(plain_at)
        secret.stop(secret_at)
    return taken


async def curl(words: Sequence[str]) -> float:
    """Download, and return the seconds that curl says it took."""
    command = ["curl", "-sSf", "-o", "/dev/null", "-w", "%{time_total}", *words]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return float(out)


async def lateness(beyond: Beyond) -> list[Late]:
    """Measure a stream alone, beside direct downloads, which is what the machine costs, and beside tunnels."""
    way, listeners = way_out(beyond, [])
    proxy = f"http://127.0.0.1:{listeners.proxy.getsockname()[1]}"
    direct = ["--resolve", f"{HOST}:{beyond.port}:127.0.0.1", f"https://{HOST}:{beyond.port}/"]
    async with way:
        measured = [
            stream_lateness,
            partial(beside, direct, beyond),
            partial(beside, ["-x", proxy, f"https://{HOST}/"], beyond),
        ]
        taken: list[list[Late]] = [[] for _ in measured]
        for _ in range(LATE_ROUNDS):
            for measure, kept in zip(measured, taken, strict=True):
                kept.append(await measure())
        way.stop(listeners)
    return [typical(kept) for kept in taken]


def typical(rounds: Sequence[Late]) -> Late:
    """Return the median of each figure."""
    return Late(*(statistics.median(getattr(one, name) for one in rounds) for name in Late.__struct_fields__))


async def beside(words: Sequence[str], beyond: Beyond) -> Late:
    """Measure a stream while many downloads run."""
    command = ["curl", "-sSf", "-o", "/dev/null", "--limit-rate", RATE, "--cacert", beyond.ca_file, *words]
    busy = [await asyncio.create_subprocess_exec(*command) for _ in range(TUNNELS)]
    await asyncio.sleep(SETTLE_S)
    before = time.perf_counter(), time.process_time(), time.thread_time(), sum(written(one.pid) for one in busy)
    late = await stream_lateness()
    after = time.perf_counter(), time.process_time(), time.thread_time(), sum(written(one.pid) for one in busy)
    seconds, cpu, loop_cpu, moved = (late - early for late, early in zip(after, before, strict=True))
    for process in busy:
        process.kill()
        await process.wait()
    return msgspec.structs.replace(late, mb=moved / seconds / 1e6, cpu=cpu / seconds, loop_cpu=loop_cpu / seconds)


def written(pid: int) -> int:
    """Return the bytes that a process has written, which for curl are those it has downloaded."""
    counts = Path(f"/proc/{pid}/io").read_text()
    return int(counts.partition("wchar: ")[2].split("\n")[0])


async def stream_lateness() -> Late:
    """Send pieces at fixed times over loopback, and measure from when each was due until it arrived."""
    late: list[float] = []
    due: list[float] = []

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = time.perf_counter()
        for number in range(PIECES):
            at = start + number * EVERY_S
            await asyncio.sleep(max(0, at - time.perf_counter()))
            due.append(at)
            writer.write(b"x")
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(send, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        while await reader.read(1):
            late.append(time.perf_counter() - due[len(late)])
        writer.close()
    cuts = statistics.quantiles(late, n=100)
    return Late(cuts[49] * 1e3, cuts[94] * 1e3, cuts[98] * 1e3)


if __name__ == "__main__":
    main()
