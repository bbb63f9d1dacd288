"""What the model does in a turn. A workload yields the calls of one response and is sent the outputs so far.

To add one: a generator function under `@workload` with the tools that it needs; it is used wherever they exist.
"""

import random
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ferrule import tool
from ferrule.testing import Item, custom_tool_call, function_call

Outputs = Mapping[str, str]
Work = Generator[list[Item], Outputs, None]


@dataclass(slots=True)
class Scene:
    """Where a conversation works, and what was wrong. `calm`: nothing breaks tools here, so outputs must be right.
    `confined`: no command runs outside of the sandbox, whatever is approved."""

    number: int
    rng: random.Random
    folder: Path
    freeform: bool
    writable: bool
    confined: bool
    calm: bool
    problems: list[str] = field(default_factory=list)
    calls: int = 0
    children: int = 0

    def next_child(self) -> int:
        """A number for one more sub-agent."""
        self.children += 1
        return self.children

    def call(self, name: str, **arguments: object) -> Item:
        """A function call under an id of its own."""
        return function_call(name, arguments, call_id=self._next_id())

    def text_call(self, name: str, text: str) -> Item:
        """A call with plain text, in the form that the model was trained on."""
        if self.freeform:
            return custom_tool_call(name, text, call_id=self._next_id())
        return self.call(name, **{"code" if name == "js_repl" else "input": text})

    def expect(self, outputs: Outputs, call: Item, *texts: str) -> None:
        """The call's output, if it is there, holds these texts."""
        output = outputs.get(str(call["call_id"]))
        if self.calm and output is not None and not all(text in output for text in texts):
            self.problems.append(f"{call} answered {output[:600]!r} without {texts}")

    def _next_id(self) -> str:
        self.calls += 1
        return f"soak-{self.number}-{self.calls}"


@dataclass(frozen=True, slots=True)
class Workload:
    """`tools` are names of built-in tools; `mcp`: it needs the MCP server."""

    name: str
    start: Callable[[Scene], Work]
    tools: tuple[str, ...]
    mcp: bool = False


WORKLOADS: dict[str, Workload] = {}


def workload(*tools: str, mcp: bool = False) -> Callable[[Callable[[Scene], Work]], Callable[[Scene], Work]]:
    """Register a generator function."""

    def register(start: Callable[[Scene], Work]) -> Callable[[Scene], Work]:
        WORKLOADS[start.__name__] = Workload(start.__name__, start, tools, mcp)
        return start

    return register


@workload("exec_command")
def many_commands(scene: Scene) -> Work:
    codes = [scene.rng.randrange(100) for _ in range(scene.rng.randrange(1, 6))]
    calls = [
        scene.call("exec_command", cmd=f"echo first; echo last {code}; exit {code}", tty=scene.rng.random() < 0.5)
        for code in codes
    ]
    outputs = yield calls
    for code, call in zip(codes, calls, strict=True):
        scene.expect(outputs, call, f"exited with code {code}\n", f"last {code}")


@workload("exec_command", "write_stdin")
def typed_input(scene: Scene) -> Work:
    start = scene.call("exec_command", cmd="read line; echo got $line; read more", tty=True, yield_time_ms=300)
    outputs = yield [start]
    if number := _session(outputs, start):
        word = f"word{scene.rng.randrange(1000)}"
        typed = scene.call("write_stdin", session_id=number, chars=f"{word}\n", yield_time_ms=1500)
        outputs = yield [typed]
        scene.expect(outputs, typed, f"got {word}")
        if scene.rng.random() < 0.5:
            end = scene.call("write_stdin", session_id=number, chars="\x03", yield_time_ms=1500)
            outputs = yield [end]
            scene.expect(outputs, end, "exited with code")


@workload("exec_command", "write_stdin")
def left_running(scene: Scene) -> Work:
    start = scene.call("exec_command", cmd="sleep 300 & echo on; sleep 300", yield_time_ms=250)
    outputs = yield [start]
    number = _session(outputs, start)
    scene.expect(outputs, start, "on", "running with session ID")
    yield [scene.call("write_stdin", session_id=number or 99, yield_time_ms=250)]
    wrong = scene.call("write_stdin", session_id=424242, chars="x")
    scene.expect((yield [wrong]), wrong, "424242")


def _session(outputs: Outputs, call: Item) -> int | None:
    found = re.search(r"running with session ID (\d+)", outputs.get(str(call["call_id"]), ""))
    return int(found[1]) if found else None


