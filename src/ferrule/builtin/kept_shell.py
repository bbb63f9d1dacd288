"""One bash that runs command after command: variables, functions and the working directory live on between them.

It is an interactive bash on pipes. So Ctrl-C ends a command and not the shell, whatever runs; a command reads what is
sent while it runs; and nothing echoes or wraps lines. Before each prompt it prints a secret mark with the exit code
and the directory of the command that ended.

It may still be answering a Ctrl-C when the command has already ended: with a line break, with another prompt, or by
dropping the line that it reads. So an interrupted command counts as ended when bash has answered a question sent later.
"""

import asyncio
import re
import secrets
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from ferrule.process.capture import CAPTURE_BYTES, Captured, HeadTail
from ferrule.process.launcher import Child, ExitStatus, Launcher, Limits, Pipes
from ferrule.process.outputs import OnOutput, Outputs, StreamName, capped
from ferrule.process.run import TERM_GRACE, open_writer
from ferrule.sync import uninterrupted

START_SECONDS = 10.0
"""Until its first prompt a bash without start-up files takes milliseconds, as it does for an answer at its prompt; a
loaded machine gets this long."""
INTERRUPT_GRACE = 1.0
"""Seconds in which an interrupted command ends before its shell is ended with it."""
INTERRUPTS = 2
"""Ctrl-Cs in this time: bash misses one that comes just before its builtin `wait` begins to wait."""
ASK_AGAIN_SECONDS = 0.5
"""For the first answer. An interrupt that comes late can take the question with it. One that comes just before a bash
forks misses the program, and bash, at its prompt again, takes that for a part of whatever it runs next, which then
never ends: another interrupt ends the program."""
DRAIN_SECONDS = 0.2
"""Seconds after the end of the shell in which what it started may still write."""

_ARGUMENTS = ("--noprofile", "--norc", "--noediting", "-i")
_NO_TERMINAL = re.compile(rb"bash: \[\d+: \d+ \(\d+\)\] tcsetattr: Inappropriate ioctl for device\n")
"""Printed by an interactive bash without a terminal after a signal has ended a job."""
_STDIO = Pipes(stdin=True, merge=True)

OnEnd = Callable[[int, Captured], None]
"""Called with the exit code and the whole output of a command."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a command. `exit_code` None: it still runs; it wrote nothing for a while or, with `timed_out`, its
    time was up. `ended`: the shell ended with it."""

    output: Captured
    exit_code: int | None = None
    timed_out: bool = False
    ended: bool = False
    notice: str | None = None

    @property
    def transcript(self) -> str:
        """The output as text."""
        return self.output.text()


