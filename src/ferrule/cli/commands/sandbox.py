"""`ferrule sandbox`: run your own command in the model's sandbox."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from ferrule.cli.options import (
    Parser,
    add_config_flag,
    add_rights_flags,
    configuration,
    existing_directory,
    split_command,
)
from ferrule.cli.running import run_interruptibly
from ferrule.process.launcher import Child, Limits, Pipes, Pty, Stdio
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import open_writer
from ferrule.process.streams import READ_BYTES, Reader, Writer
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import DangerFullAccess, ReadOnly, WorkspaceWrite
from ferrule.protocol.settings import Settings
from ferrule.sandbox.caches import cache_hint
from ferrule.sandbox.environment import refuse_nesting
from ferrule.sandbox.sandbox import Sandbox, open_launcher
from ferrule.session.caches import with_caches
from ferrule.tools.tasks import run_blocking

DRAIN_SECONDS = 0.5
"""Seconds to keep passing on the output of processes that outlived the command."""

KEPT_BYTES = 16 << 10
"""Bytes at the end of the output that are searched for the cause of a failure."""
STDIN, STDOUT, STDERR = 0, 1, 2


def main(arguments: list[str]) -> int:
    """Run the command; exit with its code (128 + n for signal n)."""
    parser = Parser("sandbox", "Run a command confined as the model's commands are, with your whole environment.")
    add_rights_flags(parser)
    parser.add_argument(
        "-w", dest="writable", action="append", default=[], metavar="DIR", help="another folder that may be written"
    )
    parser.add_argument("--network", action="store_true", help="let it reach the network")
    add_config_flag(parser)
    parser.epilog = "The command follows --: ferrule sandbox -- make test"
    own, command = split_command(arguments)
    options = parser.parse_args(own)
    options.add_dir += [existing_directory(path, "-w") for path in options.writable]
    settings = configuration(options).settings
    return run_interruptibly(_run(_with_network(settings) if options.network else settings, command))


def _with_network(settings: Settings) -> Settings:
    policy = settings.sandbox_policy
    if not isinstance(policy, ReadOnly | WorkspaceWrite):
        return settings
    return msgspec.structs.replace(settings, sandbox_policy=msgspec.structs.replace(policy, network_access=True))


async def _run(settings: Settings, command: list[str]) -> int:
    if not command:
        raise UsageError("give the command after --, like `ferrule sandbox -- make test`")
    terminal = os.isatty(STDIN) and os.isatty(STDOUT)
    stdio: Stdio = Pty(*os.get_terminal_size(STDOUT)[::-1]) if terminal else Pipes(given=_standard_input())
    sandbox: Sandbox | None = None
    variables: dict[str, str] = {}
    if not isinstance(settings.sandbox_policy, DangerFullAccess):
        refuse_nesting(settings.sandbox_policy)
        from pathlib import Path

        policy, variables = with_caches(settings)
        sandbox = await open_launcher(
            policy,
            settings.cwd,
            Path(settings.home),
            unconfined_accepted=settings.accept_no_sandbox,
            report=_tell,
        )
        for warning in sandbox.warnings:
            _tell(warning)
    try:
        child = await (sandbox or PlainLauncher()).launch(
            command, {**os.environ, **variables}, settings.cwd, stdio, Limits()
        )
        with _raw_terminal(child) if terminal else _nothing():
            code, said = await _pass_through(child)
        closed = code and sandbox is not None and isinstance(settings.sandbox_policy, WorkspaceWrite)
        hint = cache_hint(said, os.environ) if closed else None
        if hint is not None:
            _tell(hint.removeprefix("note: "))
        return code
    finally:
        if sandbox is not None:
            await sandbox.close()


def _tell(text: str) -> None:
    print(f"ferrule: {text}", file=sys.stderr)


def _standard_input() -> int | None:
    """Return our own standard input, which programs inspect (is it a file, a terminal?); None if it was closed.

    It is never a folder, which would lead around the mounts: no interpreter starts with one.
    """
    # If it was closed, its number now belongs to one of our own files.
    return None if sys.stdin is None else STDIN


async def _pass_through(child: Child) -> tuple[int, str]:
    """Pass the output on; return the exit code and the end of the output."""
    said = bytearray()

    def pass_on(fd: int, data: bytes) -> None:
        _write(fd, data)
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


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


@contextmanager
def _raw_terminal(child: Child) -> Iterator[None]:
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


@contextmanager
def _nothing() -> Iterator[None]:
    yield
