"""A model behind the Messages API."""

from collections.abc import Mapping
from typing import ClassVar

from ferrule.model.adapt import WireTools
from ferrule.model.calls import CallReader
from ferrule.model.messages.request import MessagesBody
from ferrule.model.messages.stream import MessagesStream
from ferrule.model.messages.thinking import INTERLEAVED
from ferrule.model.recipient import Recipient
from ferrule.model.wire import Body, Merger, WireModel

BETA_HEADER = "anthropic-beta"


class MessagesModel(WireModel):
    """A client of `POST /messages` with a stream."""

    wire = "messages"
    path = "/messages"
    functions_only: ClassVar[bool] = True
    fixed_headers: ClassVar[Mapping[str, str]] = {"anthropic-version": "2023-06-01"}

    def new_body(self, recipient: Recipient) -> Body:
        """Return this wire's request builder for one server and model family."""
        return MessagesBody(recipient)

    def new_merger(self, calls: CallReader, tools: WireTools) -> Merger:
        """Return the merger for one response."""
        return MessagesStream(calls, self.server.endpoint.name)

    def headers(self, given: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """Return the headers of a request: those that it was `given`, and the beta that its body needs."""
        return {**given, BETA_HEADER: INTERLEAVED} if b'"thinking":{"type":"enabled"' in body else given
