"""Pass our own standard streams to a command and back, for the subcommands that run one."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from ferrule.process.launcher import Child, Pipes, Pty, Stdio
from ferrule.process.run import open_writer
from ferrule.process.streams import READ_BYTES, Reader, Writer
from ferrule.stdio import write_all
from ferrule.tools.tasks import run_blocking

DRAIN_SECONDS = 0.5
"""Seconds to keep passing on the output of processes that outlived the command."""

KEPT_BYTES = 16 << 10
"""Bytes at the end of the output that are searched for the cause of a failure."""
STDIN, STDOUT, STDERR = 0, 1, 2


def our_streams() -> Stdio:
    """Return what a command gets: a terminal if we have one, else our standard input as it is."""
    if os.isatty(STDIN) and os.isatty(STDOUT):
        return Pty(*os.get_terminal_size(STDOUT)[::-1])
    return Pipes(given=_standard_input())


def _standard_input() -> int | None:
    """Return our own standard input, which programs inspect (is it a file, a terminal?); None if it was closed.

    It is never a folder, which would lead around the mounts: no interpreter starts with one.
    """
    # If it was closed, its number now belongs to one of our own files.
    return None if sys.stdin is None else STDIN


async def pass_through(child: Child) -> tuple[int, str]:
    """Pass the output on; return the exit code and the end of the output."""
    said = bytearray()

    def pass_on(fd: int, data: bytes) -> None:
        write_all(fd, data)
        said.extend(data)
        del said[:-KEPT_BYTES]

    readers = [Reader(child.stdout, partial(pass_on, STDOUT))]
    if child.stderr is not None:
        readers.append(Reader(child.stderr, partial(pass_on, STDERR)))
    writer = open_writer(child)
    feeding = asyncio.ensure_future(_feed(writer)) if writer is not None else None
    try:
        status = await child.wait()
        for reader in readers:
            await reader.finish(DRAIN_SECONDS)
        return status.shell_code, said.decode(errors="replace")
    finally:
        await child.kill_tree()
        if feeding is not None:
            feeding.cancel()
        if writer is not None:
            writer.close()
        for reader in readers:
            reader.close()


async def _feed(writer: Writer) -> None:
    """Pass our standard input on, no faster than it is read: it may have no end. A read of it cannot be cancelled, so
    it happens on a daemon thread."""
    while data := await run_blocking(os.read, STDIN, READ_BYTES):
        writer.write(data)
        await writer.drain()
    writer.finish()


@contextmanager
def raw_terminal(child: Child) -> Iterator[None]:
    """Send every key to the command, and window size changes too."""
    loop = asyncio.get_running_loop()
    before = termios.tcgetattr(STDIN)
    tty.setraw(STDIN)
    loop.add_signal_handler(signal.SIGWINCH, lambda: child.resize(*os.get_terminal_size(STDOUT)[::-1]))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)
