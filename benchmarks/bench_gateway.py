"""`ferrule serve` between a client and its upstream, beside the same client asking the upstream directly.

The upstream is a process that streams Chat Completions; the server is the real command; both are on loopback. The
floor of each row is the client at the upstream. Times are wall-clock times: what a client waits. What a stream costs is
the server's CPU time, which the client's own pool of connections leaves as it is.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from benchmarks.measure import Row, bounded, medians, row, undisturbed
from benchmarks.upstream import END, event, upstream

SHORT, LONG = 8, 2_000
"""Deltas of an answer."""
THINKING_S = 0.05
"""Seconds before the upstream's first byte in the row about it: a quick model's."""
ROUNDS = 30
SHORT_ROUNDS = 200
"""Of short answers: only then is a new process as quick as it stays."""
ALONE = 200
"""Responses whose CPU time is measured: the kernel counts it in hundredths of a second."""
STREAMS = (100, 1_000)


@cache
def _answer(count: int) -> Sequence[bytes]:
    used = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": count + 1}
    return [event({"content": " word"})] * count + [event({}, "stop"), event(usage=used), END]


async def says(model: str) -> AsyncIterator[bytes]:
    """Answer by the model: `short`, `long`, `slow` (short, after a while)."""
    if model == "slow":
        await asyncio.sleep(THINKING_S)
    for piece in _answer(LONG if model == "long" else SHORT):
        yield piece


@contextmanager
def _gateway(base_url: str) -> Iterator[tuple[str, int]]:
    """The address of a running `ferrule serve`, and its pid."""
    with tempfile.TemporaryDirectory(prefix="ferrule-bench-") as home:
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ferrule",
                "serve",
                "--bind",
                "127.0.0.1:0",
                "--base-url",
                base_url,
                "--wire",
                "chat",
            ],
            env={**os.environ, "FERRULE_HOME": home},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stderr is not None
        found = re.search(r"http://\S+/v1", server.stderr.readline())
        assert found is not None
        try:
            yield found[0], server.pid
        finally:
            server.terminate()
            server.wait()


class _Client:
    """A client that reads streams to their end."""

    def __init__(self, http: httpx2.AsyncClient, base_url: str, *, direct: bool) -> None:
        self._http = http
        self._url = f"{base_url}/{'chat/completions' if direct else 'responses'}"
        self._said: dict[str, object] = {"stream": True}
        if direct:
            self._said["messages"] = [{"role": "user", "content": "hi"}]
            self._mark = b'"content"'
        else:
            self._said |= {"input": "hi", "store": False}
            self._mark = b"output_text.delta"

    async def ask(self, model: str, *, first: bool = False) -> float:
        """Return the seconds to the end, or to the first piece of text."""
        began, seen = time.perf_counter(), None
        async with self._http.stream("POST", self._url, json={**self._said, "model": model}) as answer:
            async for chunk in answer.aiter_raw():
                if seen is None and self._mark in chunk:
                    seen = time.perf_counter() - began
        assert seen is not None
        return seen if first else time.perf_counter() - began


class _Streams:
    """Many streams at once, each on a connection of its own, and what they cost the server."""

    def __init__(self, base_url: str, pid: int) -> None:
        parts = urlsplit(base_url)
        self._address = parts.hostname, parts.port
        self._pid = pid
        body = json.dumps({"model": "short", "stream": True, "input": "hi", "store": False}).encode()
        head = f"POST {parts.path}/responses HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n"
        self._request = b"%bcontent-length: %d\r\n\r\n%b" % (head.encode(), len(body), body)

    async def _one(self) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        writer.write(self._request)
        assert b"[DONE]" in await reader.read(-1)
        writer.close()

    async def at_once(self, count: int) -> float:
        """Return the server's CPU seconds for each of so many streams."""
        before = _cpu(self._pid)
        await asyncio.gather(*(self._one() for _ in range(count)))
        return (_cpu(self._pid) - before) / count

    async def one_by_one(self, count: int) -> float:
        """Return the server's CPU seconds for each of so many streams, one after the other."""
        before = _cpu(self._pid)
        for _ in range(count):
            await self._one()
        return (_cpu(self._pid) - before) / count


def _cpu(pid: int) -> float:
    """The CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int) -> float:
    """The resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


async def _rows(upstream: str, gateway: str, pid: int) -> list[Row]:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx2.AsyncClient(limits=limits, timeout=120) as http:
        direct, ours = _Client(http, upstream, direct=True), _Client(http, gateway, direct=False)
        floor, short = await medians([partial(direct.ask, "short"), partial(ours.ask, "short")], SHORT_ROUNDS)
        floor_first, first = await medians(
            [partial(direct.ask, "slow", first=True), partial(ours.ask, "slow", first=True)], ROUNDS
        )
        floor_long, long = await medians([partial(direct.ask, "long"), partial(ours.ask, "long")], 8)
        streams = _Streams(gateway, pid)
        alone = await streams.one_by_one(ALONE)
        before = _rss(pid)
        few, many = await medians([partial(streams.at_once, count) for count in STREAMS], 2)
        grown = (_rss(pid) - before) / STREAMS[1]
    return [
        row(f"gateway: a short streamed response, {SHORT} deltas", short, floor, 2, "ms", 1e3),
        row(f"gateway: first text, upstream after {THINKING_S * 1e3:g} ms", first, floor_first, 1.2, "ms", 1e3),
        bounded(f"gateway: a delta more, of {LONG:,}", (long - floor_long) / LONG, 25, "us", 1e6, floor_long / LONG),
        bounded("gateway: CPU of the server, a short streamed response", alone, None, "ms", 1e3),
        row(
            f"gateway: CPU of each of {STREAMS[1]:,} streams at once, floor of {STREAMS[0]}", many, few, 1.2, "ms", 1e3
        ),
        bounded(f"gateway: memory after {STREAMS[1]:,} streams at once, a stream", grown, None, "KiB", 1 / 1024),
    ]


def main() -> None:
    """Print one line a row."""
    undisturbed()
    with upstream(says) as base_url, _gateway(base_url) as (gateway, pid):
        for line in asyncio.run(_rows(base_url, gateway, pid)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
