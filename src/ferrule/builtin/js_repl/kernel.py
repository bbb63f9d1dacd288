"""The host's side of a kernel: one Node process, JSON lines over its pipes, one cell at a time."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from ferrule.builtin.output_text import output_text
from ferrule.process.capture import HeadTail
from ferrule.process.launcher import Child, ExitStatus, Launcher, LaunchError, Limits, Pipes
from ferrule.process.run import DRAIN_GRACE, UNDYING_GRACE, uninterrupted
from ferrule.process.streams import Reader, Writer
from ferrule.protocol.errors import Fatal, FerruleError, RespondToModel
from ferrule.protocol.json_text import JsonValue, encodable

KERNEL = Path(__file__).with_name("kernel.js")
OPTIONS = ("--expose-internals", "--disable-warning=ExperimentalWarning")
"""The kernel asks Node's own parser for imports, and its loader of modules is called experimental."""
OWN_PIPES = 'exec "$@" 3<&0 4>&1 </dev/null >&2'
"""Messages get descriptors of their own: what a cell starts with the kernel's standard ones neither reads nor forges
them, and what it writes is output."""
MAX_LINE = 64 * 1024 * 1024
"""Bytes of one message: a cell's images and text are far below; more is no message of the kernel."""
STDERR_TAIL = 1024
"""Characters of what Node itself said on stderr that a model is told when the kernel dies."""

CallTool = Callable[[str, str, bool], Awaitable[JsonValue]]
"""Calls a tool by name; the text is JSON arguments, or with True what a cell gave as plain text."""


class CellResult(msgspec.Struct, frozen=True, tag="exec_result", tag_field="type"):
    """The outcome of a cell. `output`: what it printed; `images`: data URLs; `inherited`: what its children wrote to
    the kernel's own outputs."""

    id: str
    ok: bool
    output: str = ""
    error: str | None = None
    images: tuple[str, ...] = ()
    inherited: str = ""


class _RunTool(msgspec.Struct, frozen=True, tag="run_tool", tag_field="type"):
    id: str
    exec_id: str
    tool_name: str
    arguments: str
    raw: bool = False


class _Exec(msgspec.Struct, frozen=True, tag="exec", tag_field="type"):
    id: str
    code: str


class _ToolResult(msgspec.Struct, frozen=True, tag="run_tool_result", tag_field="type"):
    id: str
    ok: bool
    response: JsonValue = None
    error: str | None = None


_messages = msgspec.json.Decoder(CellResult | _RunTool)


class KernelDied(FerruleError):
    """The process ended while a cell ran; the text says how."""


