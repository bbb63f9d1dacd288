"""`ferrule serve` beside the sessions: clients, kills of it and of what it runs, and what it holds afterwards."""

import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2

from ferrule.conformance.failures import Failed
from ferrule.conformance.server import TERMINAL, Json, Server
from ferrule.containers.place import LOCK, RECORD, default_place
from tests.soak.census import LASTING_PROGRAMS, Census, Process, every_process, families, sees, settled_leaks
from tests.soak.disks import fill, let_go, small_disk
from tests.soak.errands import ERRANDS, MCP_HOST, Client, Told
from tests.soak.household import Household, Upstream, kill

CLIENTS, ERRANDS_EACH = 3, 6
START_SECONDS, END_SECONDS = 60.0, 60.0
FINISH_SECONDS = 60.0
"""How long a response may take that was under way when its server was killed, or its client left."""
DISK = "size=64m,mode=700"
"""Of what it keeps: a hundred times what clients leave there in a round."""
QUIET_SECONDS = 2.0
"""For so long nothing starts or ends: what is made once has been made."""
WAIT_SECONDS = 90.0
"""For one answer, on a busy machine."""
LISTED = {"/containers": "/containers/{}", "/vector_stores": "/vector_stores/{}", "/files": "/files/{}"}
CONFIG = """
[gateway.containers]
spares = 1
[gateway.network]
allowed_domains = ["{host}"]
[gateway.network.hosts]
"{host}:80" = "{place}"
"""
POOLED = {"socket": 8, "state.sqlite": 8, "state.sqlite-wal": 8, "state.sqlite-shm": 8}
"""How many more there may be: connections to the model's server and to the store wait for the next request."""
FIRST_FILES = 8
"""Read at once at first, so that all who read files are there."""
_CONTAINER = re.compile("cntr_[0-9a-f]+")
OF_OTHERS = ("/session-", "/batch-")


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """What the clients do in a round. `shaken`: processes of the server are killed; `killed`: itself; `full`: its disk
    is full at times; `stopped`: it is ended by a signal after the round, and the next round starts another."""

    errands: tuple[tuple[str, ...], ...]
    shaken: bool
    killed: bool
    full: bool
    stopped: bool


def draw_service(seed: str, number: int, *, root: bool) -> ServicePlan:
    """The plan of the server in round `number`. In two thirds of the rounds nobody touches it, so that it grows old."""
    rng = random.Random(f"{seed}/service/{number}")
    troubled = number % 12 < 4
    errands = tuple(tuple(rng.choices(list(ERRANDS), k=ERRANDS_EACH)) for _ in range(CLIENTS))
    return ServicePlan(
        errands,
        shaken=rng.random() < 0.4,
        killed=troubled and rng.random() < 0.5,
        full=root and rng.random() < 0.25,
        stopped=troubled and rng.random() < 0.3,
    )


