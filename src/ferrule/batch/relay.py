"""A worker on a node of a cluster: an ordinary worker process, and who passes on what it says.

The process of a Ray actor cannot be the worker itself: it has threads, and so can make no namespaces for workspaces.
"""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from ferrule.batch.crew import Event, LocalCrew, Said, waiting
from ferrule.batch.messages import Done, Message, Setup
from ferrule.batch.places import clear, folder_apart
from ferrule.batch.trace import rollout_name

_WORKER = 1
"""The number of the first worker of a crew."""


class Relay:
    """Runs in an actor of its own. Workspaces, and rollouts until they are sent, are in the caches of its node."""

    def __init__(self, setup: Setup, variables: Mapping[str, str]) -> None:
        """`variables` are those of the environment that the model needs."""
        os.environ.update(variables)
        place = folder_apart(setup.scratch)
        self._scratch, self._rollouts = place / "work", place / "rollouts"
        self._keeps = setup.kept_rollouts is not None
        setup = msgspec.structs.replace(setup, scratch=str(self._scratch), rollouts=str(self._rollouts))
        self._crew = LocalCrew(setup)

    async def start(self, lanes: int) -> None:
        """Start the worker. Raises `FerruleError`."""
        self._rollouts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._crew.start(lanes)

    async def tell(self, message: Message) -> None:
        """Tell the worker something."""
        self._crew.send(_WORKER, message)

    async def heard(self) -> list[Event]:
        """Wait for news of the worker; return all of it."""
        events = [await self._crew.events.get(), *waiting(self._crew.events)]
        return await asyncio.to_thread(lambda: list(map(self._with_record, events)))

    def _with_record(self, event: Event) -> Event:
        """Put the rollout of a task into what is said of it."""
        if not isinstance(event, Said) or not isinstance(event.message, Done):
            return event
        path, record = self._rollouts / rollout_name(event.message.key), None
        with suppress(FileNotFoundError):
            record = path.read_bytes() if self._keeps else None
            path.unlink()
        return msgspec.structs.replace(event, message=msgspec.structs.replace(event.message, record=record))

    async def close(self) -> None:
        """End the worker, and remove what it has left."""
        await self._crew.close()
        await clear(self._scratch)
        for folder in (self._rollouts, self._rollouts.parent):
            with suppress(OSError):  # another worker on this node still needs it
                folder.rmdir()