class KeptShell:
    """One bash process. Call `run`, then `wait` until the command has ended."""

    def __init__(self, child: Child, cwd: str) -> None:
        self._child = child
        self._mark = secrets.token_hex(16).encode()
        self._pattern = re.compile(rb"\n" + self._mark + rb"(\d+) ([^\n]*)\n")
        self._answer = re.compile(rb"\n" + self._mark + rb">(\d+)\n")
        self._held = b""
        self._pending = HeadTail()
        self._news = asyncio.Event()
        self._exit_code: int | None = None
        self._questions = 0
        self._on_output: OnOutput | None = None
        self._on_end: OnEnd | None = None
        self._whole = HeadTail()
        self._idle = asyncio.Event()
        self._outputs = Outputs(child, self._read, CAPTURE_BYTES)
        self._writer = open_writer(child)
        self._exit = asyncio.ensure_future(child.wait())
        self._exit.add_done_callback(self._ended)
        self._last = asyncio.ensure_future(self._take_last())
        self._interrupted = False
        self.busy = False
        self.cwd = cwd

    @classmethod
    async def start(cls, launcher: Launcher, bash: str, env: Mapping[str, str], cwd: str) -> "KeptShell":
        """Start bash and wait for its first prompt. Raises `LaunchError`."""
        child = await launcher.launch([bash, *_ARGUMENTS], env, cwd, _STDIO, Limits())
        shell = cls(child, cwd)
        mark = shell._mark.decode()
        prompt = f"{{ printf '\\n%s%d %s\\n' {mark} $? \"$PWD\"; }} 2>/dev/null"  # not in a trace (`set -x`)
        shell._send(f"PS1= PS2= PROMPT_COMMAND={shlex.quote(prompt)}; set +H; unset HISTFILE\n")
        try:
            await shell.wait(START_SECONDS, None)
        except BaseException:
            await uninterrupted(shell.end())
            raise
        return shell

    @property
    def alive(self) -> bool:
        """True if it can run another command."""
        return not self._exit.done()

    async def run(
        self,
        script: str,
        quiet_seconds: float | None,
        limit_seconds: float | None,
        on_output: OnOutput | None = None,
        on_end: OnEnd | None = None,
    ) -> Step:
        """Run a script of any number of lines, then `wait`. A cancelled wait ends the command. `on_end` is called
        at its end, even if nobody waits."""
        self._on_output, self._on_end, self._whole = capped(on_output), on_end, HeadTail()
        self._idle.clear()
        self._send(f"eval -- {shlex.quote(script)}\n")
        try:
            return await self.wait(quiet_seconds, limit_seconds)
        except asyncio.CancelledError:
            await uninterrupted(self.stop())
            raise

    async def wait(self, quiet_seconds: float | None, limit_seconds: float | None) -> Step:
        """Wait for the end of the command: at most until nothing was written for `quiet_seconds`, or for
        `limit_seconds` in all. The output is what came since the last step."""
        self.busy = True
        limit = None if limit_seconds is None else time.monotonic() + limit_seconds
        timed_out = False
        while self._exit_code is None and self.alive:
            left = None if limit is None else limit - time.monotonic()
            patience = min((seconds for seconds in (left, quiet_seconds) if seconds is not None), default=None)
            self._news.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._news.wait()
            except TimeoutError:
                timed_out = limit is not None and time.monotonic() >= limit
                break
        if self._exit_code is not None and self._interrupted:
            await self._settle(self._exit_code)
        return await self._step(timed_out)

    async def _settle(self, exit_code: int) -> None:
        """Wait until bash has answered all interrupts; end it if it never does."""
        deadline = time.monotonic() + START_SECONDS
        patience = ASK_AGAIN_SECONDS
        self._ask(exit_code)
        while not await self._answered(patience) and time.monotonic() < deadline:
            patience *= 2  # on a loaded machine, too, there is time for an answer before the next interrupt
            await self._child.interrupt()
            self._ask(exit_code)
        if self._interrupted and self.alive:
            await uninterrupted(self.end())
        self._interrupted = False

    async def _answered(self, patience: float) -> bool:
        """Wait for the answer; return whether none is to be waited for any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while self._interrupted and self.alive:
                    self._news.clear()
                    await self._news.wait()
        return not (self._interrupted and self.alive)

    def _ask(self, exit_code: int) -> None:
        """Have bash print the number of this question, out of a trace too. `$?` and `$_` stay."""
        self._questions += 1
        answer = f"printf '\\n%s>%d\\n%.0s' {self._mark.decode()} {self._questions} \"$_\""
        self._send(f"{{ {answer}; (exit {exit_code}) && :; }} 2>/dev/null\n")

    async def over(self) -> None:
        """Wait until the command has ended and `on_end` was called."""
        await self._idle.wait()

    async def _take_last(self) -> None:
        """Take what the shell still had to say when it ended."""
        await asyncio.wait({self._exit})
        await self._outputs.finish(DRAIN_SECONDS)
        self._take(self._held)
        self._held = b""
        self._tell_end(_code_of(self._exit))

    def _tell_end(self, exit_code: int) -> None:
        on_end, self._on_end = self._on_end, None
        self._idle.set()
        if on_end is not None:
            on_end(exit_code, self._whole.captured())

    def _ended(self, ended: asyncio.Future[ExitStatus]) -> None:
        if not ended.cancelled():
            ended.exception()  # the sandbox may be lost while nobody waits; the next step raises it
        self._news.set()

    async def _step(self, timed_out: bool) -> Step:
        code, self._exit_code = self._exit_code, None
        if code is None and not self.alive:
            await asyncio.shield(self._last)
            status = self._exit.result()
            self._close()
            return Step(output=self._pending.drain(), exit_code=status.shell_code, ended=True)
        self.busy = code is None
        if self.busy:
            self._take(self._held)
            self._held = b""
        return Step(output=self._pending.drain(final=not self.busy), exit_code=code, timed_out=timed_out)

    def write(self, text: str) -> None:
        """Send input to the command that runs."""
        self._send(text)

    async def interrupt(self) -> None:
        """Ctrl-C for the command that runs."""
        if self.busy:
            self._interrupted = True
            await self._child.interrupt()

    async def stop(self) -> None:
        """End the command that runs; the shell too where that does not help."""
        for _ in range(INTERRUPTS):
            await self.interrupt()
            step = await self.wait(None, INTERRUPT_GRACE / INTERRUPTS)
            if step.exit_code is not None:
                return
        await self.end()

    async def end(self) -> None:
        """End the shell and all that it started. At its prompt it leaves by itself; a signal it would ignore."""
        if self._writer is not None and not self.busy:
            self._writer.finish()
            await asyncio.wait({self._exit}, timeout=INTERRUPT_GRACE)
        await self._child.kill_tree(TERM_GRACE)
        await asyncio.wait({self._last}, timeout=TERM_GRACE)
        self._close()

    def _close(self) -> None:
        self.busy = False
        if not self._last.cancel() and not self._last.cancelled():
            self._last.exception()  # what a front end raised was raised where it waited
        self._tell_end(_code_of(self._exit))
        self._outputs.close()
        if self._writer is not None:
            self._writer.close()

    def _send(self, text: str) -> None:
        if self._writer is not None:
            self._writer.write(text.encode("utf-8", "surrogateescape"))

    def _read(self, stream: StreamName, data: bytes) -> None:
        """Take what was written; the mark is cut out, and what could be its start waits for the rest."""
        data = _NO_TERMINAL.sub(b"", self._held + data)
        while found := self._pattern.search(data):
            before, data = data[: found.start()], data[found.end() :]
            if self._exit_code is not None and self._interrupted:
                self._prompted_again(before, self._exit_code)
                continue
            self._take(before)
            self._exit_code = int(found[1])
            self.cwd = found[2].decode("utf-8", "surrogateescape")
            self._tell_end(self._exit_code)
        start = _possible_start(data, b"\n" + self._mark)
        self._take(data[:start])
        self._held = data[start:]
        self._news.set()

    def _prompted_again(self, before: bytes, exit_code: int) -> None:
        """Take a prompt after an interrupt: the last question's own, or one that may have come instead of an answer."""
        answers = [int(number) for number in self._answer.findall(before)]
        if self._questions in answers:
            self._interrupted = False
        elif not answers:
            self._ask(exit_code)

    def _take(self, data: bytes) -> None:
        """Take output, but for what bash writes between the end of an interrupted command and its answer."""
        if data and not (self._interrupted and self._exit_code is not None):
            self._pending.write(data)
            self._whole.write(data)
            if self._on_output is not None:
                self._on_output("stdout", data)


def _code_of(ended: asyncio.Future[ExitStatus]) -> int:
    """Return the exit code of a shell: that of SIGKILL for one that was lost with its sandbox, or cannot be killed."""
    if not ended.done() or ended.cancelled() or ended.exception() is not None:
        return ExitStatus(signal=signal.SIGKILL).shell_code
    return ended.result().shell_code


def _possible_start(data: bytes, mark: bytes) -> int:
    """Return where the mark starts, or a part of it at the end of the data; else the end."""
    start = data.find(mark)
    if start >= 0:
        return start
    for length in range(min(len(mark), len(data)), 0, -1):
        if data.endswith(mark[:length]):
            return len(data) - length
    return len(data)
