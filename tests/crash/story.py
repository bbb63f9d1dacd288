"""The model's side of a session that is killed. It survives, and goes on with whoever asks it next."""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ferrule.history.compaction import SUMMARY_PROMPT
from ferrule.protocol.specs import Wire
from ferrule.testing import Item, Request, Step, Usage, custom_tool_call, function_call, http_error, reasoning, step
from ferrule.testing.steps import Raw
from tests.crash.files import LOG, Files
from tests.crash.wires import refusals

WINDOW = 100_000
NEARLY_FULL = 90_000
LAST_WORDS = "all is done"
CHILD = re.compile(r"CHILD (\d+)")
RUNNING = re.compile(r"running with session ID (\d+)")
BROKEN_OFF = "aborted"
TOOLS = (
    "exec_command", "write_stdin", "shell_command", "apply_patch", "update_plan", "read_file",
    "spawn_agent", "wait", "resume_agent",
)  # fmt: skip


@dataclass
class Story:
    """What the model does, request by request. All calls have ids of their own; each command writes its id to a log."""

    files: Files
    wire: Wire
    problems: list[str] = field(default_factory=list)
    logged: set[str] = field(default_factory=set)
    """Calls that write their id."""
    answers: dict[str, str] = field(default_factory=dict)
    """What the model has read, by call."""
    summaries: int = 0
    running: int | None = None
    """The number of a command that was left running."""
    _patched: dict[str, dict[str, int]] = field(default_factory=dict)
    _agents: list[str] = field(default_factory=list)
    _spawned: int = 0
    _first: list["Act"] = field(default_factory=list)
    _places: Counter[str] = field(default_factory=Counter)
    _ids: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Step | Raw:
        """Answer a request; called on the server's thread."""
        with self._lock:
            wrong = refusals(request)
            if wrong:
                self.problems += [f"refused: {one}" for one in wrong]
                return http_error(400, "; ".join(wrong))
            if SUMMARY_PROMPT in request.user_text:
                self.summaries += 1
                return step("The files are being changed, version by version.")
            child = CHILD.search(request.user_text)
            lane = "root" if child is None else f"child{child[1]}"
            self._read(request)
            return self._next(lane)

    def _read(self, request: Request) -> None:
        """Take what the calls have answered. It may never change."""
        for output in request.outputs:
            if (left := RUNNING.search(output.text)) is not None and output.call_id not in self.answers:
                self.running = int(left[1])
            before = self.answers.setdefault(output.call_id, output.text)
            if before != output.text:
                self.problems.append(f"{output.call_id} answered {before!r} and later {output.text!r}")
            if BROKEN_OFF in output.text:
                continue
            if output.call_id in self._patched and "Success" not in output.text:
                self.problems.append(f"{output.call_id}, a patch, answered {output.text!r}")
            for name, version in self._patched.pop(output.call_id, {}).items():
                self.files.applied(name, version)
            if '"agent_id"' in output.text and (found := str(json.loads(output.text)["agent_id"])) not in self._agents:
                self._agents.append(found)

    def _next(self, lane: str) -> Step:
        acts = ROOT if lane == "root" else CHILDREN
        if lane == "root" and self._first:
            return self._first.pop(0)(self, lane)
        place = self._places[lane]
        self._places[lane] += 1
        return acts[place](self, lane) if place < len(acts) else step(LAST_WORDS)

    def call(self, lane: str, name: str, **arguments: object) -> Item:
        """A call with an id of its own."""
        return function_call(name, arguments, call_id=self._id(lane))

    def command(self, lane: str, then: str = "true", name: str = "exec_command", **more: object) -> Item:
        """A command that writes the id of its call to the log, then does more."""
        call_id = self._id(lane)
        self.logged.add(call_id)
        script = f"echo {call_id} >> {LOG}; {then}"
        return function_call(name, {"cmd" if name == "exec_command" else "command": script, **more}, call_id=call_id)

    def patch(self, lane: str, text: str, *names: str) -> Item:
        """A patch of these files, in the form that the wire can carry."""
        call_id = self._id(lane)
        self._patched[call_id] = {name: self.files.newest(name) for name in names}
        if self.wire == "responses":
            return custom_tool_call("apply_patch", text, call_id=call_id)
        return function_call("apply_patch", {"input": text}, call_id=call_id)

    def spawn(self, lane: str) -> Item:
        """A call that starts a child, with a task of its own."""
        self._spawned += 1
        return self.call(lane, "spawn_agent", message=f"CHILD {self._spawned}")

    def goes_on(self) -> None:
        """Take that the session was killed and goes on: so do the children that the model knows."""
        self.running = None
        if self._agents:
            self._first = [_resume_children, _wait]

    @property
    def agents(self) -> list[str]:
        """The children that the model knows."""
        return list(self._agents)

    def _id(self, lane: str) -> str:
        self._ids[lane] += 1
        return f"{lane}-{self._ids[lane]}"


Act = Callable[[Story, str], Step]


def says(*items: Item | str, full: bool = False) -> Step:
    """One answer; `full`: the context nearly is."""
    return step(*items, delta_chars=4000, usage=Usage(NEARLY_FULL if full else 2_000, 100))


def _side_by_side(story: Story, lane: str) -> Step:
    return says(
        reasoning("First some calls at once."),
        story.command(lane),
        story.command(lane, "sleep 0.15; echo slept"),
        story.patch(lane, story.files.update("one.txt", "two.txt"), "one.txt", "two.txt"),
        story.command(lane, name="shell_command"),
        story.call(lane, "update_plan", plan=[{"step": "change the files", "status": "in_progress"}]),
    )


def _start_children(story: Story, lane: str) -> Step:
    return says(story.spawn(lane), story.spawn(lane), story.command(lane))


def _fill_up(story: Story, lane: str) -> Step:
    return says(
        story.command(lane, "seq 1 2000"),
        story.patch(lane, story.files.update("one.txt"), "one.txt"),
        story.patch(lane, story.files.add(f"{lane}.new"), f"{lane}.new"),
        full=True,
    )


def _wait(story: Story, lane: str) -> Step:
    waits = [story.call(lane, "wait", ids=[agent]) for agent in story.agents]
    return says(story.command(lane, "sleep 0.1"), *waits)


def _leave_running(story: Story, lane: str) -> Step:
    return says(
        story.command(lane, "sleep 600", tty=True, yield_time_ms=250),
        story.patch(lane, story.files.update("two.txt"), "two.txt"),
    )


def _end_it(story: Story, lane: str) -> Step:
    running = story.running
    typed = [] if running is None else [story.call(lane, "write_stdin", session_id=running, chars="\x03")]
    return says(story.command(lane), *typed)


def _resume_children(story: Story, lane: str) -> Step:
    return says(*(story.call(lane, "resume_agent", id=agent) for agent in story.agents))


def _add_own(story: Story, lane: str) -> Step:
    return says(story.command(lane), story.patch(lane, story.files.add(f"{lane}.new"), f"{lane}.new"))


def _look(story: Story, lane: str) -> Step:
    path = str(story.files.folder / "one.txt")
    return says(story.command(lane, "sleep 0.05"), story.call(lane, "read_file", file_path=path, limit=3))


ROOT: tuple[Act, ...] = (_side_by_side, _start_children, _fill_up, _wait, _leave_running, _end_it)
CHILDREN: tuple[Act, ...] = (_add_own, _look)