class Kernel:
    """One Node process. Not used again after a timeout, an interruption or its death."""

    def __init__(self, child: Child, sandboxed: bool) -> None:
        self.sandboxed = sandboxed
        self._child = child
        assert child.stdin is not None and child.stderr is not None
        self._writer = Writer(child.stdin)
        self._stdout = Reader(child.stdout, self._read)
        self._stderr = Reader(child.stderr, self._read_stderr)
        self._line = bytearray()
        self._said = ""
        self._inherited = HeadTail()
        self._running: _Running | None = None
        self._death: str | None = None
        self._watcher = asyncio.create_task(self._watch())

    @classmethod
    async def start(
        cls, launcher: Launcher, node: str, env: Mapping[str, str], cwd: str, *, sandboxed: bool
    ) -> "Kernel":
        """Start a kernel. Raises `LaunchError`."""
        argv = ("/bin/sh", "-c", OWN_PIPES, "sh", node, *OPTIONS, str(KERNEL))
        return cls(await launcher.launch(argv, env, cwd, Pipes(stdin=True), Limits()), sandboxed)

    @property
    def death(self) -> str | None:
        """The exit status; None while it runs."""
        return self._death

    async def run(self, code: str, timeout_ms: int, call_tool: CallTool) -> CellResult:
        """Evaluate a cell. While it waits for tools its time stands still.

        Raises `KernelDied` and `TimeoutError`; then, and when it is cancelled, the kernel is gone.
        """
        running = self._running = _Running(secrets.token_hex(4), call_tool, self._write)
        try:
            async with asyncio.timeout(timeout_ms / 1000) as running.clock:
                self._write(_Exec(running.id, encodable(code)))
                if self._death is not None:
                    raise KernelDied(self._death)
                result = await running.result
                written = output_text(self._inherited.drain(final=True))
                return msgspec.structs.replace(result, inherited=written.text)
        except (TimeoutError, asyncio.CancelledError):
            await uninterrupted(self.kill())
            raise
        finally:
            self._running = None
            await running.end()

    async def kill(self) -> None:
        """End the process and all that it started. What runs on it fails."""
        await self._child.kill_tree()
        await asyncio.wait({self._watcher}, timeout=UNDYING_GRACE)

    def _write(self, message: "_Exec | _ToolResult") -> None:
        self._writer.write(msgspec.json.encode(message) + b"\n")

    def _read(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for piece in whole:
            line = bytes(self._line) + piece
            self._line.clear()
            self._take(line)
        if len(self._line) + len(rest) <= MAX_LINE:
            self._line += rest

    def _take(self, line: bytes) -> None:
        """Read a message; ignore anything else."""
        running = self._running
        if running is None:
            return
        with suppress(msgspec.DecodeError, UnicodeError):
            message = _messages.decode(line)
            if isinstance(message, _RunTool):
                running.start_tool(message)
            elif message.id == running.id and not running.result.done():
                running.result.set_result(message)

    def _read_stderr(self, data: bytes) -> None:
        self._inherited.write(data)
        self._said = (self._said + data.decode(errors="replace"))[-STDERR_TAIL:]

    async def _watch(self) -> None:
        try:
            death = await self._last_moments()
        except asyncio.CancelledError:  # the event loop ends, and nothing may outlive it
            await uninterrupted(self._child.kill_tree())
            raise
        finally:
            for end in (self._stdout, self._stderr, self._writer):
                end.close()
        self._death = death
        if self._running is not None and not self._running.result.done():
            self._running.result.set_exception(KernelDied(self._death))

    async def _last_moments(self) -> str:
        try:
            status = await self._child.wait()
        except LaunchError as error:  # the sandbox was killed, and the process with it
            return f"js_repl kernel exited unexpectedly: {error}"
        await asyncio.gather(self._stdout.finish(DRAIN_GRACE), self._stderr.finish(DRAIN_GRACE))
        await self._child.leftovers(output_held=False)
        return _obituary(status, self._said)


class _Running:
    """The running cell and the tools that it has called."""

    def __init__(self, cell_id: str, call_tool: CallTool, answer: Callable[[_ToolResult], None]) -> None:
        self.id = cell_id
        self.result: asyncio.Future[CellResult] = asyncio.get_running_loop().create_future()
        self.clock = asyncio.timeout(None)
        self._call_tool = call_tool
        self._answer = answer
        self._tools: set[asyncio.Task[None]] = set()
        self._left = 0.0

    def start_tool(self, message: _RunTool) -> None:
        if message.exec_id != self.id:
            return
        if not self._tools:
            self._left = (self.clock.when() or 0.0) - asyncio.get_running_loop().time()
            self._set_clock(None)
        task = asyncio.create_task(self._run_tool(message))
        self._tools.add(task)
        task.add_done_callback(self._tool_done)

    def _tool_done(self, task: "asyncio.Task[None]") -> None:
        self._tools.discard(task)
        if not self._tools:
            self._set_clock(asyncio.get_running_loop().time() + self._left)

    def _set_clock(self, when: float | None) -> None:
        with suppress(RuntimeError):  # the cell is over
            self.clock.reschedule(when)

    async def _run_tool(self, message: _RunTool) -> None:
        try:
            response = await self._call_tool(message.tool_name, message.arguments, message.raw)
        except RespondToModel as error:
            self._answer(_ToolResult(message.id, False, error=str(error)))
        except Fatal as error:
            if not self.result.done():
                self.result.set_exception(error)
        else:
            self._answer(_ToolResult(message.id, True, response))

    async def end(self) -> None:
        """End the tools that still run; nobody waits for them any more."""
        self.result.cancel()
        for task in self._tools:
            task.cancel()
        if self._tools:
            await asyncio.wait(set(self._tools), timeout=UNDYING_GRACE)


def _obituary(status: ExitStatus, said: str) -> str:
    how = f"exited with code {status.code}" if status.code is not None else f"was ended by signal {status.signal}"
    facts = {"kernel_status": how, "kernel_stderr_tail": " | ".join(said.split("\n")).strip(" |")}
    return f"js_repl kernel exited unexpectedly\n\njs_repl diagnostics: {msgspec.json.encode(facts).decode()}"
