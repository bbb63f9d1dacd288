"""A worker on a node of a cluster: an ordinary worker process, and who passes on what it says.

The process of a Ray actor cannot be the worker itself: it has threads, and so can make no namespaces for workspaces.
"""

import os
import secrets
from collections.abc import Mapping

import msgspec

from ferrule.batch.messages import Message, Setup
from ferrule.batch.places import ROLLOUTS, WORK, clear, clear_node, folder_apart, remove_rollouts
from ferrule.batch.pool import Event, LocalPool, waiting

_WORKER = 1
"""The number of the first worker of a pool."""


class Relay:
    """Runs in an actor of its own. Workspaces, and rollouts until they are sent, are in the caches of its node."""

    def __init__(self, setup: Setup, variables: Mapping[str, str]) -> None:
        """`variables` are those of the environment that the model needs."""
        os.environ.update(variables)
        self._batch = setup.scratch
        place = folder_apart(self._batch)
        self._scratch, self._rollouts = place / WORK, place / f"{ROLLOUTS}{secrets.token_hex(4)}"
        setup = msgspec.structs.replace(
            setup, scratch=str(self._scratch), rollouts=str(self._rollouts), sends_rollouts=True
        )
        self._pool = LocalPool(setup)

    async def start(self, slots: int) -> None:
        """Start the worker. Raises `FerruleError`."""
        await clear_node(self._batch)
        self._rollouts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._pool.start(slots)

    async def tell(self, message: Message) -> None:
        """Tell the worker something."""
        self._pool.send(_WORKER, message)

    async def heard(self) -> list[Event]:
        """Wait for news of the worker; return all of it."""
        return [await self._pool.events.get(), *waiting(self._pool.events)]

    async def close(self) -> None:
        """End the worker, and remove what it has left."""
        await self._pool.close()
        await clear(self._scratch)
        remove_rollouts(self._rollouts)
