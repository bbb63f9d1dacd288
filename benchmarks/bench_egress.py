"""The way out: a download through a tunnel, and with a secret, beside a direct one; and how late the pieces of a stream
are that the same process sends while a hundred tunnels are busy.

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
from pathlib import Path

import msgspec

from benchmarks.measure import Row, bounded
from ferrule.egress.authority import Authority
from ferrule.egress.egress import Egress
from ferrule.egress.guard import Guard
from ferrule.egress.names import DomainNames
from ferrule.egress.secrets import Secret
from ferrule.sandbox.way_out import Listeners

SIZE, ROUNDS = 200 << 20, 5
TUNNELS, PIECES, EVERY_S = 100, 150, 0.02
RATE, SETTLE_S = "2M", 4.0
HOST = "bench.example"


class Beyond(msgspec.Struct, frozen=True):
    """The server, and what to trust."""

    port: int
    ca_file: str


class Late(msgspec.Struct, frozen=True):
    """Times as late as alone, MB a second that were moved meanwhile, and CPU seconds a second of this process."""

    tunnels: float
    direct: float
    tunnel_mb: float
    direct_mb: float
    cpu: float


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
        tunnel, secret = await downloads(beyond, folder)
        late = await lateness(beyond)
    finally:
        server.terminate()
        server.join()
    return [
        bounded("a download through a tunnel takes, times a direct one", tunnel, 1 / 0.7, "x"),
        bounded("a download from the domain of a secret takes, times a direct one", secret, 1 / 0.3, "x"),
        bounded(
            f"a stream beside {TUNNELS} tunnels ({late.tunnel_mb:.0f} MB/s), times as late as alone",
            late.tunnels,
            2,
            "x",
        ),
        bounded(
            f"... beside as many direct downloads ({late.direct_mb:.0f} MB/s), the machine alone",
            late.direct,
            None,
            "x",
        ),
        bounded(f"... the server's CPU in a second beside {TUNNELS} tunnels", late.cpu, None, "s"),
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
                if writer.is_closing():  # the client has gone
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


async def downloads(beyond: Beyond, folder: Path) -> tuple[float, float]:
    """Return how many times as long as directly a download takes by a tunnel, and with a secret."""
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
    times: list[list[float]] = [[] for _ in ways]
    async with plain, secret:
        for _ in range(ROUNDS):
            for way, taken in zip(ways, times, strict=True):
                taken.append(await curl(way))
        plain.stop(plain_at)
        secret.stop(secret_at)
    base = min(times[0])
    return min(times[1]) / base, min(times[2]) / base


async def curl(words: Sequence[str]) -> float:
    """Download, and return the seconds that curl says it took."""
    command = ["curl", "-sSf", "-o", "/dev/null", "-w", "%{time_total}", *words]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return float(out)


async def lateness(beyond: Beyond) -> Late:
    """Measure a stream alone, beside direct downloads, which is what the machine costs, and beside tunnels."""
    way, listeners = way_out(beyond, [])
    port = listeners.proxy.getsockname()[1]
    async with way:
        alone = await stream_lateness()
        direct, direct_mb, _ = await beside(
            ["--resolve", f"{HOST}:{beyond.port}:127.0.0.1", f"https://{HOST}:{beyond.port}/"], beyond
        )
        tunnels, tunnel_mb, cpu = await beside(["-x", f"http://127.0.0.1:{port}", f"https://{HOST}/"], beyond)
        way.stop(listeners)
    return Late(tunnels / alone, direct / alone, tunnel_mb, direct_mb, cpu)


async def beside(words: Sequence[str], beyond: Beyond) -> tuple[float, float, float]:
    """Return how late pieces arrive while many downloads run, their MB a second, and this process' CPU a second."""
    command = ["curl", "-sSf", "-o", "/dev/null", "--limit-rate", RATE, "--cacert", beyond.ca_file, *words]
    busy = [await asyncio.create_subprocess_exec(*command) for _ in range(TUNNELS)]
    await asyncio.sleep(SETTLE_S)
    start, cpu, before = time.perf_counter(), time.process_time(), sum(written(one.pid) for one in busy)
    late = await stream_lateness()
    seconds = time.perf_counter() - start
    cpu, moved = time.process_time() - cpu, sum(written(one.pid) for one in busy) - before
    for process in busy:
        process.kill()
        await process.wait()
    return late, moved / seconds / 1e6, cpu / seconds


def written(pid: int) -> int:
    """Return the bytes that a process has written, which for curl are those it has downloaded."""
    counts = Path(f"/proc/{pid}/io").read_text()
    return int(counts.partition("wchar: ")[2].split("\n")[0])


async def stream_lateness() -> float:
    """Send pieces at fixed times over loopback and return the median time from when each was due until it arrived."""
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
    return statistics.median(late)


if __name__ == "__main__":
    main()
