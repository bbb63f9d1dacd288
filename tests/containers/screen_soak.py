"""Several browsers at once, each led to bad pages and killed, then made to fill a form and book: what was told, what it
took, what is left. `scripts/screen_soak` runs it."""

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from ferrule import Computer
from tests.containers.leftovers import ours
from tests.containers.sites import ACTS, NAME, PAGES, Site, place_of
from tests.processes import alive, children, running, until

BROWSERS, ROUNDS = 4, 40
LONGEST_S = 90.0
"""For one bad page and what follows it, on a busy machine."""
PAGES["/oom"] = (
    "<script>onclick = () => { const all = []; for (;;) { const more = new Uint8Array(5e7);"
    " for (let at = 0; at < more.length; at += 4096) more[at] = at; all.push(more) } }</script>"
)
PAGES["/moves"] = "<script>let count = 0; setInterval(() => { location.hash = count++ }, 1)</script>"
PAGES["/frames"] = "<iframe src=/book></iframe>" * 200
PATHS = ("/oom", "/reload", "/moves", "/frames", "/slow", "/never", "/huge")
BAD = (*ACTS, *PATHS, "kill page", "kill browser", "kill all")


async def lead(computer: Computer, bad: str) -> None:
    """Lead a browser to something bad."""
    container = computer.screen.container
    assert container is not None
    if bad in ACTS:
        await computer.open_url(f"http://{NAME}/acts")
        place = place_of(bad)
        await computer.click(place["x"], place["y"])
    elif bad == "kill all":
        os.kill(container.holder_pid, signal.SIGKILL)
    elif bad.startswith("kill"):
        mark = "--type=renderer" if bad == "kill page" else "--remote-debugging-pipe"
        for pid in set(ours(Path("/nowhere"), {container.holder_pid})) & set(running(mark)):
            os.kill(pid, signal.SIGKILL)
    else:
        await computer.open_url(f"http://{NAME}{bad}")
        await computer.click(500, 500)
    await computer.screenshot()


async def book(computer: Computer, site: Site, who: str) -> None:
    """Fill the form and book."""
    await computer.open_url(f"http://{NAME}/book")
    await computer.click(200, 100)
    await computer.type(who)
    await computer.keypress(["ENTER"])
    await computer.click(200, 100)
    await computer.keypress(["ARROWDOWN"])
    await computer.keypress(["ENTER"])
    await computer.click(60, 220)
    await computer.click(60, 220)
    booked = f"name={who}&day=Tuesday"
    assert booked in site.booked, (booked, computer.current_url, computer.notices())


async def use(site: Site, name: str, rounds: int, told: Counter[str], longest: dict[str, float]) -> None:
    """Use one browser."""
    dice = random.Random(name)
    async with Computer(start_url=site.url("/"), allowed_domains=[NAME], hosts=site.hosts) as computer:
        for number in range(rounds):
            bad = dice.choice(BAD)
            started = time.monotonic()
            async with asyncio.timeout(LONGEST_S):
                await lead(computer, bad)
                told.update(f"{bad}: {notice}" for notice in computer.notices())
                await book(computer, site, f"{name}{number}")
                computer.notices()
            longest[bad] = max(longest.get(bad, 0.0), time.monotonic() - started)


async def main(browsers: int, rounds: int) -> None:
    """Print what was told, how long each kind took at most, and what is left."""
    told: Counter[str] = Counter()
    longest: dict[str, float] = {}
    with Site() as site:
        async with asyncio.TaskGroup() as group:
            for at in range(browsers):
                group.create_task(use(site, "abcdefghijklmnopqrstuvwxyz"[at], rounds, told, longest))
    for line, count in sorted(told.items()):
        print(f"{count:4} {line}")
    for bad, seconds in sorted(longest.items(), key=lambda one: -one[1]):
        print(f"{seconds:6.1f} s {bad}")
    assert len(site.booked) == browsers * rounds, Counter(site.booked).most_common(3)
    await until(lambda: not any(map(alive, children())))
    print(f"{len(site.booked)} booked by {browsers} browsers in {rounds} rounds; nothing is left")


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:3]]
    asyncio.run(main(*(given + [BROWSERS, ROUNDS][len(given) :])))
