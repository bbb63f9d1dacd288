"""The Python kernel's inside: it evaluates cells and keeps what they define.

Ferrule sends this file as text, after `python_tools` and `python_shown`, and never imports it: it has to run where
Ferrule is not, under any Python from 3.8 on, with the standard library alone. For the messages see
`ferrule.process.kernel`. All that cells print, and the value of a last expression, goes to the standard descriptors in
the order in which it is written; errors and images are in the result. The kernel has its own `builtins` and its own
`__main__`: a cell may change its own. Where the host lends tools, cells have `call_tool` and `ToolError`.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import fcntl
import io
import json
import linecache
import os
import select
import signal
import sys
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the kernel evaluates them before this file, in the same namespace
    from ferrule.process.python_shown import PyplotFinder, cut, display, displayhook, show_figures, shown
    from ferrule.process.python_tools import Tools

REQUESTS, ANSWERS = 3, 4
LOST_DESCRIPTOR = 79
"""The exit code that says that a cell closed or replaced a descriptor of the kernel."""
MAX_SOURCES = 1000
"""Cells whose lines tracebacks can show."""
LATE = 1
"""Seconds that a SIGINT may be on its way."""
SPARE = 64
"""Copies of the standard descriptors lie above what cells usually touch."""
CELL = "<cell "
HERE = __file__
set_mask = getattr(sys.modules.get("_signal"), "pthread_sigmask", signal.pthread_sigmask)
"""Without the names of signals, which take a fifth of a millisecond."""
AWAITED = 0x80
"""`inspect.CO_COROUTINE`, without importing `inspect`."""


# ---- errors ----


def described(error: BaseException) -> str:
    """Return the traceback as the interpreter prints it, with the frames of cells and what they call."""
    try:
        told = traceback.TracebackException(type(error), error, error.__traceback__)
        waiting = [told]
        for one in waiting:
            one.stack[:] = of_cells(one.stack)
            more = (one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ()))
            waiting += [each for each in more if each is not None and each not in waiting]
        lines = told.format() if told.stack or len(waiting) > 1 else told.format_exception_only()
        return cut("".join(lines).rstrip("\n"))
    except Exception:  # noqa: BLE001 - the error's own methods may do anything, and memory may be short
        return type(error).__name__


def of_cells(stack: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Leave out the kernel's frames and those through which it reached the cell."""
    if not stack or stack[0].filename != HERE:
        return [frame for frame in stack if frame.filename != HERE]
    first = next((number for number, frame in enumerate(stack) if frame.filename.startswith(CELL)), len(stack))
    return [frame for frame in stack[first:] if frame.filename != HERE]


def status_of(request: SystemExit) -> int:
    """Return the exit code that `sys.exit` asks for."""
    code = request.code
    return 0 if code is None else code & 0xFF if isinstance(code, int) else 1


def told_exit(request: SystemExit) -> str:
    """Tell of `sys.exit`: it ends the cell; the kernel stays, and with it what was defined."""
    said = "" if request.code is None or isinstance(request.code, int) else cut(f"{request.code}\n")
    return f"{said}SystemExit: the cell ended, and the kernel goes on"


# ---- cells ----


