"""An HTTP protocol for listening doors that does not wait for ever."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_S = 10.0
"""Seconds for the head of a request to come whole: a connection that sends none takes the place of one that does."""


class TimedHeads(H11Protocol):
    """uvicorn's protocol, which waits for ever for the head of a request."""

    _ending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        super().data_received(data)
        if self.transport.get_protocol() is self:
            self._watch()
        else:
            self._forget()  # it is a WebSocket now

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        self._forget()

    def _forget(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _watch(self) -> None:
        """Close the connection in a while, unless a request is served."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._forget()
        elif self._ending is None:
            self._ending = self.loop.call_later(HEAD_S, self.transport.close)
