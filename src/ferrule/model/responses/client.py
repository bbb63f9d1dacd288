"""A model behind the Responses API."""

from ferrule.model.calls import CallReader
from ferrule.model.recipient import Recipient
from ferrule.model.responses.request import ResponsesBody
from ferrule.model.responses.stream import ResponsesStream
from ferrule.model.wire import WireModel


class ResponsesModel(WireModel):
    """A client of `POST /responses` with a stream."""

    wire = "responses"
    path = "/responses"

    def new_body(self, recipient: Recipient) -> ResponsesBody:
        """Return this wire's request builder for one server and model family."""
        return ResponsesBody(recipient)

    def new_merger(self, calls: CallReader) -> ResponsesStream:
        """Return the merger for one response."""
        return ResponsesStream(calls, self.server.endpoint.name)