@workload("shell_command")
def scripts(scene: Scene) -> Work:
    daemon = f"(setsid sleep {300 if scene.confined else 2} >/dev/null 2>&1 &)"  # unconfined, it may live on
    calls = [
        scene.call("shell_command", command="seq 1 30000; echo the end"),
        scene.call("shell_command", command="sleep 60", timeout_ms=scene.rng.randrange(50, 400)),
        scene.call("shell_command", command=f"{daemon}; echo away"),
        scene.call("shell_command", command="head -c 3000000 /dev/zero > big; ls -l big; rm -f big"),
        scene.call("shell_command", command="git init -q sub && cd sub && git -c user.name=a -c user.email=b commit "
                   "--allow-empty -q -m first; cd ..; rm -rf sub"),
    ]  # fmt: skip
    outputs = yield calls
    scene.expect(outputs, calls[0], "the end")
    scene.expect(outputs, calls[1], "timed out")
    scene.expect(outputs, calls[2], "away")


@workload("apply_patch", "shell_command")
def patches(scene: Scene) -> Work:
    name = f"file{scene.rng.randrange(10**6)}.txt"
    lines = [f"line {number}" for number in range(scene.rng.randrange(3, 2000))]
    added = "".join(f"+{line}\n" for line in lines)
    add = scene.text_call("apply_patch", f"*** Begin Patch\n*** Add File: {name}\n{added}*** End Patch\n")
    outputs = yield [add]
    if scene.writable:
        scene.expect(outputs, add, "Success", name)
    change = f"@@\n-{lines[1]}\n+changed\n"
    update = scene.text_call("apply_patch", f"*** Begin Patch\n*** Update File: {name}\n{change}*** End Patch\n")
    wrong = scene.text_call("apply_patch", f"*** Begin Patch\n*** Update File: {name}\n@@\n-no\n+x\n*** End Patch\n")
    look = scene.call("shell_command", command=f"sed -n 2p {name}")
    outputs = yield [update, wrong, look]
    if scene.writable:
        scene.expect(outputs, update, "Success")
        scene.expect(outputs, wrong, "no")
        scene.expect(outputs, look, "changed")


@workload("update_plan")
def planning(scene: Scene) -> Work:
    plan = scene.call("update_plan", plan=[{"step": "one", "status": "in_progress"}])
    scene.expect((yield [plan]), plan, "Plan updated")


@workload("read_file", "list_dir", "grep_files")
def looking(scene: Scene) -> Work:
    here = str(scene.folder)
    read = scene.call("read_file", file_path=f"{here}/given.txt")
    listed = scene.call("list_dir", dir_path=here)
    found = scene.call("grep_files", pattern="needle", path=here)
    outputs = yield [read, listed, found, scene.call("read_file", file_path=f"{here}/missing")]
    scene.expect(outputs, read, "L2: needle")
    scene.expect(outputs, listed, "given.txt")
    scene.expect(outputs, found, "given.txt")


@workload("js_repl", "js_repl_reset", "shell_command")
def javascript(scene: Scene) -> Work:
    kept = f"kept{scene.calls}"  # an earlier turn may have been broken off: its names are taken
    first = scene.text_call("js_repl", f"let {kept} = 40;\nconsole.log('hi', {kept} + 2)")
    scene.expect((yield [first]), first, "hi 42")
    tools = scene.text_call("js_repl", "await ferrule.tool('shell_command', {command: 'echo from the kernel'})")
    scene.expect((yield [tools]), tools, "from the kernel")
    endless = scene.text_call("js_repl", "// codex-js-repl: timeout_ms=300\nwhile (true) {}")
    yield [endless if scene.freeform else scene.call("js_repl", code="while (true) {}", timeout_ms=300)]
    again = scene.text_call("js_repl", "6 * 7")
    scene.expect((yield [again]), again, "42")
    if scene.rng.random() < 0.3:
        yield [scene.call("js_repl_reset")]


@workload("execute_bash", "bash")
def kept_shells(scene: Scene) -> Work:
    first = scene.call("execute_bash", command="kept=41; cd /")
    other = scene.call("bash", command="sleep 300 & echo begun")
    yield [first, other]
    second = scene.call("execute_bash", command="echo $((kept + 1)) in $PWD")
    scene.expect((yield [second]), second, "42 in /")
    yield [scene.call("execute_bash", command="sleep 300", timeout=scene.rng.choice([0.2, 1]))]
    yield [scene.call("execute_bash", command="C-c", is_input=True)]
    if scene.rng.random() < 0.5:
        yield [scene.call("execute_bash", command="exit 3"), scene.call("bash", restart=True)]
        again = scene.call("execute_bash", command="echo alive")
        scene.expect((yield [again]), again, "alive")


