"""One session that is killed and goes on: a folder, a home, a model server, and what must be true afterwards."""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.protocol.specs import Wire
from ferrule.session.rollout import read_head, read_rollout, stored_rollouts
from ferrule.testing import ScriptedModel
from tests.cli.command import COMMAND, SOURCE, Place
from tests.crash.files import LOG, Files
from tests.crash.story import LAST_WORDS, TOOLS, WINDOW, Story
from tests.soak.census import Process, processes

LONGEST = 60.0
"""Seconds of one run on a busy machine; what takes longer hangs."""
ENDING = 15.0
"""Seconds in which the processes of a killed session have to be gone."""
POLL = 0.0005
"""Seconds between two looks whether the moment has come."""

MOST_CHANGES = 190
"""Changes of the disk that a whole run makes, about."""
KNIFE = Path(__file__).parent / "knife"

Come = Callable[["Scene"], bool]


@dataclass(frozen=True)
class Moment:
    """When a run is killed: as soon as `come` returns True, or by itself, at a change of the disk."""

    name: str
    come: Come = lambda scene: False
    knife: str | None = None

    @property
    def env(self) -> dict[str, str]:
        """What the run needs in its environment."""
        if self.knife is None:
            return {}
        return {"FERRULE_TEST_KNIFE": self.knife, "PYTHONPATH": f"{KNIFE}{os.pathsep}{SOURCE}"}


