"""A kernel: a process that evaluates cells of code, one at a time, and keeps what they define.

The host and the kernel exchange JSON objects, one a line, over descriptors of their own: the kernel reads 3 and writes
4. So what a cell or its children write to the standard descriptors is output, never a message.

    host    {"type": "exec", "id", "code", "interrupts", "tools"}
            {"type": "run_tool_result", "id", "ok", "response", "error"}
    kernel  {"type": "exec_result", "id", "ok", "output", "error", "images"}
            {"type": "run_tool", "id", "exec_id", "tool_name", "arguments", "raw"}

`interrupts` counts the SIGINTs sent for earlier cells: one that arrives late is not for this cell. `tools` says that
the cell may send `run_tool`; each is answered, unless the cell's result came before it.
"""

import asyncio
import contextvars
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from ferrule.process.capture import Captured, HeadTail
from ferrule.process.launcher import Child, ExitStatus, Launcher, LaunchError, Limits, Pipes
from ferrule.process.run import DRAIN_GRACE, UNDYING_GRACE
from ferrule.process.streams import Reader, Writer
from ferrule.protocol.errors import Fatal, FerruleError, RespondToModel
from ferrule.protocol.json_text import JsonValue, encodable
from ferrule.sync import uninterrupted

log = logging.getLogger("ferrule.process")

OWN_PIPES = 'exec "$@" 3<&0 4>&1 </dev/null >&2'
"""Moves the pipes to the kernel's own descriptors. Standard input is empty; standard output joins standard error."""
MAX_LINE = 64 * 1024 * 1024
"""Bytes of one message: a cell's images and text are far below; more is no message of the kernel."""
SAID = 1024
"""Characters kept of what was last written to the standard descriptors, to tell why a kernel died."""
MAX_TOOLS = 256
"""Tools that one cell waits for at a time, as many as one response of a model may call."""
INTERRUPTED = "not run to its end: the cell was interrupted"
ID_BYTES = 16
"""Of a cell's id: too many to guess for a cell that writes messages itself."""

IMAGE = "data:image/"
"""How the URL of an image begins that holds the image itself."""

CallTool = Callable[[str, str, bool], Awaitable[JsonValue]]
"""Calls a tool by name; the text is JSON arguments, or with True what a cell gave as plain text."""


class CellResult(msgspec.Struct, frozen=True):
    """The outcome of a cell. `output`: what the kernel says that it printed; `images`: data URLs; `inherited`: what was
    written to the standard descriptors; `interrupted`: the time limit was reached, and the cell has obeyed."""

    ok: bool
    output: str = ""
    error: str | None = None
    images: tuple[str, ...] = ()
    inherited: Captured = Captured(b"")
    interrupted: bool = False


class KernelLost(FerruleError):
    """The kernel is gone, and the cell with it. `written`: what was written to the standard descriptors before."""

    def __init__(self, message: str, written: Captured = Captured(b"")) -> None:  # noqa: B008 - frozen
        super().__init__(message)
        self.written = written


class CellTimedOut(KernelLost):
    """The time limit was reached, and the cell did not end."""


class KernelDied(KernelLost):
    """The process ended while a cell ran. The text says how; `status` is None if its sandbox ended; `said` is the end
    of what was written."""

    def __init__(self, message: str, status: ExitStatus | None, said: str, written: Captured = Captured(b"")) -> None:  # noqa: B008
        super().__init__(message, written)
        self.status = status
        self.said = said


class _Result(msgspec.Struct, frozen=True, tag="exec_result", tag_field="type"):
    id: str
    ok: bool
    output: str = ""
    error: str | None = None
    images: tuple[str, ...] = ()


class _RunTool(msgspec.Struct, frozen=True, tag="run_tool", tag_field="type"):
    id: str
    exec_id: str
    tool_name: str
    arguments: str
    raw: bool = False


class _Exec(msgspec.Struct, frozen=True, tag="exec", tag_field="type", omit_defaults=True):
    id: str
    code: str
    interrupts: int = 0
    tools: bool = False


class _ToolResult(msgspec.Struct, frozen=True, tag="run_tool_result", tag_field="type"):
    id: str
    ok: bool
    response: JsonValue = None
    error: str | None = None


_messages = msgspec.json.Decoder(_Result | _RunTool)