@workload("file_editor", "glob", "grep", "think", "task_tracker")
def editing(scene: Scene) -> Work:
    path = f"{scene.folder}/edited{scene.rng.randrange(10**6)}.txt"
    made = scene.call("file_editor", command="create", path=path, file_text="one\ntwo\n")
    outputs = yield [made, scene.call("think", thought="hm")]
    changed = scene.call("file_editor", command="str_replace", path=path, old_str="two", new_str="three")
    yield [changed, scene.call("task_tracker", command="view")]
    viewed = scene.call("file_editor", command="view", path=path)
    outputs = yield [viewed, scene.call("file_editor", command="undo_edit", path=path)]
    if scene.writable:
        scene.expect(outputs, viewed, "three")
    found = scene.call("grep", pattern="needle", path=str(scene.folder))
    yield [found, scene.call("glob", pattern="*.txt", path=str(scene.folder))]


@workload(mcp=True)
def server_tools(scene: Scene) -> Work:
    echo = scene.call("mcp__stub__echo", text="hello")
    outputs = yield [echo, scene.call("mcp__stub__progress")]
    scene.expect(outputs, echo, "ECHO: hello")
    if scene.rng.random() < 0.5:
        yield [scene.call("mcp__stub__die"), scene.call("mcp__stub__grow")]
        yield [scene.call("mcp__stub__echo", text="again"), scene.call("list_mcp_resources")]


@workload("python", "shell_command")
def python_cells(scene: Scene) -> Work:
    first = scene.call("python", code="kept = 40\nprint('hi', kept + 2)")
    scene.expect((yield [first]), first, "hi 42")
    tools = scene.call("python", code="print(call_tool('shell_command', {'command': 'echo from the kernel'}))")
    scene.expect((yield [tools]), tools, "from the kernel")
    yield [scene.call("python", code="while True: pass", timeout_ms=300)]
    again = scene.call(
        "python", code="import subprocess\nsubprocess.Popen(['sleep', '300'])\n40 + 2"
    )  # maybe a new one
    scene.expect((yield [again]), again, "42")


@workload("spawn_agent", "wait", "send_input", "close_agent", "shell_command")
def children(scene: Scene) -> Work:
    numbers = [scene.next_child() for _ in range(scene.rng.randint(1, 2))]
    spawned = [scene.call("spawn_agent", message=child_task(scene.number, number)) for number in numbers]
    outputs = yield spawned
    agents = [found[1] for call in spawned if (found := _AGENT.search(outputs.get(str(call["call_id"]), "")))]
    if not agents or scene.rng.random() < 0.2:
        return  # the session ends with its children at work
    waits = [scene.call("wait", ids=[agent], timeout_ms=20_000) for agent in agents]
    outputs = yield waits
    for number, call in zip(numbers, waits, strict=False):
        scene.expect(outputs, call, f"Child {number} has done it.")
    if scene.rng.random() < 0.5:
        yield [scene.call("send_input", id=agents[0], message="And what else?")]
        yield [scene.call("wait", ids=agents[:1], timeout_ms=20_000)]
    yield [scene.call("close_agent", id=agent) for agent in agents]


_AGENT = re.compile(r'"agent_id": ?"([^"]+)"')
_CHILD = re.compile(r"CHILD (\d+)")


def child_task(number: int, child: int) -> str:
    """What a sub-agent of conversation `number` is told."""
    return f"<soak-{number}> CHILD {child}"


def child_number(text: str) -> int | None:
    """Which sub-agent was told this, if one was."""
    found = _CHILD.search(text)
    return int(found[1]) if found else None


@workload(mcp=True)
def web_tools(scene: Scene) -> Work:
    calls = [scene.call("mcp__web__echo", text=f"hello {number}") for number in range(scene.rng.randint(1, 4))]
    for call in calls:
        scene.expect((yield [call]), call, "ECHO: hello")


@workload()
def functions(scene: Scene) -> Work:
    double = scene.call("soak_double", number=21)
    calls = [double, scene.call("soak_blocks"), scene.call("soak_fails"), scene.call("soak_double", number="x")]
    scene.expect((yield calls), double, "42")


@workload()
def nonsense(scene: Scene) -> Work:
    unknown = scene.call("no_such_tool", x=1)
    broken = function_call("soak_double", '{"number": 2', call_id=f"{unknown['call_id']}-broken")
    empty = function_call("soak_blocks", "", call_id=f"{unknown['call_id']}-empty")
    scene.expect((yield [unknown, broken, empty]), unknown, "no_such_tool")


@tool(read_only=True)
async def soak_double(number: int) -> int:
    """Twice the number."""
    return number * 2


@tool(read_only=True)
def soak_blocks() -> str:
    """Blocks a thread for a moment."""
    time.sleep(0.2)
    return "done"


@tool
def soak_fails() -> str:
    """Always fails."""
    raise ValueError("this tool always fails")


FUNCTIONS = (soak_double, soak_blocks, soak_fails)
