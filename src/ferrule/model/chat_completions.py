"""A model behind the Chat Completions API."""

from ferrule.model.calls import CallReader
from ferrule.model.chat_request import ChatBody
from ferrule.model.chat_stream import ChatStream
from ferrule.model.wire import WireModel


class ChatModel(WireModel):
    """Speaks `POST /chat/completions` with a stream."""

    wire = "chat"
    path = "/chat/completions"

    def new_body(self) -> ChatBody:
        """The builder of this wire's bodies."""
        return ChatBody(self.accepts)

    def new_merger(self, calls: CallReader) -> ChatStream:
        """The merger of one response of this wire."""
        return ChatStream(calls, self.server.endpoint.name)
