"""SIGKILL of `ferrule serve` at random moments while its containers work, again and again on the same state.

The next server finds no process, mount, control group or half a container; each container that a client was told of
goes on with its files and says so once, or is told to have ended. `scripts/container_kills --serve` runs it.
"""

import http.client
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ferrule.containers.notices import RESTARTED
from ferrule.containers.place import LOCK, default_place
from ferrule.sandbox.linux.cgroups import NAMES
from ferrule.testing import ScriptedModel, function_call
from ferrule.testing.request import Request, call_output
from ferrule.testing.steps import Simple
from tests.cli.command import Place
from tests.containers.leftovers import leftovers, ours
from tests.gateway.served import Served, new_place, serving
from tests.processes import alive

KILLS, PATIENCE, LONGEST, CLIENTS = 60, 30.0, 1.5, 4
"""Kills; seconds that an end may take; seconds in which the kill comes; clients at once."""
CONFIG = """
[gateway.containers]
spares = 1
[gateway.network]
allowed_domains = ["example.com"]
"""
BOUNDARY = "x" * 20
FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
SECRETS = {
    "type": "allowlist",
    "allowed_domains": ["example.com"],
    "domain_secrets": [{"domain": "example.com", "name": "KEY", "value": "s" * 20}],
}
KEPT, ENDED = "kept", "ended"
Json = dict[str, Any]


def does(request: Request) -> Simple:
    """Run what the user said: a command after `$`, else Python."""
    if call_output(request.items[-1]) is not None:
        return "done"
    text = request.user_text
    return (
        function_call("shell", {"commands": [text[1:]]}) if text[0] == "$" else function_call("python", {"code": text})
    )


class Known(msgspec.Struct):
    """What a client was told of a container."""

    id: str
    has_secrets: bool
    files: dict[str, bytes] = {}
    used: bool = False


class Clients:
    """Clients that make containers, and use them until the server is gone."""

    def __init__(self, served: Served, chance: random.Random) -> None:
        self._served = served
        self.known: list[Known] = []
        self.wrong: list[str] = []
        self.first = threading.Event()
        seeds = [chance.random() for _ in range(CLIENTS)]
        self._threads = [threading.Thread(target=self._work, args=(random.Random(seed),)) for seed in seeds]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    def _work(self, dice: random.Random) -> None:
        try:
            while True:
                one = self._made(dice)
                for number in range(dice.randrange(1, 5)):
                    self._use(one, number, dice)
        except (OSError, http.client.HTTPException):
            return  # the server is gone
        finally:
            self.first.set()

    def _made(self, dice: random.Random) -> Known:
        has_secrets = dice.random() < 0.25
        asked = {"name": "c"} | ({"network_policy": SECRETS} if has_secrets else {})
        made = answered(self._served, "POST", "/containers", asked)
        one = Known(made["id"], has_secrets)
        self.known.append(one)
        return one

    def _use(self, one: Known, number: int, dice: random.Random) -> None:
        name, data = f"f{number}", dice.randbytes(20).hex().encode()
        way = dice.randrange(4)
        if way == 0:
            head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
            answered(
                self._served,
                "POST",
                f"/containers/{one.id}/files",
                head.encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode(),
                FORM,
            )
        elif way == 1:
            respond(self._served, one.id, f"open({name!r}, 'w').write({data.decode()!r})")
        else:
            after = "; sleep 1000 > /dev/null 2>&1 &" if way == 2 else ""
            respond(self._served, one.id, f"$printf {data.decode()} > {name}{after}")
        one.files[name] = data
        self.first.set()
        if dice.random() < 0.2:
            respond(self._served, one.id, "$sleep 1000")  # until the kill


def answered(served: Served, method: str, path: str, body: object = None, headers: Mapping[str, str] = {}) -> Json:
    """Ask; every answer that is no error."""
    answer = served.ask(method, path, body, headers=headers)
    assert answer.status == 200, (path, answer.body)
    return answer.json


def respond(served: Served, container: str, text: str) -> Json:
    """Let the model run something in a container. Returns the call's item, or the item of its output."""
    tool: Json = {"type": "code_interpreter", "container": container}
    if text.startswith("$"):
        tool = {"type": "shell", "environment": {"type": "container_reference", "container_id": container}}
    body = {"model": "m", "input": text, "tools": [tool], "include": ["code_interpreter_call.outputs"]}
    output: list[Json] = answered(served, "POST", "/responses", body)["output"]
    return output[-2]


