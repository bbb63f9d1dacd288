"""The base of both stream mergers: turns payloads into events, an error, or a warning, and nothing else."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ferrule.model.payloads import UNREADABLE, Unread, unread
from ferrule.model.stream import ContentFiltered, ModelError, PassedOver, ResponseEvent

T = TypeVar("T")


class StreamMerger:
    """The base of a merger: `_take` decodes one payload and adds its events to `_events`."""

    def __init__(self, server: str) -> None:
        self.ended = False
        self.said_all = False
        self.error: ModelError | None = None
        self._server = server
        self._events: list[ResponseEvent] = []
        self._passed_over = ""

    def feed(self, payloads: Iterable[bytes]) -> Sequence[ResponseEvent]:
        """Return the events of these payloads. An error that the server reports goes to `error`."""
        self._events = events = list[ResponseEvent]()
        try:
            for payload in payloads:
                if payload.startswith(b"[DONE]"):
                    self._done()
                elif not self.ended:
                    self._take_safely(payload)
        except ModelError as error:
            self.error = error
        return events

    def _take_safely(self, payload: bytes) -> None:
        try:
            self._take(payload)
        except UNREADABLE:
            self._pass_over(payload, unread(payload, "holds a value that cannot be read"))

    def _pass_over(self, payload: bytes, what: Unread) -> None:
        """Warn of an event without meaning for us. Raises `ModelError` if it may contain part of a call."""
        if self._is_of_a_call(payload):
            raise ModelError(f"{self._server} sent a part of a call that cannot be read.", retryable=True)
        self._passed_over = what.excerpt.strip() or self._passed_over
        if what.kind:
            text = f"{self._server} sent an event that {what.kind}: {what.excerpt!r}; it is passed over"
            self._events.append(PassedOver(what.kind, text))

    def _closed_early(self, missing: str) -> ModelError:
        """Build the error for a stream without its end, with the last text that was not an event."""
        said = f' It had sent, as no event of this API: "{self._passed_over}".' if self._passed_over else ""
        return ModelError(f"{self._server} closed the stream before {missing}.{said}", retryable=True)

    def _filtered(self) -> ModelError:
        return ContentFiltered(f"The content filter of {self._server} stopped the answer.")

    def _done(self) -> None:
        """Handle `[DONE]`."""

    def _take(self, payload: bytes) -> None:
        raise NotImplementedError

    def _is_of_a_call(self, payload: bytes) -> bool:
        """Return whether an unreadable payload contains part of a call that is sent no other way."""
        return False