class Interpreter:
    """What lasts from cell to cell."""

    def __init__(self, main: types.ModuleType) -> None:
        self.names = vars(main)
        self.pid = os.getpid()
        self.running = False
        self.interrupts = 0
        self.outcome: tuple[bool, str | None] | None = None
        self._flags = 0
        self._cells = -1  # the host begins with an empty one
        self._loop: Any = None

    def attempt(self, code: str) -> tuple[bool, str | None]:
        """Evaluate a cell; return whether it went well, and its error."""
        ok, error = True, None
        try:
            self._evaluate(code)
        except SystemExit as request:
            if os.getpid() != self.pid:  # a forked child, which may end
                os._exit(status_of(request))
            ok, error = status_of(request) == 0, told_exit(request)
        except KeyboardInterrupt as interrupt:  # little time is left: open figures come with the next cell
            return False, described(interrupt)
        except BaseException as fault:  # noqa: BLE001 - whatever a cell raises
            ok, error = False, described(fault)
        try:
            show_figures()
            shown.tell()
        except BaseException as fault:  # noqa: BLE001 - of code that is not ours, or an interrupt
            ok, error = False, f"{error}\n{described(fault)}" if error else described(fault)
        return ok, error

    def _evaluate(self, code: str) -> None:
        parts = self._compiled(code)
        if any(part.co_flags & AWAITED for part in parts):
            self._complete(parts)
            return
        for part in parts:
            exec(part, self.names)

    async def _awaited(self, parts: list[types.CodeType]) -> None:
        for part in parts:
            value = eval(part, self.names)
            if part.co_flags & AWAITED:
                await value

    def _compiled(self, code: str) -> list[types.CodeType]:
        """Compile a cell: its statements, and a last expression, which is shown."""
        self._cells += 1
        name = f"{CELL}{self._cells}>"
        lines = [f"{line}\n" for line in code.replace("\r\n", "\n").split("\n")]
        linecache.cache[name] = (len(code), None, lines, name)
        linecache.cache.pop(f"{CELL}{self._cells - MAX_SOURCES}>", None)
        options = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | self._flags
        try:
            tree = compile(code, name, "exec", options | ast.PyCF_ONLY_AST, dont_inherit=True)
        except SyntaxError as error:
            if (error.text or "").lstrip()[:1] in ("!", "%"):
                error.msg += " (this is plain Python, without IPython's ! and %: use the subprocess module)"
            raise
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        parts = [compile(tree, name, "exec", options, dont_inherit=True)]
        for feature in __future__.all_feature_names:  # as at a prompt, they hold from now on
            flag = getattr(__future__, feature).compiler_flag
            self._flags |= parts[0].co_flags & flag
        if last is not None:
            parts.append(compile(ast.Interactive([last]), name, "single", options | self._flags, dont_inherit=True))
        return parts

    def _complete(self, parts: list[types.CodeType]) -> None:
        """Run a cell that awaits, in a loop that the next such cell continues."""
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        task = self._loop.create_task(self._awaited(parts))
        try:
            self._loop.run_until_complete(task)
        except KeyboardInterrupt:
            if task.done():
                raise
            task.cancel()
            try:
                self._loop.run_until_complete(task)
            except asyncio.CancelledError as cancelled:
                raise KeyboardInterrupt().with_traceback(cancelled.__traceback__) from None
            raise

    def interrupted(self, number: int, frame: object) -> None:
        """Handle SIGINT: it ends a cell, and nothing else."""
        self.interrupts += 1
        if self.running:
            raise KeyboardInterrupt


def refuse_input(prompt: object = "") -> str:
    raise EOFError("input() cannot be answered here: put the value into the code")


# ---- descriptors and streams ----


def identities() -> list[tuple[int, int] | None]:
    return [identity(fd) for fd in (REQUESTS, ANSWERS)]