class Service:
    """A server that goes on from round to round, and is counted by itself."""

    def __init__(self, household: Household, upstream: Upstream, seed: str) -> None:
        self._household = household
        self._seed = seed
        self._upstream = upstream
        self._log = household.root / "serve.log"
        self._temporary = household.root / "serve-tmp"
        self._temporary.mkdir()
        self._state = household.home / "gateway"
        self._root = os.geteuid() == 0
        self._place = default_place(str(household.home))
        self._lives: list[list[tuple[int, int]]] = []
        self._before: Census | None = None
        self._orphans: set[int] = set()
        self._since = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""
        self.asked = 0
        household.home.mkdir(mode=0o700, exist_ok=True)
        if self._root:
            self._state.mkdir(mode=0o700)
            small_disk(self._state, DISK)
        address = upstream.mcp.removeprefix("http://").partition("/")[0]
        (household.home / "config.toml").write_text(CONFIG.format(host=MCP_HOST, place=address))

    @property
    def lives(self) -> list[list[tuple[int, int]]]:
        """Of each server the samples: responses so far, bytes of memory."""
        return self._lives

    def play(self, number: int) -> tuple[list[str], Counter[str]]:
        """One round. Returns what was wrong, and the faults. Blocks."""
        plan, faults = draw_service(self._seed, number, root=self._root), Counter[str]()
        rng = random.Random(f"{self._seed}/service/{number}/troubles")
        told = Told()
        if self._process is None:
            self._start(str(rng.choice(("chat", "responses", "messages"))))
        self._serve(plan, number, told, rng, faults)
        if plan.killed:
            faults["kill_gateway"] += 1
            told.problems += self._exit(signal.SIGKILL)
            self._start("chat")
        told.problems += self._remember(told)
        told.problems += self._clean()
        self.asked += told.asked
        told.problems += self._grown()
        if plan.stopped:
            told.problems += self.stop()
        return told.problems, faults

    def _start(self, wire: str) -> None:
        start = self._log.stat().st_size if self._log.exists() else 0
        words = ("serve", "--bind", "127.0.0.1:0", "--base-url", self._upstream.model, "--wire", wire)
        self._process = process = self._household.start(words, self._household.root, self._log, self._temporary)
        LASTING_PROGRAMS.add(process.pid)
        deadline = time.monotonic() + START_SECONDS
        while not (lines := [line for line in self._said(start).splitlines() if "http://" in line and "/v1" in line]):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the gateway does not start: {self._said(start)[-3000:]}")
            time.sleep(0.05)
        self._url = lines[0].split()[-1]
        self._since = start
        self._lives.append([])
        self._before = None

    def _said(self, start: int) -> str:
        with self._log.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")

    def _serve(self, plan: ServicePlan, number: int, told: Told, rng: random.Random, faults: Counter[str]) -> None:
        """Let the clients work; shake the server, or kill it, meanwhile."""
        calm = not plan.shaken and not plan.killed and not plan.full
        over = threading.Event()
        clients = [
            threading.Thread(target=self._client, args=(names, f"{number}/{at}", told, calm, plan.killed or plan.full))
            for at, names in enumerate(plan.errands)
        ]
        troubles = [way for way, wanted in ((self._shake, plan.shaken), (self._fill, plan.full)) if wanted]
        beside = [threading.Thread(target=way, args=(over, rng, faults)) for way in troubles]
        for thread in (*clients, *beside):
            thread.start()
        if plan.killed:
            time.sleep(rng.uniform(0.2, 4.0))
            kill(self._pid, signal.SIGKILL)
        for client in clients:
            client.join()
        over.set()
        for thread in beside:
            thread.join()

    @property
    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _client(self, names: Sequence[str], lane: str, told: Told, calm: bool, lost: bool) -> None:
        server = Server(self._url, wait_s=WAIT_SECONDS)
        rng = random.Random(f"{self._seed}/service/{lane}")
        try:
            for name in names:
                ERRANDS[name](Client(server, told, rng, calm))
        except (httpx2.HTTPError, Failed) as error:
            if not lost:
                told.problems.append(f"a client of the gateway ({name}): {error!r}")
        finally:
            server.close()

    def _family(self, every: Sequence[Process]) -> set[int]:
        """Its processes, without itself. Containers whose mother was killed go on, and are nobody's children."""
        marks = [folder.name for folder in self._containers()]
        orphans = {one.pid for one in every if one.parent == 1 and any(sees(one.pid, mark) for mark in marks)}
        LASTING_PROGRAMS.difference_update(self._orphans)
        LASTING_PROGRAMS.update(orphans)
        self._orphans = orphans
        return families(every, {self._pid} | orphans) - {self._pid}

    def _shake(self, over: threading.Event, rng: random.Random, faults: Counter[str]) -> None:
        """Kill what the server runs: mothers and holders of containers, kernels, readers of files."""
        while not over.wait(rng.expovariate(1 / 1.0)):
            theirs = sorted(self._family(every_process()))
            if theirs:
                faults["kill_of_gateway's"] += 1
                kill(rng.choice(theirs), signal.SIGKILL)

    def _fill(self, over: threading.Event, rng: random.Random, faults: Counter[str]) -> None:
        """Fill its disk, and free it again."""
        filler = self._state / "filler"
        while not over.wait(rng.expovariate(1 / 1.0)):
            faults["full_disk_of_gateway"] += 1
            fill(filler)
            over.wait(rng.uniform(0.2, 1.5))
            filler.unlink()

    def _remember(self, told: Told) -> list[str]:
        """What was begun has an end, and what was told completed is as it was."""
        server, problems = Server(self._url, wait_s=WAIT_SECONDS), list[str]()
        with _told_as(problems, "the gateway does not remember"):
            for response_id in sorted(told.begun):
                found = self._ended(server, response_id)
                if found["status"] not in TERMINAL:
                    problems.append(f"{response_id} has no end: {found['status']}")
                if response_id in told.completed and found != told.completed[response_id]:
                    problems.append(f"{response_id} was told completed and is another")
        server.close()
        return problems

    def _ended(self, server: Server, response_id: str) -> Json:
        deadline = time.monotonic() + FINISH_SECONDS
        while True:
            found = server.get(f"/responses/{response_id}")
            if found["status"] in TERMINAL or time.monotonic() > deadline:
                server.send("DELETE", f"/responses/{response_id}")
                return found
            time.sleep(0.1)

    def _clean(self) -> list[str]:
        """The clients delete what is theirs."""
        server, problems = Server(self._url, wait_s=WAIT_SECONDS), list[str]()
        with _told_as(problems, "the gateway does not delete"):
            for listed, path in LISTED.items():
                while found := server.get(listed, limit=100)["data"]:
                    answers = [server.send("DELETE", path.format(one["id"])) for one in found]
                    if wrong := [answer.body for answer in answers if answer.status not in (200, 404)]:
                        problems.append(f"{listed} are not deleted: {wrong[:3]}")
                        break
        server.close()
        return problems

    def _grown(self) -> list[str]:
        """What it holds more than after its first round."""
        assert self._process is not None
        problems = []
        if self._process.poll() is not None:
            problems = [f"the gateway has ended with {self._process.returncode}: {self._said(self._since)[-3000:]}"]
            self._forget()
            return problems
        if self._before is None:
            problems = self._warm_up()
            self._before = self._look()
            for name in self._before.counts["descriptor"]:
                self._before.counts["descriptor"][name] += POOLED.get(Path(name).name, 0)
        else:
            problems = [f"the gateway: {leak}" for leak in settled_leaks(self._look, self._before)]
        problems += self._complaints()
        self._lives[-1].append((self.asked, self._memory()))
        return problems

    def _warm_up(self) -> list[str]:
        """Let it make what it makes once: the spare that follows a first container, and who reads files."""
        server, problems = Server(self._url, wait_s=WAIT_SECONDS), list[str]()
        with _told_as(problems, "the gateway has no container"):
            made = server.post("/containers", {"name": "first"})
            server.send("DELETE", f"/containers/{made['id']}")
            sent = [server.post_file("/files", b"plums", name=f"{number}.txt", purpose="assistants")
                    for number in range(FIRST_FILES)]  # fmt: skip
            store = server.post("/vector_stores", {"file_ids": [file["id"] for file in sent]})["id"]
            self._read(server, store)
            for path in (f"/vector_stores/{store}", *(f"/files/{file['id']}" for file in sent)):
                server.send("DELETE", path)
        server.close()
        count, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET_SECONDS:
            time.sleep(0.1)
            if (now := self._look().counts["process"].total()) != count:
                count, since = now, time.monotonic()
        return problems

    def _read(self, server: Server, store: str) -> None:
        deadline = time.monotonic() + FINISH_SECONDS
        while server.get(f"/vector_stores/{store}")["status"] == "in_progress" and time.monotonic() < deadline:
            time.sleep(0.1)

    def _look(self) -> Census:
        pid = self._pid
        every = every_process()
        theirs = self._family(every)
        kinds = Counter(_kind(one) for one in every if one.pid in theirs)
        links = (_link(path) for path in Path(f"/proc/{pid}/fd").iterdir())
        opened = Counter(_CONTAINER.sub("cntr", link.partition(":[")[0]) for link in links)
        left = [str(path.relative_to(self._household.root)) for path in self._temporary.rglob("*")]
        folders = Counter("a container's folder" for _ in self._containers())
        return Census({"process": kinds, "descriptor": opened, "file": Counter(left) + folders})

    def _containers(self) -> list[Path]:
        """The folders of its containers. Those of sessions and tasks lie beside them, and say what they work on."""
        folders = list(self._place.iterdir()) if self._place.exists() else []
        return [one for one in folders if one.name != LOCK and not any(name in _told_of(one) for name in OF_OTHERS)]

    def _complaints(self) -> list[str]:
        """What it logged that is a fault of ours."""
        said = self._said(self._since)
        self._since = self._log.stat().st_size
        return [
            f"the gateway logs: ...{said[max(0, at - 500) : at + 3000]}" for at in [said.find("Traceback")] if at >= 0
        ]

    def _memory(self) -> int:
        with suppress(OSError):
            for line in Path(f"/proc/{self._pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    def close(self) -> None:
        """End it at once, if it runs, and take its disk away."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()
        let_go(self._state)

    def stop(self) -> list[str]:
        """End it as its user does. Nothing is left of it."""
        return [] if self._process is None else self._exit(signal.SIGTERM)

    def _exit(self, number: int) -> list[str]:
        assert self._process is not None
        every = every_process()
        names = {one.pid: str(one) for one in every}
        theirs = {pid: names[pid] for pid in self._family(every) if pid in names}
        kill(self._pid, number)
        problems = []
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        if code not in (0, -signal.SIGKILL):
            problems.append(f"the gateway ends with {code}: {self._said(self._since)[-3000:]}")
            kill(self._pid, signal.SIGKILL)
            self._process.wait()
        deadline = time.monotonic() + END_SECONDS
        while left := [name for pid, name in theirs.items() if _is_same(pid, name)]:
            if time.monotonic() > deadline:
                problems += [f"the gateway leaves a process: {name}" for name in left]
                break
            time.sleep(0.1)
        if number == signal.SIGTERM:
            problems += self._complaints()
            problems += [f"the gateway leaves {path}" for path in self._temporary.rglob("*")]
            problems += [f"the gateway leaves {_told_of(path)}" for path in self._containers()]
        self._forget()
        return problems

    def _forget(self) -> None:
        LASTING_PROGRAMS.discard(self._pid)
        LASTING_PROGRAMS.difference_update(self._orphans)
        self._orphans = set()
        self._process = None


@contextmanager
def _told_as(problems: list[str], what: str) -> Iterator[None]:
    """Turn what a client gets into a problem."""
    try:
        yield
    except (httpx2.HTTPError, Failed) as error:
        problems.append(f"{what}: {error!r}")


def _told_of(folder: Path) -> str:
    """A container's folder, and what it is."""
    try:
        return f"{folder}: {(folder / RECORD).read_text()}"
    except OSError:
        return f"{folder}: not told, or just removed"


def _kind(one: Process) -> str:
    return " ".join(one.command.split()[:3])[:60]


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return "gone"


def _is_same(pid: int, name: str) -> bool:
    return any(one.pid == pid and one.state != "Z" and one.command[:150] in name for one in every_process())