@dataclass
class Scene:
    """A place with its story. `place` runs what is not killed."""

    place: Place
    wire: Wire
    confined: bool
    files: Files = field(init=False)
    story: Story = field(init=False)
    server: ScriptedModel = field(init=False)
    started: float = 0.0

    def __enter__(self) -> "Scene":
        self.files = Files(self.place.cwd)
        self.files.lay_out("one.txt", "two.txt")
        self.story = Story(self.files, self.wire)
        self.server = ScriptedModel(self.story.answer).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()

    @property
    def options(self) -> tuple[str, ...]:
        """The command line of every run."""
        model = "gpt-5.5" if self.wire == "responses" else "m-1"
        rights = "workspace-write" if self.confined else "danger-full-access"
        return (
            "--json", "-s", rights, "--base-url", self.server.base_url, "--wire", self.wire, "-m", model,
            "-c", "features.multi_agent=true", "-c", f"tools={json.dumps(TOOLS)}",
            "-c", f"model_context_window={WINDOW}",
        )  # fmt: skip

    def size(self) -> int:
        """Bytes of all session files so far."""
        found = self.place.home.glob("sessions/*/*/*/rollout-*.jsonl")
        return sum(path.stat().st_size for path in found)

    def run_and_kill(self, arguments: Sequence[str], moment: Moment) -> bool:
        """Start a run and kill it at this moment; False if it ended before."""
        self.started = time.monotonic()
        run = subprocess.Popen(
            [*COMMAND, "exec", *self.options, *arguments], cwd=self.place.cwd, env=self.place.env(moment.env),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            while run.poll() is None and not moment.come(self):
                assert time.monotonic() < self.started + LONGEST, "it hangs"
                time.sleep(POLL)
        finally:
            run.send_signal(signal.SIGKILL)
            _, said = run.communicate()
        if run.returncode not in (0, -signal.SIGKILL):
            self.story.problems.append(f"it failed by itself: {said.decode()[-2000:]}")
        self.files.killed = run.returncode != 0
        return self.files.killed

    def session(self) -> str | None:
        """The id of the session that people began; None if its file does not say it yet."""
        heads = filter(None, map(read_head, stored_rollouts(str(self.place.home))))
        return next((head.id for head in heads if head.parent_thread_id is None), None)

    def go_on(self, session: str, *, last: bool) -> list[str]:
        """Resume the session and let it end. Return what was wrong with that."""
        self.story.goes_on()
        self.files.killed = False
        which = ("--last",) if last else (session,)
        done = self.place.run("exec", *self.options, "resume", *which, "go on")
        if done.code:
            return [f"resume ended with {done.code}: {done.err[-2000:]}{done.out[-2000:]}"]
        said = [item["text"] for item in done.items() if item["type"] == "agent_message"]
        problems = [] if said[-1:] == [LAST_WORDS] else [f"resume ended with the words {said[-1:]}"]
        warned = [line for line in done.lines if line["type"] == "error" and "parent_thread_id" not in line]
        return problems + [f"resume warned: {line}" for line in warned]

    def problems(self, when: str) -> list[str]:
        """What is wrong with what was left on disk and in the process table."""
        log = self.place.cwd / LOG
        logged = Counter(log.read_text().split()) if log.exists() else Counter[str]()
        problems = [f"{call_id} ran {times} times" for call_id, times in logged.items() if times > 1]
        problems += [f"{call_id} was never asked for" for call_id in logged if call_id not in self.story.logged]
        left = self._processes()
        return [f"{when}: {one}" for one in (*left, *self.files.problems(), *problems, *self._sessions())]

    def lost(self) -> list[str]:
        """Calls that the model believes done, and that left no trace."""
        logged = (self.place.cwd / LOG).read_text().split()
        done = [call_id for call_id, text in self.story.answers.items() if "aborted" not in text]
        return [f"{one} is said to be done" for one in done if one in self.story.logged and one not in logged]

    def _sessions(self) -> list[str]:
        return [
            f"{path.name}: {stored.skipped_lines} lines cannot be read"
            for path in stored_rollouts(str(self.place.home))
            if b"\n" in path.read_bytes() and (stored := read_rollout(path)).skipped_lines > 1
        ]

    def _processes(self) -> list[str]:
        """Wait until the processes have ended, and the sandbox's helper has taken away its own; return those that
        stay."""
        deadline = time.monotonic() + ENDING
        while (left := self._alive()) or (self.files.left() and time.monotonic() < deadline):
            if time.monotonic() > deadline:
                return [f"process left: {one}" for one in left]
            time.sleep(0.02)
        return []

    def _alive(self) -> list[Process]:
        here = f"{self.place.cwd}/"
        return [one for one in processes(self.place.cwd) if f"{one.cwd}/".startswith(here)]


def after(seconds: float) -> Moment:
    """This long after the start."""
    return Moment(f"after {seconds:.3f} s", lambda scene: time.monotonic() >= scene.started + seconds)


def at_request(number: int, seconds: float) -> Moment:
    """This long after the server has read this many requests."""

    def come(scene: Scene) -> bool:
        asked = [request for request in scene.server.requests if request.arrived_ns]
        return len(asked) >= number and time.monotonic_ns() >= asked[number - 1].arrived_ns + seconds * 1e9

    return Moment(f"{seconds * 1000:.1f} ms after request {number}", come)


def at_size(size: int) -> Moment:
    """As soon as the session files have this many bytes."""
    return Moment(f"at {size} bytes of session files", lambda scene: scene.size() >= size)


def at_change(number: int, where: str) -> Moment:
    """At the N-th change of the disk: before it, in the middle, or after it."""
    return Moment(f"{where} change {number} of the disk", knife=f"{number}:{where}")


@dataclass(frozen=True)
class Course:
    """How a run goes that nobody kills."""

    first: float
    seconds: float
    requests: int
    size: int
    changes: int = MOST_CHANGES

    def draw(self, rng: random.Random) -> Moment:
        """Return a moment of it."""
        kind = rng.choice(["time", "request", "size", "change"])
        if kind == "change":
            return at_change(rng.randint(1, self.changes), rng.choice(["before", "half", "after"]))
        if kind == "time":
            return after(rng.uniform(self.first, self.seconds))
        if kind == "request":
            return at_request(rng.randint(1, self.requests), rng.expovariate(1 / 0.05))
        return at_size(rng.randint(1, self.size))


def play(scene: Scene) -> tuple[Course, list[str]]:
    """Let a session go its whole way."""
    begun: list[float] = []

    def never(scene: Scene) -> bool:
        if not begun and scene.server.requests:
            begun.append(time.monotonic() - scene.started)
        return False

    scene.run_and_kill(["go"], Moment("never", never))
    seconds = time.monotonic() - scene.started
    course = Course(begun[0] if begun else seconds, seconds, len(scene.server.requests), scene.size())
    return course, [*scene.story.problems, *scene.server.failures, *scene.problems("unkilled"), *scene.lost()]


def kill(scene: Scene, moment: Moment, again: Moment | None, *, last: bool) -> tuple[bool, list[str]]:
    """Kill a session at a moment, perhaps once more while it goes on, then let it go on to its end. Return whether it
    had begun, and what is wrong."""
    scene.run_and_kill(["go"], moment)
    problems = scene.problems("after the kill")
    session = scene.session()
    if session is not None and again is not None:
        scene.story.goes_on()
        scene.run_and_kill(["resume", session, "go on"], again)
        problems += scene.problems("after the second kill")
    if session is not None:
        problems += scene.go_on(session, last=last)
        problems += [*scene.problems("at the end"), *scene.lost()]
    return session is not None, [*problems, *scene.story.problems, *scene.server.failures]


def listed(scene: Scene, session: str) -> list[str]:
    """What is wrong with the list of sessions."""
    done = scene.place.run("sessions", "list", "--json")
    if done.code or session not in done.out:
        return [f"sessions list ended with {done.code}, without {session}: {done.err}"]
    return []


def folder_of(root: Path, number: int) -> Place:
    """A new place below `root`."""
    cwd = root / str(number) / "work"
    cwd.mkdir(parents=True)
    return Place(cwd.resolve(), root / str(number) / "home")