def identity(fd: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Streams:
    """The standard descriptors and the files on them, mended between cells."""

    def __init__(self) -> None:
        self._spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SPARE) for fd in range(3)]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]

    def mend(self) -> None:
        """Open again what a cell has closed, and let writes wait for the reader."""
        for fd, spare in enumerate(self._spare):
            if identity(fd) is None and identity(spare) is not None:
                os.dup2(spare, fd)
        for fd in (1, 2, ANSWERS):
            if identity(fd) is not None:
                os.set_blocking(fd, True)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            stream = getattr(sys, name)
            if stream is None or getattr(stream, "closed", False):
                setattr(sys, name, opened(number))

    @staticmethod
    def flush() -> None:
        """Write what streams that cells have put there still hold."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # None, closed, or a cell's own object
                stream.flush()


def opened(fd: int) -> io.TextIOWrapper:
    raw = open(fd, "rb" if fd == 0 else "wb", 0, closefd=False)  # noqa: SIM115 - a standard stream
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)


# ---- the host ----


class Host:
    """The messages. Signals wait while one is read or written: a handler may raise, and would tear it."""

    def __init__(self) -> None:
        for fd in (REQUESTS, ANSWERS):
            os.set_inheritable(fd, False)
        self._own = identities()
        self._rest = bytearray()
        self.message: Any = None
        self._signals = [int(number) for number in signal.valid_signals()]
        self._open = {*set_mask(signal.SIG_BLOCK, [signal.SIGINT])} - {signal.SIGINT}

    def let_signals_in(self, *but: int) -> None:
        set_mask(signal.SIG_SETMASK, self._open.union(but))

    def hold_signals(self) -> set[int]:
        """Let no signal reach this thread; return those that did not before."""
        return {int(number) for number in set_mask(signal.SIG_BLOCK, self._signals)}

    @staticmethod
    def hold_only(held: set[int]) -> None:
        """Let all other signals reach this thread."""
        set_mask(signal.SIG_SETMASK, held)

    def receive(self) -> None:
        """Wait for the next request, which is then in `message`."""
        while True:
            self.read(self._wait)
            if self.message["type"] == "exec":
                return

    def read(self, wait: Callable[[], object] | None = None) -> None:
        """Read a message, after `wait` for each piece of it; without a host the kernel ends."""
        end = self._rest.find(b"\n")
        while end < 0:
            if wait is not None:
                wait()
            data = os.read(REQUESTS, 65536)
            if not data:
                os._exit(0)
            end = data.find(b"\n") + len(self._rest) if b"\n" in data else -1
            self._rest += data
        self.message, self._rest = json.loads(self._rest[:end]), self._rest[end + 1 :]

    def _wait(self) -> None:
        raised: BaseException | None = None
        try:
            self.let_signals_in(signal.SIGINT)  # one sent with a request is the cell's
            select.select([REQUESTS], [], [])
        except BaseException as error:  # noqa: BLE001 - of a handler that a cell has left
            raised = error
        surely(self.hold_signals)
        if raised is not None:
            self.check()
            tell(described(raised))
            self._wait()

    def answer(self, message: dict[str, object]) -> None:
        """Send a message on a line of its own, whatever cells have written before."""
        self.check()
        data = memoryview(f"\n{json.dumps(message)}\n".encode())
        while data:
            data = data[os.write(ANSWERS, data) :]

    def check(self) -> None:
        """End the kernel if a cell has taken its descriptors."""
        if identities() != self._own:
            os._exit(LOST_DESCRIPTOR)

    @staticmethod
    def leave() -> None:
        """In a forked child: it is none of the kernel and does not answer."""
        for fd in (REQUESTS, ANSWERS):
            with suppress(OSError):  # a cell has closed it
                os.close(fd)


def surely(step: Callable[[], object]) -> None:
    """Take a step that may be repeated, whatever the handlers that cells have left raise meanwhile."""
    while True:
        try:
            step()
            return
        except BaseException:  # noqa: BLE001, S112 - see above
            continue


def tell(text: str) -> None:
    """Print to standard error, if that is still a file."""
    with suppress(Exception):  # closed, or a cell's own object
        print(text, file=sys.stderr)


def serve() -> None:
    """Evaluate cells until the host is gone."""
    main = types.ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    sys.modules["__main__"] = main
    host, streams, interpreter = Host(), Streams(), Interpreter(main)
    tools = Tools(host)
    os.register_at_fork(after_in_child=host.leave)
    while True:
        surely(host.receive)
        request = host.message
        forget_interrupts(interpreter, request.get("interrupts", 0))
        tools.begin(request)
        evaluate(host, streams, interpreter, request["code"])
        surely(host.hold_signals)
        ok, error = interpreter.outcome or (False, "KeyboardInterrupt")
        if os.getpid() != interpreter.pid:
            if error:
                tell(error)
            streams.flush()
            os._exit(0 if ok else 1)
        surely(tools.end)
        images = shown.end()
        streams.flush()
        host.answer({"type": "exec_result", "id": request["id"], "ok": ok, "error": error, "images": images})


def forget_interrupts(interpreter: Interpreter, sent: int) -> None:
    """Take a SIGINT that was meant for an earlier cell, which ended before it came."""
    while interpreter.interrupts < sent:
        interpreter.interrupts += 1
        if hasattr(signal, "sigtimedwait"):
            signal.sigtimedwait([signal.SIGINT], LATE)


def evaluate(host: Host, streams: Streams, interpreter: Interpreter, code: str) -> None:
    """Evaluate a cell; signals reach it, and SIGINT ends it."""
    interpreter.outcome = None
    try:
        streams.mend()
        signal.signal(signal.SIGINT, interpreter.interrupted)
        interpreter.running = True
        host.let_signals_in()
        interpreter.outcome = interpreter.attempt(code)
        interpreter.running = False
        host.hold_signals()
    except BaseException as error:  # noqa: BLE001 - of a handler, or an interrupt, at the edge of the cell
        interpreter.running = False
        interpreter.outcome = interpreter.outcome or (False, type(error).__name__)


def set_up() -> None:
    """Make the interpreter what cells expect of a prompt in the working directory."""
    sys.argv = [""]
    sys.path[:0] = ["", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.meta_path.insert(0, PyplotFinder)
    sys.displayhook = displayhook
    builtins.input = refuse_input
    builtins.display = display  # type: ignore[attr-defined]
    os.environ["MPLBACKEND"] = "agg"


started_as = sys.modules["__main__"]  # its names are in use
set_up()
serve()