def once(place: Place, upstream: str, chance: random.Random) -> tuple[list[str], list[str]]:
    """Kill one server, and look at what the next one has. Returns what is wrong, and how the containers ended."""
    data = default_place(str(place.home))
    with serving(place, upstream) as served, Clients(served, chance) as clients:
        clients.first.wait(PATIENCE)
        time.sleep(chance.uniform(0, LONGEST))
        theirs = ours(data, {served.process.pid})
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
        maker = served.process.pid
    wrong = [*clients.wrong]
    wrong += until(lambda: not any(map(alive, theirs)) and not ours(data, set()), "a process is left")
    with serving(place, upstream) as again:
        known = {one.id for one in clients.known}
        fates = []
        for one in clients.known:
            fate, faults = fate_of(again, one)
            wrong += faults
            fates.append(fate)
        listed = {one["id"] for one in answered(again, "GET", "/containers?limit=100")["data"]}
        wrong += [f"{name} is not listed" for name in known - listed]
        for name in listed:
            answered(again, "DELETE", f"/containers/{name}")
        gone = lambda: not leftovers(data, {maker}).groups  # noqa: E731 - they go when the last process is reaped
        wrong += until(gone, "a control group of the killed server is left")
        _, said = again.stop()
        wrong += [f"the server said {said}"] if said else []
    after = leftovers(data, {maker, again.process.pid})
    if (after.processes, after.mounts, after.groups, after.folders) != (0, 0, 0, 0):
        names = [str(path.relative_to(data)) for path in data.rglob("*")] if data.exists() else []
        groups = [path.name for path in Path("/sys/fs/cgroup").glob(f"**/{NAMES}*")]
        wrong.append(f"left: {after} {names} {groups}; killed {maker}, then {again.process.pid}")
    return wrong, fates


def fate_of(served: Served, one: Known) -> tuple[str, list[str]]:
    """Return whether a container was kept, and what is wrong with it."""
    found = answered(served, "GET", f"/containers/{one.id}")
    if one.has_secrets:
        answer = served.ask("GET", f"/containers/{one.id}/files")
        told = answer.status == 404 and answer.error["code"] == "container_expired"
        fine = found["status"] == "expired" and told
        return ENDED, [] if fine else [f"{one.id} has secrets and goes on: {found['status']}, {answer.body!r}"]
    wrong = [] if found["status"] == "running" else [f"{one.id} is {found['status']}"]
    files = {
        file["path"].removeprefix("/mnt/data/"): served.ask(
            "GET", f"/containers/{one.id}/files/{file['id']}/content"
        ).body
        for file in answered(served, "GET", f"/containers/{one.id}/files?limit=100")["data"]
    }
    wrong += [f"{one.id}: {name} is not as it was" for name, data in one.files.items() if files.get(name) != data]
    first, second = (respond(served, one.id, "$ls")["output"][0]["stderr"] for _ in range(2))
    if first != f"[{RESTARTED}]\n" or second:
        wrong.append(f"{one.id} says {first!r}, then {second!r}")
    return KEPT, wrong


def until(true: Callable[[], bool], otherwise: str) -> list[str]:
    """Wait until something is so. Returns what is wrong if it never is."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            return [otherwise]
        time.sleep(0.02)
    return []


@contextmanager
def place_of(folder: Path) -> Iterator[Place]:
    """A home with our settings; what it has below /var/tmp is removed."""
    place = new_place(folder)
    place.home.mkdir(parents=True)
    (place.home / "config.toml").write_text(CONFIG)
    data = default_place(str(place.home))
    yield place
    if data.exists():
        print("left on disk:", *(path.name for path in data.iterdir() if path.name != LOCK))


def main(kills: int, seed: str) -> int:
    """Kill again and again; print what was wrong. Returns 1 if anything was."""
    chance, found, fates = random.Random(seed), [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        place_of(Path(folder)) as place,
        ScriptedModel(does) as model,
    ):
        for number in range(kills):
            wrong, more = once(place, model.base_url, chance)
            fates += more
            found += [f"kill {number}: {text}" for text in wrong]
            for text in wrong:
                print(f"kill {number}: {text}", flush=True)
    kept = fates.count(KEPT)
    print(
        f"{kills} kills of the server, seed {seed}: {kept} containers kept, {len(fates) - kept} told expired;", end=" "
    )
    print(f"{len(found)} faults")
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else KILLS, "".join(sys.argv[2:3]) or str(os.getpid())))
