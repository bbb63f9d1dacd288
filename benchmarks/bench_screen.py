"""A screen: a click and the picture after it, beside the same commands sent to a browser without a container; a start;
the memory of 20 browsers, each with a page.

Memory is what `smaps_rollup` says of the processes of their containers.
"""

import asyncio
import base64
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.bench_containers import KIBIBYTES, descendants, proportional
from benchmarks.measure import Row, bounded, in_turns, row
from ferrule import Computer
from ferrule.containers.screen.actions import Click
from ferrule.containers.screen.browser import BLANK
from ferrule.containers.screen.devtools import DevTools
from ferrule.containers.screen.inputs import MOUSE
from ferrule.containers.screen.program import find_program
from ferrule.process.kernel import OWN_PIPES
from ferrule.process.launcher import Limits, Pipes
from ferrule.process.plain import PlainLauncher

ROUNDS = 60
MANY = 20
NAME = "shop.test"
SIZE = (1024, 768)
PAGE = (
    b"<!doctype html><style>body{font:16px sans-serif}li{padding:4px;background:linear-gradient(#eee,#ccc)}</style>"
    b"<ol></ol><script>const list = document.querySelector('ol'); let count = 0; const fill = () => list.innerHTML ="
    b" Array.from({length: 25}, (_, at) => `<li>Article ${at} of page ${count}: a thing with a price</li>`).join('');"
    b"fill(); onclick = () => { count += 1; fill() }</script>"
)
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        del format, args


def main() -> None:
    """Print one line a row."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for line in asyncio.run(compare(server.server_port)):
        print(line, flush=True)
    server.shutdown()


async def compare(port: int) -> list[Row]:
    """The rows."""
    made = partial(
        Computer, start_url=f"http://{NAME}/", allowed_domains=[NAME], hosts={f"{NAME}:80": f"127.0.0.1:{port}"}
    )
    async with made() as computer, raw(f"http://127.0.0.1:{port}/") as (devtools, session):
        ours, floor = await in_turns([lambda: ours_once(computer), lambda: raw_once(devtools, session)], ROUNDS)

    async def start() -> None:
        async with made():
            pass

    async def start_raw() -> None:
        async with raw(f"http://127.0.0.1:{port}/"):
            pass

    started, started_raw = await in_turns([start, start_raw], 5)
    return [
        row("a click and the picture after it, floor the same by raw DevTools", ours, floor, 1.5, "ms", 1e3),
        row("a browser started with a page, and ended, floor the same without a container", started, started_raw, 2,
            "s", 1),
        bounded(f"one of {MANY} browsers with a page", await memory_of_many(made), 200, "MiB"),
    ]  # fmt: skip


async def ours_once(computer: Computer) -> None:
    """An action and its picture, as a model has them."""
    await computer.screen.act(Click(500, 300))
    base64.b64encode(await computer.screen.screenshot())


async def raw_once(devtools: DevTools, session: str) -> None:
    """The same, sent as fast as it is answered, without waiting for what the page does."""
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        await devtools.call(MOUSE, {"type": kind, "x": 500, "y": 300, **button}, session)
    taken = await devtools.call("Page.captureScreenshot", {"format": "png"}, session)
    base64.b64encode(base64.b64decode(str(taken["data"])))


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[tuple[DevTools, str]]:
    """The same browser with the same flags, on this machine."""
    with tempfile.TemporaryDirectory(prefix="ferrule-bench-", ignore_cleanup_errors=True) as profile:
        argv = [word for word in find_program().argv if not word.startswith("--user-data-dir")]
        argv += [f"--user-data-dir={profile}", f"--window-size={SIZE[0]},{SIZE[1]}", BLANK]
        moved = ("/bin/sh", "-c", OWN_PIPES, "sh", *argv)
        child = await PlainLauncher().launch(moved, ENV, "/", Pipes(stdin=True), Limits())
        loaded = asyncio.Event()
        heard = frozenset({"Page.loadEventFired"})
        devtools = DevTools(child, lambda session, name, said: loaded.set(), heard)
        try:
            targets = (await devtools.call("Target.getTargets", timeout=60))["targetInfos"]
            assert isinstance(targets, list)
            page = next(one["targetId"] for one in targets if isinstance(one, dict) and one["type"] == "page")
            attached = await devtools.call("Target.attachToTarget", {"targetId": page, "flatten": True})
            session = str(attached["sessionId"])
            await devtools.call("Page.enable", {}, session)
            size = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
            await devtools.call("Emulation.setDeviceMetricsOverride", {**size}, session)
            await devtools.call("Page.navigate", {"url": url}, session)
            await loaded.wait()
            yield devtools, session
        finally:
            await devtools.aclose()


async def memory_of_many(made: "partial[Computer]") -> float:
    """MiB of each of many browsers."""
    async with AsyncExitStack() as stack:
        computers = [await stack.enter_async_context(made()) for _ in range(MANY)]
        for computer in computers:
            await computer.screenshot()
        containers = [computer.screen.container for computer in computers]
        pids = [pid for one in containers if one is not None for pid in descendants(one.holder_pid)]
        return sum(map(proportional, pids)) / KIBIBYTES / MANY


if __name__ == "__main__":
    main()
