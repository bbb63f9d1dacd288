"""A worker process: some slots, in each of which one task after another is done."""

import asyncio
import os
import pickle
import resource
import socket
import sys
import threading
import traceback
from pathlib import Path

import msgspec

from ferrule.batch.attempt import Attempts
from ferrule.batch.gate import Gate
from ferrule.batch.messages import Channel, Hold, Job, Ready, Setup, Stop
from ferrule.batch.places import remove_rollouts
from ferrule.batch.tasks import Task
from ferrule.tools.tasks import end_tasks
from ferrule.workspaces import Workspaces, own_mounts

DESCRIPTORS = 16_384
"""Files that a worker may have open: some ten for each task. Where `select` is used, programs open far fewer."""
ENDING_SECONDS = 10.0
"""How long the end of a worker may take whose driver is gone: closing sessions takes a second at most."""


def main() -> None:
    """Run the worker whose driver is at the descriptor in the first argument. The others are kept open, and are not
    inherited by commands: they hold a lock."""
    talk, *kept = map(int, sys.argv[1:])
    for descriptor in (talk, *kept):
        os.set_inheritable(descriptor, False)
    _allow_descriptors()
    asyncio.run(serve(socket.socket(fileno=talk)))


def _allow_descriptors() -> None:
    """Let the process open as many files as many tasks at a time need; their commands get the same limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(DESCRIPTORS, hard)), hard))


async def serve(talk: socket.socket) -> None:
    """Do what the driver says until it says no more."""
    channel = Channel(*await asyncio.open_connection(sock=talk))
    told = await channel.receive_bytes()
    if told is None:
        return
    setup: Setup = pickle.loads(told)
    mounts = own_mounts(images=setup.images)  # there are no threads yet
    gate = Gate(setup.slots, lambda seconds: channel.send(Hold(seconds)))
    async with (
        Workspaces.open(Path(setup.scratch), mounts) as workspaces,
        Attempts(setup, workspaces, gate) as attempts,
    ):
        channel.send(Ready(workspaces.notice))
        running: set[asyncio.Task[None]] = set()
        while not isinstance(message := await channel.receive(), Stop | None):
            if isinstance(message, Hold):
                gate.hold(message.seconds)
            elif isinstance(message, Job):
                attempt = asyncio.create_task(_attempt(message, attempts, channel))
                running.add(attempt)
                attempt.add_done_callback(running.discard)
                attempt.add_done_callback(_die_of_faults)
        if message is None:
            _end_soon()
        await end_tasks(list(running))
    if setup.sends_rollouts:
        remove_rollouts(setup.rollouts)
    await channel.flush()


async def _attempt(job: Job, attempts: Attempts, channel: Channel) -> None:
    task = msgspec.json.decode(job.task, type=Task)
    channel.send(await attempts.run(job.key, task, job.tries))


def _die_of_faults(attempt: "asyncio.Task[None]") -> None:
    """End the process if an attempt has ended without a result: the driver would wait for it for ever."""
    if not attempt.cancelled() and (fault := attempt.exception()) is not None:
        traceback.print_exception(fault)
        os._exit(os.EX_SOFTWARE)


def _end_soon() -> None:
    """End the process even if something of it hangs: nobody is left to end it."""
    timer = threading.Timer(ENDING_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()