class Kernel:
    """One process. `grace`: seconds in which an interrupted cell has to end; None if a cell cannot be interrupted."""

    def __init__(self, child: Child, grace: float | None = None) -> None:
        self._child = child
        self._grace = grace
        assert child.stdin is not None and child.stderr is not None
        self._writer = Writer(child.stdin)
        self._stdout = Reader(child.stdout, self._read)
        self._stderr = Reader(child.stderr, self._read_stderr)
        self._line = bytearray()
        self._said = ""
        self._inherited = HeadTail()
        self._running: _Running | None = None
        self._death: KernelDied | None = None
        self._killed = False
        self._interrupts = 0
        self._watcher = asyncio.create_task(self._watch())

    @classmethod
    async def start(
        cls,
        launcher: Launcher,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        *,
        preamble: bytes = b"",
        grace: float | None = None,
    ) -> "Kernel":
        """Start `argv`, which reads `preamble` on descriptor 3 before any message. Raises `LaunchError`."""
        moved = ("/bin/sh", "-c", OWN_PIPES, "sh", *argv)
        kernel = cls(await launcher.launch(moved, env, cwd, Pipes(stdin=True), Limits()), grace)
        kernel._writer.write(preamble)
        return kernel

    @property
    def death(self) -> str | None:
        """How the process ended; None while it runs."""
        return None if self._death is None else str(self._death)

    @property
    def lost(self) -> bool:
        """True once it evaluates no more cells: it has ended, or was killed."""
        return self._killed or self._death is not None

    async def run(self, code: str, timeout_ms: int, call_tool: CallTool | None = None) -> CellResult:
        """Evaluate a cell. While it waits for tools its time stands still.

        At the time limit, and when the caller is cancelled, the cell is interrupted; if it then does not end in time,
        the kernel is killed. Raises `CellTimedOut` and `KernelDied`, which end the kernel.
        """
        running = self._running = _Running(secrets.token_hex(ID_BYTES), call_tool, self._write)
        try:
            async with asyncio.timeout(timeout_ms / 1000) as running.clock:
                if self._death is not None:
                    raise self._death
                self._write(_Exec(running.id, encodable(code), self._interrupts, call_tool is not None))
                return self._finished(await asyncio.shield(running.result))
        except TimeoutError as error:
            on_time = running.value is not None
            await uninterrupted(self._stop(running))
            if (result := running.value) is None:
                written = self._death.written if self._death is not None else self._take_written()
                raise CellTimedOut(f"the cell ran longer than {timeout_ms} ms", written) from error
            return msgspec.structs.replace(self._finished(result), interrupted=not on_time)
        except (asyncio.CancelledError, Fatal):
            await uninterrupted(self._stop(running))
            self._take_written()  # it belongs to no later cell
            raise
        finally:
            self._running = None
            await running.end()

    async def interrupt(self) -> None:
        """Send SIGINT to the kernel and to what its cells have started."""
        self._interrupts += 1
        await self._child.interrupt()

    async def kill(self) -> None:
        """End the process and all that it started. What runs on it fails."""
        self._killed = True
        await self._child.kill_tree()
        await asyncio.wait({self._watcher}, timeout=UNDYING_GRACE)

    async def _stop(self, running: "_Running") -> None:
        """Interrupt the cell; kill the kernel if that does not end it."""
        if self._grace is not None and running.value is None:
            await self.interrupt()
            running.stop_tools()
            await asyncio.wait({running.result}, timeout=self._grace)
        if running.value is None:
            await self.kill()

    def _finished(self, result: _Result) -> CellResult:
        # A cell can write a result of its own: an address would let it speak to the network through whoever looks.
        images = tuple(url for url in result.images if url.startswith(IMAGE))
        return CellResult(result.ok, result.output, result.error, images, self._take_written())

    def _take_written(self) -> Captured:
        self._stderr.catch_up()
        return self._inherited.drain(final=True)

    def _write(self, message: "_Exec | _ToolResult") -> None:
        self._writer.write(_encoded(message) + b"\n")

    def _read(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for piece in whole:
            line = bytes(self._line) + piece
            self._line.clear()
            self._take(line)
        if len(self._line) + len(rest) <= MAX_LINE:
            self._line += rest

    def _take(self, line: bytes) -> None:
        """Read a message; ignore anything else, however strange."""
        running = self._running
        if running is None:
            return
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            message = _messages.decode(line)
            if isinstance(message, _RunTool):
                running.start_tool(message)
            elif message.id == running.id and not running.result.done():
                running.result.set_result(message)

    def _read_stderr(self, data: bytes) -> None:
        self._inherited.write(data)
        self._said = (self._said + data.decode(errors="replace"))[-SAID:]

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
            self._running.result.set_exception(death)

    async def _last_moments(self) -> KernelDied:
        try:
            status = await self._child.wait()
        except LaunchError as error:  # the sandbox was killed, and the process with it
            return KernelDied(str(error), None, self._said, self._inherited.drain())
        await asyncio.gather(self._stdout.finish(DRAIN_GRACE), self._stderr.finish(DRAIN_GRACE))
        await self._child.leftovers(output_held=False)
        return KernelDied(_how(status), status, self._said, self._inherited.drain())


class _Running:
    """The running cell and the tools that it has called."""

    def __init__(self, cell_id: str, call_tool: CallTool | None, answer: Callable[[_ToolResult], None]) -> None:
        self.id = cell_id
        self.result: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self.clock = asyncio.timeout(None)
        self._call_tool = call_tool
        self._answer = answer
        self._tools: set[asyncio.Task[None]] = set()
        self._context = contextvars.copy_context()
        self._left = 0.0
        self._stopped = False

    @property
    def value(self) -> _Result | None:
        """The result, if the cell has ended with one."""
        done = self.result.done() and not self.result.cancelled() and self.result.exception() is None
        return self.result.result() if done else None

    def start_tool(self, message: _RunTool) -> None:
        if message.exec_id != self.id or self._call_tool is None or self.result.done():
            return
        if self._stopped or len(self._tools) >= MAX_TOOLS:
            why = INTERRUPTED if self._stopped else f"not run: a cell waits for at most {MAX_TOOLS} tools at a time"
            self._answer(_ToolResult(message.id, False, error=why))
            return
        if not self._tools:
            self._left = (self.clock.when() or 0.0) - asyncio.get_running_loop().time()
            self._set_clock(None)
        # Messages are read in the context in which the kernel was started: it is another call's.
        task = asyncio.create_task(self._run_tool(message, self._call_tool), context=self._context.copy())
        self._tools.add(task)
        task.add_done_callback(partial(self._tool_done, message))

    def _tool_done(self, message: _RunTool, task: "asyncio.Task[None]") -> None:
        self._tools.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("the call of %s by a cell failed", message.tool_name, exc_info=error)
        if (task.cancelled() or error is not None) and not self.result.done():
            why = INTERRUPTED if error is None else f"{message.tool_name} failed: {type(error).__name__}"
            self._answer(_ToolResult(message.id, False, error=why))
        if not self._tools:
            self._set_clock(asyncio.get_running_loop().time() + self._left)

    def _set_clock(self, when: float | None) -> None:
        with suppress(RuntimeError):  # the cell is over
            self.clock.reschedule(when)

    async def _run_tool(self, message: _RunTool, call_tool: CallTool) -> None:
        try:
            response = await call_tool(message.tool_name, message.arguments, message.raw)
        except RespondToModel as error:
            self._answer(_ToolResult(message.id, False, error=str(error)))
        except Fatal as error:
            if not self.result.done():
                self.result.set_exception(error)
        else:
            self._answer(_ToolResult(message.id, True, response))

    def stop_tools(self) -> None:
        """End the tools that run, and answer them and later ones: the cell is to end."""
        self._stopped = True
        for task in self._tools:
            task.cancel()

    async def end(self) -> None:
        """End the tools that still run; nobody waits for them any more."""
        self.result.cancel()
        if not self.result.cancelled():
            self.result.exception()  # it was told, or nobody is left to be told
        for task in self._tools:
            task.cancel()
        if self._tools:
            await asyncio.wait(set(self._tools), timeout=UNDYING_GRACE)


def _encoded(message: "_Exec | _ToolResult") -> bytes:
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:  # halves of surrogate pairs, which this escapes
        return json.dumps(msgspec.to_builtins(message)).encode()


def _how(status: ExitStatus) -> str:
    return f"exited with code {status.code}" if status.code is not None else f"was ended by signal {status.signal}"
